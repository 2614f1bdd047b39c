"""The verbs gate's process."""

from __future__ import annotations

import argparse

from injectors import entry
from injectors.verbs import INJECTOR
from injectors.verbs.beyond import Beyond
from injectors.verbs.build import build
from injectors.verbs.gate import Gate
from injectors.verbs.self_test import self_test


def main() -> None:
    """Parse the arguments, build, test what was built, connect, and serve until the conductor is gone."""
    arguments = entry.parser("injectors.verbs", INJECTOR.means)
    arguments.add_argument("--simulated", choices=["softhca"], help="stand in for the NIC with the software device")
    arguments.add_argument("--rails", type=int, default=2, help="how many software devices there are")
    arguments.add_argument("--beyond", metavar="LAB", help="the processes are in the Soft-RoCE machine, for this lab")
    options: argparse.Namespace = arguments.parse_args()
    built = build()
    if options.simulated:
        self_test(built)
    speaker = entry.Speaker(options.instance)
    beyond = Beyond(options.beyond) if options.beyond else None
    gate = Gate(speaker, built, options.host, options.rails if options.simulated else None, beyond)
    link = speaker.connect(options.hub, gate.facts)
    gate.start()
    link.serve(gate.handlers())
    gate.processes.close()


if __name__ == "__main__":
    entry.run(main)
