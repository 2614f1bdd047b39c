"""The packet gate's process: the verbs gate's, but what is wanted stops on the wire."""

from __future__ import annotations

import argparse
import threading
from typing import Any

from injectors import entry
from injectors.packets import INJECTOR
from injectors.packets.holds import PacketHolds
from injectors.packets.rules import Rules
from injectors.verbs.beyond import Beyond
from injectors.verbs.build import build
from injectors.verbs.gate import Gate
from injectors.verbs.holds import Holds, Wanted, Watched
from injectors.verbs.layout import ACTIONS, PAYLOADS
from racelab.delays import Distribution

LOOK_INTERVAL_S = 0.05
"""Between two looks at the rules' counters while something is expected to stop. It orders nothing: a write is said
to be held after its packet was lost, whenever that is seen."""


class PacketGate(Gate):
    """Rules on the wire; `packet_holds` is `holds`, as what it is here."""

    packet_holds: PacketHolds

    def new_holds(self) -> Holds:
        """Those that stop on the wire."""
        self.packet_holds = PacketHolds(self.recorder)
        self._rules = Rules()
        self._expected = threading.Event()
        return self.packet_holds

    def start(self) -> None:
        """Look at the rules too."""
        super().start()
        threading.Thread(target=self._look, daemon=True).start()

    def arm(
        self,
        hold: str,
        match: dict[str, Any],
        count: int,
        action: str = "hold",
        payload: str = INJECTOR.payload,
        ms: Distribution | None = None,
        seed: str = "",
    ) -> None:
        """Lose the first packet of the next `count` writes that agree, each time it is sent."""
        self.holds.arm(hold, match, count, action, payload)

    def watch(self, wanted: list[Wanted]) -> None:
        """Rules first: what is announced is posted once this returns."""
        if not wanted:
            return
        self._rules.lose({write.watch: (write.identity.address, write.identity.bytes) for write, _, _ in wanted})
        for write, _, _ in wanted:
            self.follow(write, ACTIONS["follow"], PAYLOADS["at-release"])
        self._expected.set()

    def open(self, going: list[Watched]) -> None:
        """The next time they are sent they pass."""
        self._rules.pass_on([write.watch for write in going])

    def reset(self, incarnation: int) -> dict[str, Any]:
        """No rules either, but those of what is still held."""
        answer = super().reset(incarnation)
        self._rules.keep(self.packet_holds.numbers)
        return answer

    def _look(self) -> None:
        while True:
            self._expected.wait()
            self._expected.clear()
            while self.packet_holds.expects:
                self.packet_holds.lost(self._rules.lost())
                threading.Event().wait(LOOK_INTERVAL_S)


def main() -> None:
    """Build, connect, and serve until the conductor is gone."""
    arguments = entry.parser("injectors.packets", INJECTOR.means)
    arguments.add_argument("--beyond", metavar="LAB", required=True, help="the lab whose processes are in the machine")
    arguments.add_argument("--rails", type=int, default=1, help="not used here")
    options: argparse.Namespace = arguments.parse_args()
    speaker = entry.Speaker(options.instance)
    gate = PacketGate(speaker, build(), options.host, None, Beyond(options.beyond))
    link = speaker.connect(options.hub, gate.facts)
    gate.start()
    link.serve(gate.handlers())
    gate.processes.close()


if __name__ == "__main__":
    entry.run(main)
