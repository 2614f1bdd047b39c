"""One attempt of one request on decode, from its arrival to its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from racelab.engine.clock import Timer
from racelab.engine.guards import Ticket
from racelab.engine.handles import Handle, Handles
from racelab.engine.pool import Fingerprint, Piece
from racelab.engine.shares import Shares
from racelab.engine.streams import Companions


@dataclass
class Live:
    """What decode knows of an attempt. The first `hits` of its `tickets` came from the prefix cache."""

    name: str
    attempt: int
    prompt: list[int]
    new_tokens: int
    pages_needed: int
    timer: Timer | None
    """the client's patience, if it has an end"""
    timeout_ms: int | None
    """its own time-out, if it has one"""
    submitted_ms: int
    stop_token: int | None
    """the token after which it is over"""
    transfer: str | None
    """the client's own id of its transfer, if it has one"""
    prefill: str
    """the instance that fills its pages"""
    keys: list[str]
    """content keys of the prompt's full pages; empty without a prefix cache"""
    tickets: list[Ticket] = field(default_factory=list)
    hits: int = 0
    handles: Handles = field(default_factory=Handles)
    chunks_missing: set[Handle] = field(default_factory=set)
    """parts of its KV of which there is no news"""
    chunks_failed: set[Handle] = field(default_factory=set)
    closing: set[Handle] = field(default_factory=set)
    """those that are sent last"""
    companions: Companions = field(default_factory=Companions)
    news_due: int = 0
    """how many more reports of chunks are expected"""
    watchdog: Timer | None = None
    registered: bool = False
    """whether news of its transfer finds it"""
    reserved: bool = False
    pulled: bool = False
    """decode reads its pages from prefill itself (racelab.engine.pull)"""
    tokens: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    """by earlier attempts: the end of its prompt"""
    drafted: list[int] = field(default_factory=list)
    """what the draft model proposed for each of them"""
    slot: int | None = None
    """its metadata slot, where decode has such"""
    first_token: int | None = None
    """what prefill wrote there"""
    committed: bool = False
    ended: str | None = None
    last_read: list[Fingerprint] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    """of what it reads; empty as long as it looks at everything for each token"""

    def next_attempt(self) -> Live:
        """The same request once more: what it has answered is a part of its prompt."""
        return Live(
            self.name,
            self.attempt + 1,
            self.prompt + self.tokens,
            self.new_tokens - len(self.tokens),
            pages_needed=0,
            timer=None,
            timeout_ms=self.timeout_ms,
            submitted_ms=self.submitted_ms,
            stop_token=self.stop_token,
            transfer=self.transfer,
            prefill=self.prefill,
            keys=[],
            answered=self.answered + self.tokens,
        )

    def note(self, chunk: Handle, ok: bool, final: bool) -> None:
        """News of a chunk, after which there is no other if it is `final`."""
        self.news_due -= 1
        self.chunks_missing.discard(chunk)
        if final:
            self.chunks_missing.clear()
        if not ok:
            self.chunks_failed.add(chunk)

    def expect(self, chunks: range, shares: Shares) -> None:
        """Its pages are to be filled chunk by chunk: what news of that is due."""
        due = {(chunk, number): share for chunk in chunks for number, share in enumerate(shares.all)}
        self.chunks_missing = {handle for handle, share in due.items() if not share.is_companion}
        self.companions = Companions({handle: str(one.stream) for handle, one in due.items() if one.is_companion})
        self.closing = {(chunks[-1], number) for number in shares.closing}
        self.handles = Handles(len(shares), set(due))
        self.news_due = len(self.chunks_missing)

    @property
    def has_the_last(self) -> bool:
        """Whether it has what is sent last, where layers are sent one by one: what was sent before has arrived before,
        as upstream engines take it."""
        return bool(self.closing) and self.closing.isdisjoint(self.chunks_missing)

    def register(self) -> None:
        """From now on news of its transfer finds it."""
        self.registered = True

    def stop_watching(self) -> None:
        """It does not wait for prefill any more."""
        if self.watchdog is not None:
            self.watchdog.cancel()

    @property
    def transferred(self) -> int:
        """Tokens whose KV decode is given: all but the last, which it computes itself."""
        return len(self.prompt) - 1
