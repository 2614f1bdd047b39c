"""Isolation: no access under a grant takes effect after its generation ends, and no control message
changes another attempt's state.

docs/specifications.md states the rule. A landing is compared with the end of a generation by
happened-before alone; what cannot be ordered is unknown. Three grades: `exposed` (the generation
ended while the grant was outstanding), `reached` (a write landed after the end, or a message of
another attempt was obeyed), `consumed` (what it left there was read or published).
"""

from __future__ import annotations

from checkers.consumers import consumptions
from checkers.control import trespasses
from checkers.granted_writes import NIC
from checkers.late_writes import Late, LateWrites, writer_of
from checkers.ledger_view import Ledger
from checkers.lives import Grant
from checkers.ordinary.glance import held
from checkers.slots import slot_trespasses
from checkers.source_reads import SourceReads
from racelab.evidence.deaths import Deaths
from racelab.evidence.events import Event
from racelab.evidence.gaps import gaps
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name, number, numbers, when_ms
from racelab.evidence.result import Finding, SpecResult, concluded
from racelab.evidence.writes import Writes

SPEC = "isolation"

_ORDER = {"consumed": 0, "reached": 1, "exposed": 2}


def check(history: History) -> SpecResult:
    """Judge isolation."""
    return held(history, SPEC) or rules(history)


def rules(history: History) -> SpecResult:
    """Judge it by the full rules, whatever the history is."""
    late = LateWrites(history)
    findings = slot_trespasses(history) + [_landing(history, item) for item in late.found]
    findings += _stale_reads(history)
    findings += _foreign_sources(history)
    reads = history.derived(SourceReads)
    findings += reads.findings()
    findings += trespasses(history)
    told = {id(item.ended) for item in late.found} | {id(item.ended) for item in reads.found}
    findings += _exposures(history, told)
    findings.sort(key=lambda finding: _ORDER[finding.grade])
    coverage = {
        "writes": len(history.derived(Writes)),
        "messages": len(history.by_kind["received"]),
        "generations": len(history.derived(Ledger).lives),
    }
    return concluded(SPEC, findings, coverage, _doubts(history) + late.doubts + reads.doubts, coverage["writes"])


def _doubts(history: History) -> list[str]:
    doubts = gaps(history, SPEC) + history.derived(Deaths).doubts
    for event in history.by_kind["counted"]:
        unannounced = event.data["counts"].get("unannounced", 0)
        if unannounced:
            doubts.append(f"the {event.data['gate']} gate saw {unannounced} write(s) that nobody had announced")
    return doubts


def _landing(history: History, late: Late) -> Finding:
    """The story of a write that landed where it had no right to any more."""
    write, span = late.write, late.span
    owner = late.owners[0] if len(late.owners) == 1 else None
    sight = late.readers[0] if late.readers else None
    story = f"{span.end - span.start:,} bytes of {attempt_name(write.posted.request, write.posted.attempt)} {late.why}"
    if late.ended is not None:
        story += _apart(history, write.posted, late.ended)
    if owner is not None:
        story += f"; the page belongs to {owner.owner}"
    elif late.owners:
        story += f"; the page belongs to one of {', '.join(life.owner for life in late.owners)}"
    else:
        story += "; the page is free"
    if sight is not None:
        story += f", and {attempt_name(sight.event.request, sight.event.attempt)} took the bytes ({sight.event.kind})"
    shown = numbers(write.posted, late.ended, owner.born if owner else None, write.released, *write.uppers[:1])
    return Finding(
        spec=SPEC,
        grade="consumed" if sight is not None else "reached",
        instance=span.instance,
        page=span.page,
        gen=owner.gen if owner is not None else write.posted.gen,
        layer=span.layer,
        owner=owner.owner if owner is not None else None,
        writer=writer_of(write),
        op="read" if write.is_read else "write",
        bytes=(span.start, span.end),
        when=when_ms(history, (write.uppers or [write.lower])[0]),
        what=story,
        events=shown + (numbers(sight.event) if sight is not None else []),
    )


