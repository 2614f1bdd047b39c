"""The packet gate's process: the verbs gate's, but what is wanted stops on the wire."""

from __future__ import annotations

import argparse
import threading
from dataclasses import replace
from typing import Any

from injectors import entry
from injectors.packets import INJECTOR
from injectors.packets.holds import PacketHolds
from injectors.packets.keeping import Keeper
from injectors.packets.rules import Rules
from injectors.verbs.beyond import Beyond
from injectors.verbs.build import build
from injectors.verbs.gate import Gate
from injectors.verbs.holds import Holds, Wanted, Watched
from injectors.verbs.layout import ACTIONS, MOVES, PAYLOADS, Message
from racelab import delays
from racelab.delays import Distribution

ANSWER_BOUND_S = 20.0
"""For the word of a responder whose queue pair lives. What it says, and not when, is what is recorded."""

_RETRIES_EXCEEDED, _REFUSED = 12, 10
"""enum ibv_wc_status"""


class PacketGate(Gate):
    """Packets stop on the wire; `packet_holds` is `holds`, as what it is here."""

    packet_holds: PacketHolds

    def new_holds(self) -> Holds:
        """Those that stop on the wire."""
        self.packet_holds = PacketHolds(self.recorder, self.later)
        self._requesters: dict[int, str] = {}
        self._late: dict[int, Watched] = {}
        self._watched: set[int] = set()
        self._rules = Rules()
        self._keeper = Keeper(self._told)
        return self.packet_holds

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
        """Stop the next `count` accesses that agree: `at-hold` keeps their packets, `reread` loses them each time."""
        payload = "at-hold" if action == "ghost" else payload
        self.holds.arm(hold, match, count, action, payload, delays.draws(ms, seed) if ms is not None else None)

    def watch(self, wanted: list[Wanted]) -> None:
        """Rules first: what is announced is posted once this returns."""
        if not wanted:
            return
        self._watched |= {write.watch for write, _, _ in wanted}
        for write, _, payload in wanted:
            there = write.identity.peer_address, write.identity.bytes
            self._keeper.watch(write.watch, *there, keeps=payload == "at-hold")
        self._rules.stop({write.watch: (write.identity.peer_address, write.identity.bytes) for write, _, _ in wanted})
        for write, _, _ in wanted:
            self.follow(write, ACTIONS["follow"], PAYLOADS["at-release"])

    def open(self, going: list[Watched]) -> None:
        """What was kept goes on, or is lost; what was lost passes, or is lost until its requester gives up."""
        passing: set[int] = set()
        for write in going:
            given_up = self.packet_holds.given_up(write)
            if write.let_go == "drop":
                self._keeper.drop(write.watch)
                if given_up:
                    self.packet_holds.lost(write)
            elif not given_up:
                self._keeper.release(write.watch)
                passing.add(write.watch)
            elif self.packet_holds.keeps(write):
                self._let_arrive(write, given_up)
            else:
                self.packet_holds.unlanded(write, "its requester gave up before it was let go")
        self._rules.pass_on(passing)

    def _let_arrive(self, write: Watched, given_up: list[Message]) -> None:
        """Nobody waits for these packets any more. Whether the responder takes them it says itself."""
        if not all(self._has_responder(message) for message in given_up):
            self._keeper.release(write.watch)
            self._arrived(write, _RETRIES_EXCEEDED)
            return
        self._late[write.watch] = write
        self._rules.hear(self._requesters[write.watch], given_up[-1].queue_pair)
        timer = threading.Timer(
            ANSWER_BOUND_S, self.packet_holds.unlanded, [write, "its responder lives and does not answer"]
        )
        timer.daemon = True
        timer.start()
        self._keeper.release(write.watch, late=True)

    def _has_responder(self, message: Message) -> bool:
        with self._lock:
            pairs = list(self._queue_pairs.values())
        return any(
            (pair["qp"], pair["peer"]) == (message.peer, message.queue_pair) and pair["state"] in ("RTR", "RTS")
            for pair in pairs
        )

    def _arrived(self, write: Watched, status: int) -> None:
        process = self.processes.named(write.sender)
        late = next(number for number, move in MOVES.items() if move == "late")
        for message in self.packet_holds.given_up(write):
            arrived = replace(message, state=late, status=status)
            self._request(process, arrived)
            self.holds.moved(arrived)

    def _go_on(self, write: Watched) -> None:
        if self.holds.due(write):
            self.open([write])

    def _told(self, said: dict[str, Any]) -> None:
        """The keeper says what has stopped, and what a responder answered to a late request."""
        if "stopped" in said:
            self._requesters[said["stopped"]] = said["requester"]
            self.packet_holds.stopped(said["stopped"], said["packets"])
        elif (write := self._late.pop(said["answered"], None)) is not None:
            self._arrived(write, _REFUSED if said["syndrome"] >> 5 else 0)

    def reset(self, incarnation: int) -> dict[str, Any]:
        """Nothing is stopped any more, unless something is still held."""
        answer = super().reset(incarnation)
        if not answer["held"]:
            self._rules.clear()
            for number in self._watched:
                self._keeper.forget(number)
            self._watched.clear()
        return answer


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
