"""One attempt of one request on prefill."""

from __future__ import annotations

from dataclasses import dataclass, field

from racelab.engine.clock import Timer
from racelab.engine.guards import Ticket
from racelab.engine.handles import Handle
from racelab.engine.outgoing import Outgoing

PLACEHOLDER = [0, 0]
"""What prefill computes in place of a prompt that it does not accept: one token's KV travels."""


@dataclass
class Job:
    """One attempt of one request, from its `reserve` to the end of its source pages."""

    request: str
    attempt: int
    transfer: str | None
    prompt: list[int]
    decode: str = "decode"
    """the instance whose pages it fills, once that has said so"""
    segment: str = ""
    regions: list[int] = field(default_factory=list)
    first_page: int = 0
    """of the prompt; decode has those before it"""
    pages: list[tuple[int, int]] = field(default_factory=list)
    slot: tuple[int, int] | None = None
    """decode's metadata slot for it, and its address"""
    offered: bool = False
    """the request is here"""
    reserved: bool = False
    """decode has said which pages to fill"""
    sources: list[Ticket] = field(default_factory=list)
    next_chunk: int = 0
    outstanding: dict[Handle, int] = field(default_factory=dict)
    """writes without a completion, by chunk and share"""
    outgoing: Outgoing = field(default_factory=Outgoing)
    """what the NIC still reads of its source pages"""
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
    posted_tokens: int = 0
    """of the prompt; prefill is done with those before it"""
    over: str | None = None
    """why it has ended"""

    def hold_to(self, limit: int | None) -> None:
        """A longer prompt than so many tokens is not accepted: a placeholder is computed in its place."""
        if limit is not None and len(self.prompt) > limit:
            self.prompt, self.first_page, self.placeholder = PLACEHOLDER, 0, True

    def is_of(self, request: str, attempt: int) -> bool:
        """Whether it is this attempt."""
        return (self.request, self.attempt) == (request, attempt)

    @property
    def source_pages(self) -> list[int]:
        """The numbers of its source pages, in the order of the prompt."""
        return [ticket.page for ticket in self.sources]

    @property
    def released(self) -> bool:
        """Whether it has ended."""
        return self.over is not None

    @property
    def unposted(self) -> bool:
        """Whether it has KV that was not posted."""
        return not self.released and self.posted_tokens < self.transferred

    @property
    def transferred(self) -> int:
        """Tokens whose KV travels: all but the last, which decode computes itself."""
        return len(self.prompt) - 1
