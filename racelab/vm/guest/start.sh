# In the new root: the network, the wire's counters, then the supervisor for as long as the machine lives.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
fail() { echo "racelab: broke: $1"; echo o > /proc/sysrq-trigger; sleep 60; }
of_cmdline() { sed -n "s/.*racelab\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
hostname softroce
echo "racelab: stage network"
. /run/racelab/network.sh
echo "racelab: stage supervisor"
ldconfig
"$(of_cmdline python)" -I /run/racelab/supervisor.py "$(of_cmdline token)" || fail "the supervisor ended with $?"
fail "the supervisor ended"
