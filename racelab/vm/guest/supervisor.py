"""The machine's supervisor: takes connections on port 7000, each of which begins with one line of JSON.

    {"token", "do": "run", "argv", "input"}     a command; answered with {"rc", "out", "err"}; more may follow
    {"token", "do": "facts"}                    what the machine is
    {"token", "do": "lease", "who"}             nobody else gets one until this connection ends
    {"token", "do": "keep", "name"}             the connection is kept for the agent that names it
    {"token", "do": "agent", "argv", "code", "environment", "kept"}
                                                the connection becomes a process's: its descriptor is the last argument,
                                                before it that of the kept one (-1: none)
    {"token", "do": "signal", "pid", "signal"}  an agent that was started here, and no other process; answered with
                                                {"threads", "state", "status"} once it stands still, goes on or is gone

Every request is answered by one line: {"ok": ...} or {"error": words}. It runs on the system's own Python
and needs nothing but its standard library.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

PORT = 7000
RUN_BOUND_S = 60.0
SIGNAL_BOUND_S = 10.0
POLL_S = 2e-3
LINE_BYTES_MAX = 1 << 20

agents: dict[int, subprocess.Popen[bytes]] = {}
kept: dict[str, socket.socket] = {}
lock = threading.Lock()
lease: dict[str, str | None] = {"who": None}


def read_line(connection: socket.socket) -> bytes | None:
    """One line and nothing behind it, which may be another process's; None when the other end has hung up."""
    line = b""
    while not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
        waiting = connection.recv(65536, socket.MSG_PEEK)
        end = waiting.find(b"\n") + 1
        if not waiting:
            return None
        line += connection.recv(end or len(waiting))
    return line


def say(connection: socket.socket, **answer: Any) -> None:
    """One line back."""
    connection.sendall(json.dumps(answer).encode() + b"\n")


def run(argv: list[str], given: str = "") -> dict[str, Any]:
    """Run a command within a bound."""
    try:
        done = subprocess.run(argv, input=given, capture_output=True, text=True, timeout=RUN_BOUND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"rc": -1, "out": "", "err": str(error)}
    return {"rc": done.returncode, "out": done.stdout, "err": done.stderr}


def facts() -> dict[str, Any]:
    """What this machine is."""
    with open("/proc/uptime") as file:
        uptime_s = float(file.read().split()[0])
    return {
        "kernel": platform.release(),
        "devices": sorted(os.listdir("/sys/class/infiniband")),
        "uptime_s": uptime_s,
        "lease": lease["who"],
    }


def start_agent(connection: socket.socket, request: dict[str, Any]) -> None:
    """Start the process that the connection belongs to from now on."""
    with lock:
        beside = kept.pop(request["kept"], None) if request.get("kept") else None
    descriptors = [one.fileno() for one in (beside, connection) if one is not None]
    argv = [*request["argv"], "-c", request["code"], str(beside.fileno() if beside else -1), str(connection.fileno())]
    environment = os.environ | request["environment"]
    if beside is not None:
        environment |= {name: f"fd:{beside.fileno()}" for name in request.get("kept_variables", [])}
    child = subprocess.Popen(argv, env=environment, pass_fds=descriptors, stdin=subprocess.DEVNULL)
    agents[child.pid] = child
    threading.Thread(target=bury, args=(child,), daemon=True).start()
    if beside is not None:
        beside.close()


def bury(child: subprocess.Popen[bytes]) -> None:
    """Nobody signals an agent that has ended."""
    child.wait()
    agents.pop(child.pid, None)


def send_signal(pid: int, name: str) -> dict[str, Any]:
    """Signal an agent, and see that it has taken effect. LookupError: no agent of that id runs here."""
    child = agents.get(pid)
    if child is None or child.poll() is not None:
        raise LookupError(f"no agent {pid} runs here")
    child.send_signal(getattr(signal, name))
    if name == "SIGKILL":
        return {"threads": 0, "state": "", "status": -child.wait(SIGNAL_BOUND_S)}
    deadline = time.monotonic() + SIGNAL_BOUND_S
    while True:
        states = thread_states(pid)
        still = set(states) <= {"T", "t"} if name == "SIGSTOP" else not set(states) & {"T", "t"}
        if states and still:
            return {"threads": len(states), "state": states[0], "status": None}
        if time.monotonic() > deadline:
            raise TimeoutError(f"agent {pid} did not follow {name} in {SIGNAL_BOUND_S:.0f} s: {''.join(states)}")
        time.sleep(POLL_S)


def thread_states(pid: int) -> list[str]:
    """The state of each thread, as in proc_pid_stat(5)."""
    states = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/stat") as stat:
                states.append(stat.read().rpartition(")")[2].split()[0])
        except OSError:
            continue  # it has ended meanwhile
    return states


def serve(connection: socket.socket, token: str) -> None:
    """One connection, to its end."""
    holds_lease = False
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while (line := read_line(connection)) is not None:
            request = json.loads(line)
            if request.get("token") != token:
                say(connection, error="a wrong token")
                return
            do = request["do"]
            if do == "run":
                say(connection, ok=run(request["argv"], request.get("input", "")))
            elif do == "facts":
                say(connection, ok=facts())
            elif do == "lease":
                with lock:
                    free = lease["who"] is None
                    lease["who"] = request["who"] if free else lease["who"]
                    holds_lease = holds_lease or free
                say(connection, **({"ok": True} if free else {"error": f"in use by {lease['who']}"}))
            elif do == "signal":
                try:
                    say(connection, ok=send_signal(request["pid"], request["signal"]))
                except (LookupError, TimeoutError, subprocess.TimeoutExpired) as error:
                    say(connection, error=str(error))
            elif do == "keep":
                say(connection, ok=True)
                with lock:
                    kept[request["name"]] = connection.dup()
                return
            elif do == "agent":
                start_agent(connection, request)
                return
            else:
                say(connection, error=f"unknown request {do!r}")
    except (OSError, ValueError, KeyError) as error:
        print(f"supervisor: {type(error).__name__}: {error}", flush=True)
    finally:
        if holds_lease:
            lease["who"] = None
        connection.close()


def main() -> None:
    """Take connections for as long as the machine lives."""
    with open(sys.argv[1]) as file:
        token = file.read().strip()
    listener = socket.create_server(("0.0.0.0", PORT))
    print("racelab: stage ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, token), daemon=True).start()


if __name__ == "__main__":
    main()
