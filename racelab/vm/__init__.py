"""The Soft-RoCE machine: a small VM with rdma_rxe devices, two rails for each of two ends, for runs over kernel verbs.

packages    the distribution's packages, from its registry, into a folder of our own
kernel      vmlinux, its modules and an initramfs, from the kernel's package
image       all of that once, kept in the user's cache
accel       KVM if it boots, TCG otherwise
machine     boot, and say where a boot broke; the running one, found again by its state file; its end
client      what is asked of the machine's supervisor (guest/supervisor.py)
agent       an instance's memory and transfer engines in the machine (guest/agent.py)
"""