def _apart(history: History, posted: Event, ended: Event) -> str:
    """`; posted 12.3 ms before that`, if the two are ordered."""
    a, b = when_ms(history, posted) or 0.0, when_ms(history, ended) or 0.0
    if history.causality.before(posted, ended):
        return f" (posted {b - a:,.1f} ms before that)"
    return f" (posted {a - b:,.1f} ms after that)" if history.causality.before(ended, posted) else ""


def _stale_reads(history: History) -> list[Finding]:
    """Reads of a page that is not, or not any more, the reader's, by ownership or by a reference."""
    found: dict[tuple[int, int, int], Finding] = {}
    if gaps(history, SPEC):
        return []
    ledger = history.derived(Ledger)
    for event in history.derived(consumptions):
        for page, gen, layer, start, end, _ in event.data["fingerprints"]:
            life = ledger.lives.get((event.instance, page, gen))
            if life is not None and (life.ended is None or life.ended.seq > event.seq) and life.held_by(event):
                continue
            if (id(event), page, gen) in found:
                continue
            now = ledger.at(event.instance, page, event.seq)
            reader = attempt_name(event.request, event.attempt)
            whose = f"belongs to {now.owner}" if now is not None else "is free"
            found[id(event), page, gen] = Finding(
                spec=SPEC,
                grade="consumed",
                instance=event.instance,
                page=page,
                gen=gen,
                layer=layer,
                owner=now.owner if now is not None else None,
                bytes=(start, end),
                when=when_ms(history, event),
                what=f"{reader} takes page {page} gen {gen} ({event.kind}) while the page {whose}",
                events=numbers(life.born if life else None, life.ended if life else None, event),
            )
    return list(found.values())


def _foreign_sources(history: History) -> list[Finding]:
    """Writes whose source page was not the writer's when they were posted."""
    findings: list[Finding] = []
    if gaps(history, SPEC):
        return findings
    ledger = history.derived(Ledger)
    for write in history.derived(Writes):
        if write.is_read:
            continue
        posted = write.posted
        page = posted.data["source_page"]
        life = ledger.at(posted.instance, page, posted.seq)
        if life is not None and life.owned_by(posted):
            continue
        whose = f"belongs to {life.owner}" if life is not None else "is free"
        findings.append(
            Finding(
                spec=SPEC,
                grade="reached",
                instance=posted.instance,
                page=page,
                gen=life.gen if life is not None else None,
                layer=write.layer,
                owner=life.owner if life is not None else None,
                writer=writer_of(write),
                when=when_ms(history, posted),
                what=f"write {write.id} of {writer_of(write)} reads source page {page}, which {whose}",
                events=[number(posted)],
            )
        )
    return findings


def _reach(grant: Grant, pulls: bool) -> str:
    if pulls:
        own = grant.opened.data["to"] == NIC
        return f"a read of {grant.writer} could still land in it" if own else f"{grant.writer} could still read it"
    if grant.opened.data["to"] == NIC:
        return f"a write of {grant.writer} could still read it"
    return f"{grant.writer} could still write to it"


def _exposures(history: History, told: set[int]) -> list[Finding]:
    """Generations that ended while somebody could still write there, and nobody is seen to have done so."""
    findings: list[Finding] = []
    if gaps(history, SPEC):
        return findings
    pulls = history.header.scenario.lab.transfer == "pull"
    for life in history.derived(Ledger):
        if life.ended is None or life.ended.kind != "page-free" or id(life.ended) in told:
            continue
        for grant in life.open_at_end():
            findings.append(
                Finding(
                    spec=SPEC,
                    grade="exposed",
                    instance=life.instance,
                    page=life.page,
                    gen=life.gen,
                    owner=life.owner,
                    writer=grant.writer,
                    when=when_ms(history, life.ended),
                    what=f"page {life.page} gen {life.gen} ended while {_reach(grant, pulls)}",
                    events=numbers(grant.opened, life.ended),
                )
            )
    return findings
