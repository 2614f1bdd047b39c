"""One attempt of one request on decode, from its arrival to its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from racelab.engine.clock import Timer
from racelab.engine.guards import Ticket
from racelab.engine.pool import Fingerprint


@dataclass
class Live:
    """What decode knows of an attempt. The first `hits` of its `tickets` came from the prefix cache."""

    name: str
    attempt: int
    prompt: list[int]
    new_tokens: int
    pages_needed: int
    timer: Timer
    submitted_ms: int
    keys: list[str]
    """content keys of the prompt's full pages; empty without a prefix cache"""
    tickets: list[Ticket] = field(default_factory=list)
    hits: int = 0
    chunks_missing: set[int] = field(default_factory=set)
    reserved: bool = False
    tokens: list[int] = field(default_factory=list)
    committed: bool = False
    ended: str | None = None
    last_read: list[Fingerprint] = field(default_factory=list)

    @property
    def transferred(self) -> int:
        """Tokens whose KV decode is given: all but the last, which it computes itself."""
        return len(self.prompt) - 1
