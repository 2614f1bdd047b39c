"""One attempt of one request on prefill."""

from __future__ import annotations

from dataclasses import dataclass, field

from racelab.engine.clock import Timer
from racelab.engine.guards import Ticket
from racelab.engine.handles import Handle


@dataclass
class Job:
    """One attempt of one request, from its `reserve` to the end of its source pages."""

    request: str
    attempt: int
    prompt: list[int]
    segment: str
    regions: list[int]
    first_page: int
    """of the prompt; decode has those before it"""
    pages: list[tuple[int, int]]
    slot: tuple[int, int] | None = None
    """decode's metadata slot for it, and its address"""
    sources: list[Ticket] = field(default_factory=list)
    next_chunk: int = 0
    outstanding: dict[Handle, int] = field(default_factory=dict)
    """writes without a completion, by chunk and rank"""
    unfinished: dict[int, int] = field(default_factory=dict)
    """writes without a successful completion, by source page"""
    failed: set[Handle] = field(default_factory=set)
    pulled: bool = False
    """decode reads the pages itself: nothing of them is posted"""
    referenced: bool = False
    readers: set[tuple[str, int]] = field(default_factory=set)
    """attempts whose claim to read its pages was honoured"""
    submitted_ms: int = 0
    aborted: bool = False
    owes_ack: bool = False
    """decode has asked, and is told when nothing is outstanding"""
    placeholder: bool = False
    """prefill did not accept the prompt, and computes another, shorter one in its place"""
    limit: Timer | None = None
    """how long it waits for decode to be done with the attempt"""
    released: bool = False

    @property
    def transferred(self) -> int:
        """Tokens whose KV travels: all but the last, which decode computes itself."""
        return len(self.prompt) - 1
