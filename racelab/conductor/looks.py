"""What the receivers of held accesses see in their own memory: the brackets of landings."""

from __future__ import annotations

from racelab.conductor.crew import Crew
from racelab.conductor.witness import Witness
from racelab.evidence.events import Event
from racelab.scenario import Lab


class Looks:
    """Those of one run."""

    def __init__(self, crew: Crew, witness: Witness, lab: Lab) -> None:
        self._crew = crew
        self._witness = witness
        self._lab = lab

    def look(self, held: list[Event], why: str) -> None:
        """Have the receiver read the ranges that held writes aim at: the brackets of their landings.

        What was aimed at a process that has died since has no place in the one that is there.
        """
        for receiver in self.receivers(held) & set(self._crew.answering):
            self._look_at(receiver, [event for event in held if self._receiver(event) == receiver], why)

    def receivers(self, held: list[Event]) -> set[str]:
        return set(map(self._receiver, held))

    def _receiver(self, held: Event) -> str:
        """Whose memory a held write or read changes."""
        if self._lab.decodes == 1:
            return "decode"
        return self._witness.receiver(held.data["what"])

    def _look_at(self, receiver: str, held: list[Event], why: str) -> None:
        deaths = [event.hlc for event in self._witness.of("killed") if event.data["peer"] == receiver]
        held = [event for event in held if not any(death > event.hlc for death in deaths)]
        regions = {
            event.data["layer"]: range(event.data["address"], event.data["address"] + event.data["bytes"])
            for event in self._witness.of("region")
            if event.instance == receiver
        }
        page_bytes = next(event.data["page_bytes"] for event in self._witness.of("pool") if event.instance == receiver)
        sizes = {
            event.data["layer"]: event.data.get("page_bytes", page_bytes)
            for event in self._witness.of("region")
            if event.instance == receiver
        }
        ranges = []
        for event in held:
            address = event.data["address"]
            if "slot" in event.data:
                end = event.data["bytes"]
                ranges.append({"slot": event.data["slot"], "start": 0, "end": end, "write": event.data["what"]})
                continue
            block = next(block for block, region in regions.items() if address in region)
            page, start = divmod(address - regions[block].start, sizes[block])
            end = start + event.data["bytes"]
            ranges.append({"page": page, "layer": block, "start": start, "end": end, "write": event.data["what"]})
        self._crew.hub.call(receiver, "look", ranges=ranges, why=why)
