"""Integrity: every byte range that is committed, published or read equals its source bytes and had arrived.

docs/specifications.md states the rule. The content key is the reader's own request and attempt
(for a page taken from the prefix cache, those of whoever published it), the page's generation, the
layer and the range; its source is what was fingerprinted when the write was posted. A difference is
attributed to whoever's bytes explain it, run by run where the page was taken apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from checkers.computed import Early, early_posts
from checkers.consumers import ARRIVED, Sight, Sources, consumptions
from checkers.late_writes import writer_of
from checkers.ledger_view import Ledger
from checkers.lives import Life
from checkers.ordinary.glance import held
from checkers.torn import torn
from racelab.evidence.blocks import Blocks
from racelab.evidence.deaths import Deaths
from racelab.evidence.events import Event
from racelab.evidence.gaps import gaps
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name, numbers, when_ms
from racelab.evidence.provenance import NOBODY, Part, Place, Provenance, in_words
from racelab.evidence.result import Finding, SpecResult, concluded
from racelab.evidence.writes import Write, Writes

SPEC = "integrity"

_VERBS = {"committed": "commits", "published": "publishes", "read": "reads"}


def check(history: History) -> SpecResult:
    """Judge integrity."""
    return held(history, SPEC) or rules(history)


def rules(history: History) -> SpecResult:
    """Judge it by the full rules, whatever the history is."""
    judge = _Judge(history)
    for event in history.derived(consumptions):
        judge.consumption(event)
    judge.conflicting_sources()
    judge.early_posts()
    judge.hits()
    judge.completeness()
    return concluded(SPEC, judge.findings, judge.coverage, judge.doubts, judge.coverage["fingerprints_compared"])


class _Judge:
    def __init__(self, history: History) -> None:
        self.history = history
        self.sources = history.derived(Sources)
        self.blocks = history.derived(Blocks)
        self.findings: list[Finding] = []
        self.gaps = gaps(history, SPEC)
        self.doubts = self.gaps + history.derived(Deaths).doubts
        self.coverage = {"fingerprints_compared": 0, "mismatches": 0, "commits": 0, "reads": 0, "hits": 0}

    def consumption(self, event: Event) -> None:
        """Every fingerprint that a consumer took, against the source bytes of its content key."""
        committing = event.kind in ARRIVED
        exact = self.sources.exact
        equal = 0
        for row in event.data["fingerprints"]:
            own = exact.get((event.request, event.attempt, *row[:5])) or self.sources.shared(event, row)
            if own is None:
                self._without_source(Sight(event, *row))
            elif row[5] != own[0].fingerprint and all(row[5] != write.fingerprint for write in own):
                self._mismatch(Sight(event, *row), own)
            else:
                equal += 1
                if committing and not (own[0].landing_before(event, self.history.causality) and own[0].torn is None):
                    self._arrived(Sight(event, *row), own)
        self.coverage["fingerprints_compared"] += equal

    def _mismatch(self, sight: Sight, own: list[Write]) -> None:
        self.coverage["fingerprints_compared"] += 1
        self.coverage["mismatches"] += 1
        parts = self._parts(sight)
        writer, explained = self._attribute(sight, parts)
        reader = attempt_name(sight.event.request, sight.event.attempt)
        verb = _VERBS[sight.event.kind]
        what = (
            f"{reader} {verb} page {sight.page} {self.blocks.name(sight.layer)} bytes {sight.start}-{sight.end - 1} "
            f"with fingerprint {sight.fingerprint}, its source had {own[0].fingerprint}: {explained}"
        )
        if any(part.source == "unknown" for part in parts):
            what += f"; write {own[0].id} of {writer_of(own[0])} was to bring them"
        if self.gaps:
            what += f" (as far as is known: {self.gaps[0]})"
        what += torn(sight, self.sources, self.blocks)
        wrong = self.history.derived(Provenance).differing(_place(sight), own[0].fingerprint)
        self._found(sight, what, own[0], writer, parts, wrong)

    def _without_source(self, sight: Sight) -> None:
        reader = attempt_name(sight.event.request, sight.event.attempt)
        place = f"page {sight.page} gen {sight.gen} {self.blocks.name(sight.layer)} bytes {sight.start}-{sight.end - 1}"
        if self.gaps or self.sources.of(sight):
            self.doubts.append(f"{reader} takes {place}, a range that no single posted write has")
            return
        parts = self._parts(sight)
        writer, explained = self._attribute(sight, parts)
        self._found(sight, f"{reader} takes {place}, which was never written for it: {explained}", None, writer, parts)

    def _arrived(self, sight: Sight, own: list[Write]) -> None:
        """What is committed must have landed before: the same bytes may be there by chance or by an old attempt."""
        causality = self.history.causality
        if any(write.torn is None and write.landing_before(sight.event, causality) for write in own):
            return
        absent = [
            write
            for write in own
            if write.fate == "lost"
            or (write.fate == "held" and not self.gaps)
            or write.torn is not None
            or write.landing_after(sight.event, causality)
        ]
        reader = attempt_name(sight.event.request, sight.event.attempt)
        place = f"page {sight.page} {self.blocks.name(sight.layer)}"
        if len(absent) == len(own):
            self._found(
                sight,
                f"{reader} {_VERBS[sight.event.kind]} {place} before its bytes arrived (write {own[0].id})",
                own[0],
                None,
            )

    def _parts(self, sight: Sight) -> list[Part]:
        return self.history.derived(Provenance).parts(_place(sight))

    def _attribute(self, sight: Sight, parts: list[Part]) -> tuple[str | None, str]:
        """Whose bytes explain what was seen: by content first, then by who landed there."""
        size = sight.end - sight.start
        for write in self._posted[sight.fingerprint]:
            if write.bytes == size:
                return writer_of(write), f"these are the bytes of {writer_of(write)} (write {write.id})"
        if parts:
            reader = (sight.event.request, sight.event.attempt)
            foreign = {part.writer for part in parts if (part.request, part.attempt) != reader} - {None}
            return foreign.pop() if len(foreign) == 1 else None, in_words(parts)
        life = self.history.derived(Ledger).life(sight.event.instance, sight.page, sight.gen)
        for write in self._placed[sight.page, sight.layer]:
            if life is not None and self._landed_within(write, life, sight):
                return writer_of(write), f"{writer_of(write)} landed there (write {write.id})"
        return None, NOBODY

    def _landed_within(self, write: Write, life: Life, sight: Sight) -> bool:
        """Whether somebody else's write landed there while the page was the reader's, before it looked."""
        posted, reader, causality = write.posted, sight.event, self.history.causality
        if (posted.request, posted.attempt) == (reader.request, reader.attempt) or write.fate != "landed":
            return False
        return write.landing_before(reader, causality) and not write.landing_before(life.born, causality)

    @cached_property
    def _posted(self) -> dict[str, list[Write]]:
        found: dict[str, list[Write]] = defaultdict(list)
        for write in self.history.derived(Writes):
            found[write.fingerprint].append(write)
        return found

    @cached_property
    def _placed(self) -> dict[tuple[int | None, int], list[Write]]:
        found: dict[tuple[int | None, int], list[Write]] = defaultdict(list)
        for write in self.history.derived(Writes):
            found[write.posted.page, write.layer].append(write)
        return found

    def conflicting_sources(self) -> None:
        """Two posts of one content key must bring the same bytes; else a source page changed in between."""
        for writes in self.sources.exact.values():
            for write in writes[1:]:
                if write.fingerprint != writes[0].fingerprint:
                    self._conflict(writes[0], write)

    def _conflict(self, first: Write, write: Write) -> None:
        posted = write.posted
        self.findings.append(
            Finding(
                spec=SPEC,
                grade="corrupt",
                instance=posted.instance,
                page=posted.page,
                gen=posted.gen,
                layer=write.layer,
                writer=writer_of(write),
                bytes=(0, write.bytes),
                when=when_ms(self.history, posted),
                what=f"{writer_of(write)} posts other bytes for the same place: write {first.id} and write {write.id}",
                events=numbers(first.posted, posted),
            )
        )

    def early_posts(self) -> None:
        """A write takes its bytes once they have been computed."""
        for early in early_posts(self.history):
            self._early(early)

    def _early(self, early: Early) -> None:
        write, posted, taken = early.write, early.write.posted, early.taken
        what = (
            f"write {write.id} of {writer_of(write)} takes {self.blocks.name(write.layer)} of source page "
            f"{posted.data['source_page']} with fingerprint {write.fingerprint}, before the forward of chunk "
            f"{posted.data['chunk']} has run: what was computed there had {early.fingerprint}"
        )
        if taken is not None:
            what += f"; {attempt_name(taken.request, taken.attempt)} {_VERBS[taken.kind]} it"
        self.findings.append(
            Finding(
                spec=SPEC,
                grade="corrupt",
                instance=taken.instance if taken is not None else posted.instance,
                page=posted.page,
                gen=posted.gen,
                layer=write.layer,
                writer=writer_of(write),
                bytes=(0, write.bytes),
                when=when_ms(self.history, posted),
                what=what,
                events=numbers(posted, early.computed, taken),
            )
        )

    def hits(self) -> None:
        """Who takes a page from the prefix cache takes it by the key under which it was published."""
        published = {
            (event.instance, page, gen): (key, event)
            for event in self.history.by_kind["published"]
            for page, gen, key in event.data["keys"]
        }
        for hit in self.history.by_kind["cache-hit"]:
            self.coverage["hits"] += 1
            key, event = published.get((hit.instance, hit.page, hit.gen), (None, None))
            if key == hit.data["key"]:
                continue
            if event is None and self.gaps:
                self.doubts.append(f"nothing tells what page {hit.page} gen {hit.gen} was published as")
                continue
            held = f"was published as {key}" if event is not None else "was never published"
            self._wrong_hit(hit, event, f"takes page {hit.page} gen {hit.gen} as {hit.data['key']}, which {held}")

    def _wrong_hit(self, hit: Event, published: Event | None, what: str) -> None:
        life = self.history.derived(Ledger).life(hit.instance, hit.page, hit.gen)
        self.findings.append(
            Finding(
                spec=SPEC,
                grade="consumed",
                instance=hit.instance,
                page=hit.page,
                gen=hit.gen,
                owner=life.owner if life is not None else None,
                when=when_ms(self.history, hit),
                what=f"{attempt_name(hit.request, hit.attempt)} {what}",
                events=numbers(published, hit),
            )
        )

    def completeness(self) -> None:
        """Every finished request must have shown all that it was granted or found, when committed and when read."""
        granted: dict[tuple[str, str | None, int | None], dict[tuple[int | None, int | None], int]]
        granted = defaultdict(dict)
        for event in self.history.of("granted", "cache-hit", "requeued"):
            pages = granted[event.instance, event.request, event.attempt]
            if event.kind == "requeued":
                pages.clear()
            else:
                pages[event.page, event.gen] = int(event.data["bytes"])
        shown: dict[str, dict[tuple[str | None, int | None], Event]] = {"committed": {}, "read": {}}
        for kind, count in (("committed", "commits"), ("read", "reads")):
            for event in self.history.of(kind, "requeued"):
                if event.kind == "requeued":  # what it had is not what it finishes with
                    shown[kind].pop((event.request, event.attempt), None)
                    continue
                self.coverage[count] += 1
                shown[kind].setdefault((event.request, event.attempt), event)
        for finished in self.history.by_kind["finished"]:
            attempt = (finished.request, finished.attempt)
            for kind, events in shown.items():
                pages = granted[finished.instance, finished.request, finished.attempt]
                missing = _missing(events.get(attempt), pages, self.blocks, finished.instance)
                if missing:
                    self.doubts.append(f"{attempt_name(*attempt)} finished, and {missing} was never {kind}")

    def _found(
        self,
        sight: Sight,
        what: str,
        source: Write | None,
        writer: str | None,
        parts: Sequence[Part] = (),
        wrong: tuple[int, int] | None = None,
    ) -> None:
        life = self.history.derived(Ledger).life(sight.event.instance, sight.page, sight.gen)
        self.findings.append(
            Finding(
                spec=SPEC,
                grade="corrupt",
                instance=sight.event.instance,
                page=sight.page,
                gen=sight.gen,
                layer=sight.layer,
                owner=life.owner if life is not None else None,
                writer=writer,
                bytes=wrong or (sight.start, sight.end),
                when=when_ms(self.history, sight.event),
                what=what,
                events=numbers(source.posted if source is not None else None, sight.event),
                provenance=list(parts),
            )
        )


def _place(sight: Sight) -> Place:
    return Place(sight.event, sight.page, sight.layer, sight.start, sight.end, sight.fingerprint)


def _missing(
    event: Event | None, granted: dict[tuple[int | None, int | None], int], blocks: Blocks, instance: str
) -> str | None:
    """What of the granted pages the event does not show, in words."""
    if event is None:
        return "anything of it"
    seen = {tuple(row[:5]) for row in event.data["fingerprints"]}
    for (page, gen), granted_bytes in granted.items():
        for block in range(blocks.count(instance)):
            size = blocks.bytes(instance, block, granted_bytes)
            if size and (page, gen, block, 0, size) not in seen:
                return f"page {page} gen {gen} {blocks.name(block)} bytes 0-{size - 1}"
    return None
