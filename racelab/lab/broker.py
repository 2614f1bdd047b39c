"""The embedded MQTT broker: amqtt in a process of its own, on a free port and a fast loop.

python -m racelab.lab.broker --hub HOST:PORT --host HOST
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket

import uvloop
from amqtt.broker import Broker

from racelab.channel.link import Link
from racelab.evidence.recorder import Recorder
from racelab.gates import TOKEN_VARIABLE


async def serve(hub: str, host: str) -> None:
    """Run the broker until the conductor hangs up."""
    port = _free_port(host)
    broker = Broker(_config(f"{host}:{port}"))
    await broker.start()
    link = Link(hub, os.environ[TOKEN_VARIABLE], Recorder("broker"), mqtt=f"{host}:{port}")
    await asyncio.to_thread(link.serve, {})
    await broker.shutdown()


def _config(bind: str) -> dict[str, object]:
    return {
        "listeners": {"default": {"type": "tcp", "bind": bind, "max_connections": 64}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }


def _free_port(host: str) -> int:
    """amqtt does not tell which port it got, so one is picked just before."""
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


def main() -> None:
    """The command line of the broker's process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hub", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    uvloop.run(serve(options.hub, options.host))


if __name__ == "__main__":
    main()
