"""Eclipse Mosquitto, started for a test on a free port of loopback (the Debian package `mosquitto`)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

BOUND_S = 10.0
_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
log_dest stderr
connection_messages false
set_tcp_nodelay true
"""


def program() -> str | None:
    """Where it is; Debian puts it where only root looks."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def is_here() -> bool:
    """Whether it is installed."""
    return program() is not None


class Mosquitto:
    """A running broker at `address`."""

    def __init__(self, process: subprocess.Popen[str], port: int, folder: tempfile.TemporaryDirectory[str]) -> None:
        self.address = f"127.0.0.1:{port}"
        self._process = process
        self._folder = folder

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.communicate(timeout=BOUND_S)
        self._folder.cleanup()


def start_mosquitto() -> Mosquitto:
    """Start one, and wait until it says that it runs."""
    found = program()
    assert found is not None
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    folder = tempfile.TemporaryDirectory(prefix="mosquitto-")
    config = Path(folder.name, "mosquitto.conf")
    config.write_text(_CONFIG.format(port=port))
    Path(folder.name).chmod(0o755)  # it gives up root's rights
    process = subprocess.Popen([found, "-c", str(config)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if "running" in line:
            return Mosquitto(process, port, folder)
    raise AssertionError(f"mosquitto ended: {''.join(said)}")
