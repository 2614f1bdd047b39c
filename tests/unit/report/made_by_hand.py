"""Two histories written by hand, event by event: the late write under `eager` and under `ledger`."""

from __future__ import annotations

from typing import Any

from racelab.evidence.events import Event
from racelab.evidence.fingerprint import fingerprint
from racelab.evidence.history import Header, History
from racelab.scenario import Scenario, loads

LAYER_BYTES = 65_536
BASE = 0x7F00_0000_0000
SCENARIO = """
scenario: late-write-after-timeout
about: A write of a request that timed out lands on pages that the next request owns.
spec: isolation
guard: drain-before-free
victim: r2
requests:
  r1: {}
  r2: {}
steps:
- hold: {id: w1, write: {request: r1}, count: 4}
- submit: r1
- await: {event: held, hold: w1}
- advance: 10000
- await: {event: timed-out, request: r1}
- await: {event: page-free, request: r1, count: 2}
- hold: {id: n2, message: {type: written, request: r2}, count: 2}
- submit: r2
- await: {event: admitted, request: r2}
- expect: {claim: reuses, request: r2, of: r1}
- await: {event: held, hold: n2}
- release: w1
- release: n2
- await: {event: finished, request: r2}
expected: {eager: reproduced, ledger: prevented}
"""
SOLO = {"r1": [11, 12, 13, 14], "r2": [31, 90, 5, 7]}


def scenario() -> Scenario:
    """The schedule of both runs."""
    return loads(SCENARIO)


class Tape:
    """Records events by hand: one clock, a number an instance, causal edges where they are given."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now_us = 1_700_000_000_000_000
        self.virtual_ms = 0
        self._seqs: dict[str, int] = {}
        self._messages = 0
        self._steps = 0

    def at(self, instance: str, kind: str, request: str | None = None, **given: Any) -> Event:
        """One event, 130 us after the last one; `after` is the event that it heard of."""
        self.now_us += given.pop("us", 130)
        after = given.pop("after", None)
        named = {key: given.pop(key) for key in ("attempt", "page", "gen") if key in given}
        if request is not None:
            named.setdefault("attempt", 1)
        if "from_" in given:
            given["from"] = given.pop("from_")
        seq = self._seqs[instance] = self._seqs.get(instance, 0) + 1
        event = Event(
            kind=kind,
            instance=instance,
            seq=seq,
            mono_ns=self.now_us * 1000,
            hlc=self.now_us << 10,
            clock_ms=self.virtual_ms,
            request=request,
            after={after.instance: after.seq} if after else {},
            data=given,
            **named,
        )
        self.events.append(event)
        return event

    def step(self, text: str) -> Event:
        """The next schedule step is issued."""
        self._steps += 1
        return self.at("conductor", "step", n=self._steps, verb=text.split()[0], text=text)

    def done(self, why: str, by: Event) -> Event:
        """The step is over, because of `by`."""
        return self.at("conductor", "step-done", after=by, n=self._steps, why=why, by=[by.instance, by.seq])

    def do(self, text: str, why: str = "done") -> None:
        """A step that needs nothing but itself."""
        step = self.step(text)
        self.done(why, step)

    def send(self, kind: str, sender: str, to: str, request: str, **more: Any) -> tuple[Event, str]:
        """A control message leaves; its receipt is another call."""
        self._messages += 1
        identity = f"m{self._messages}"
        return self.at(sender, "sent", request, id=identity, type=kind, to=to, **more), identity

    def message(self, kind: str, sender: str, to: str, request: str) -> Event:
        """A control message that nothing holds."""
        sent, identity = self.send(kind, sender, to, request)
        return self.at(to, "received", request, after=sent, id=identity, type=kind, **{"from": sender})

    def post(self, request: str, page: int, gen: int, chunk: int, layer: int, lane: str) -> Event:
        """A write about to be submitted."""
        return self.at(
            "prefill",
            "posted",
            request,
            page=page,
            gen=gen,
            write=f"{request}.1.{chunk}.{layer}",
            batch=f"{request}-b{chunk}",
            lane=lane,
            layer=layer,
            chunk=chunk,
            address=BASE + layer * (1 << 20) + page * LAYER_BYTES,
            bytes=LAYER_BYTES,
            source_page=chunk,
            fingerprint=fingerprint(f"{request} {chunk} {layer}".encode()),
        )


def _start(tape: Tape, guards: list[str]) -> None:
    tape.at("conductor", "run-started", run="1", seed=7, guards=guards)
    tape.at("decode", "pool", pages=6, page_bytes=LAYER_BYTES * 2, layers=2, free=[0, 1, 2, 3, 4, 5])
    tape.at("conductor", "phase", phase="schedule")
    tape.step("hold w1: 4 write(s) with request r1")
    armed = tape.at("wire", "armed", hold="w1", gate="wire", match={"request": "r1"}, count=4)
    tape.done("armed", armed)


def _take_pages(tape: Tape, request: str, pages: list[int], gen: int, step: Event) -> None:
    tape.at("decode", "submitted", request, after=step, prompt_tokens=25, new_tokens=4)
    for page in pages:
        tape.at("decode", "page-private", request, page=page, gen=gen, from_="FREE", us=20)
    tape.at("decode", "admitted", request, tickets=[[page, gen] for page in pages])
    for page in pages:
        tape.at("decode", "granted", request, page=page, gen=gen, to="prefill", bytes=LAYER_BYTES * 2, us=20)
    tape.message("reserve", "decode", "prefill", request)
    tape.at("prefill", "accepted", request, prompt_tokens=25, tickets=[[page, gen] for page in pages])


def _held_writes(tape: Tape) -> list[Event]:
    """Prefill posts four writes of r1; the wire gate stops each."""
    step = tape.step("submit r1")
    _take_pages(tape, "r1", [5, 4], 1, step)
    tape.done("decode took it as attempt 1", step)
    tape.step("await held: everything that w1 asked for")
    held = []
    for chunk, page in enumerate([5, 4]):
        for layer in range(2):
            posted = tape.post("r1", page, 1, chunk, layer, "gate")
            held.append(
                tape.at(
                    "wire",
                    "held",
                    "r1",
                    page=page,
                    gen=1,
                    after=posted,
                    hold="w1",
                    what=posted.data["write"],
                    address=posted.data["address"],
                    bytes=LAYER_BYTES,
                )
            )
    tape.done("all 4 writes of w1 are held", held[-1])
    return held


def _await_admitted(tape: Tape) -> None:
    admitted = next(event for event in tape.events if event.kind == "admitted" and event.request == "r2")
    tape.step("await admitted request r2")
    tape.done("decode reported admitted r2", admitted)


def _time_out(tape: Tape) -> Event:
    tape.step("advance the clock by 10,000 ms")
    tape.virtual_ms = 10_000
    timed_out = tape.at("decode", "timed-out", "r1", waited_ms=10_000)
    tape.message("abort", "decode", "prefill", "r1")
    tape.done("every clock moved", timed_out)
    tape.step("await timed-out request r1")
    tape.done("r1 timed out", timed_out)
    return timed_out


def _direct_writes(tape: Tape, request: str, pages: list[int], gen: int) -> list[tuple[Event, str]]:
    """Four writes that pass no gate, and the two messages that say so."""
    messages = []
    for chunk, page in enumerate(pages):
        writes = [tape.post(request, page, gen, chunk, layer, "direct").data["write"] for layer in range(2)]
        tape.at("prefill", "completed", request, batch=f"{request}-b{chunk}", writes=writes, status="ok", code=0)
        messages.append(tape.send("written", "prefill", "decode", request, chunk=chunk))
    return messages


def _land(tape: Tape, held: list[Event]) -> list[Event]:
    landed = []
    for event in held:
        common = {key: event.data[key] for key in ("hold", "what", "address", "bytes")}
        let_go = tape.at("wire", "released", "r1", page=event.page, gen=event.gen, us=40, **common)
        landed.append(
            tape.at("wire", "landed", "r1", page=event.page, gen=event.gen, after=let_go, us=90, code=0, **common)
        )
        where = {"layer": 0, "start": 0, "end": LAYER_BYTES, "fingerprint": "00" * 8, "why": "landed"}
        tape.at("decode", "look", page=event.page, gen=event.gen, write=event.data["what"], us=30, **where)
    tape.at("prefill", "completed", "r1", batch="r1-b0", writes=[e.data["what"] for e in held], status="ok", code=0)
    return landed


def _finish(tape: Tape, request: str, tokens: list[int]) -> Event:
    tape.at("decode", "committed", request, fingerprints={})
    for token in range(len(tokens)):
        tape.at("decode", "read", request, token=token, fingerprints={}, us=60)
    return tape.at("decode", "finished", request, tokens=tokens)


def _close(tape: Tape, probe_pages: list[int], gen: int) -> None:
    tape.at("conductor", "phase", phase="release")
    tape.at("conductor", "phase", phase="drain")
    tape.at("decode", "quiesced", pool=6, states={"FREE": 6}, leftovers={})
    tape.at("conductor", "phase", phase="probe")
    _take_pages(tape, "probe", probe_pages, gen, tape.events[-1])
    for _, identity in _direct_writes(tape, "probe", probe_pages, gen):
        tape.at("decode", "received", "probe", id=identity, type="written", **{"from": "prefill"})
    _finish(tape, "probe", [1, 2, 3, 4])


def eager() -> tuple[History, dict[str, Any]]:
    """r1's writes land on r2's pages, and r2 answers wrongly."""
    tape = Tape()
    _start(tape, [])
    held = _held_writes(tape)
    _time_out(tape)
    tape.step("await page-free request r1, count 2")
    for page in (5, 4):
        free = tape.at("decode", "page-free", "r1", page=page, gen=1, from_="PRIVATE", why="timed out")
    tape.done("page-free of r1 twice", free)
    tape.step("hold n2: 2 message(s) with type written, request r2")
    tape.done("armed", tape.at("bus", "armed", hold="n2", gate="bus", match={"type": "written"}, count=2))
    step = tape.step("submit r2")
    _take_pages(tape, "r2", [4, 5], 2, step)
    tape.done("decode took it as attempt 1", step)
    _await_admitted(tape)
    tape.do("expect that r2 holds a page that r1 held", "r2 has page(s) [4, 5] of r1")
    tape.step("await held: everything that n2 asked for")
    messages = []
    for sent, identity in _direct_writes(tape, "r2", [4, 5], 2):
        stopped = tape.at("bus", "held", "r2", after=sent, hold="n2", what=identity, type="written")
        messages.append((identity, stopped))
    tape.done("bus reported held r2", stopped)
    tape.step("release w1")
    landed = _land(tape, held)
    tape.done("wire reported landed r1 page 4 gen 1", landed[-1])
    tape.step("release n2")
    for identity, _ in messages:
        tape.at("bus", "released", "r2", hold="n2", what=identity, type="written")
        delivered = tape.at("bus", "delivered", "r2", hold="n2", what=identity, type="written")
        tape.at("decode", "received", "r2", after=delivered, id=identity, type="written", **{"from": "prefill"})
    tape.done("bus reported delivered r2", delivered)
    tape.step("await finished request r2")
    finished = _finish(tape, "r2", [31, 87, 12, 4])
    tape.done("r2 finished", finished)
    for page in (4, 5):
        tape.at("decode", "page-free", "r2", page=page, gen=2, from_="PRIVATE", why="finished")
    _close(tape, [5, 4], 3)
    return _history(tape, "eager", []), _eager_verdict(tape, landed)


def ledger() -> tuple[History, dict[str, Any]]:
    """The guard keeps r1's pages; the late writes land where nobody reads."""
    tape = Tape()
    guards = ["drain-before-free", "quarantine-on-expiry", "control-carries-generation"]
    _start(tape, guards)
    held = _held_writes(tape)
    _time_out(tape)
    step = tape.step("await page-free request r1, count 2")
    why = "2 writes under this grant have no stop evidence"
    for page in (5, 4):
        facts = {"guard": "drain-before-free", "refuses": "page-free", "why": why}
        refused = tape.at("decode", "refused", "r1", page=page, gen=1, **facts)
        tape.at("decode", "page-draining", "r1", page=page, gen=1, from_="PRIVATE", why="grants outstanding")
    by = [refused.instance, refused.seq]
    tape.at("conductor", "blocked", after=refused, n=step.data["n"], guard="drain-before-free", by=by)
    tape.at("conductor", "phase", phase="aftermath")
    tape.done(why, refused)
    tape.step("hold n2: 2 message(s) with type written, request r2")
    tape.done("the gate is armed", tape.at("bus", "armed", hold="n2", gate="bus", match={"type": "written"}, count=2))
    step = tape.step("submit r2")
    _take_pages(tape, "r2", [3, 2], 1, step)
    tape.done("decode took it as attempt 1", step)
    _await_admitted(tape)
    tape.step("expect that r2 holds a page that r1 held")
    tape.done("r1's pages were kept", refused)
    tape.step("await held: everything that n2 asked for")
    messages = []
    for sent, identity in _direct_writes(tape, "r2", [3, 2], 1):
        stopped = tape.at("bus", "held", "r2", after=sent, hold="n2", what=identity, type="written")
        messages.append(identity)
    tape.done("bus reported held r2", stopped)
    tape.step("release w1")
    landed = _land(tape, held)
    tape.done("wire reported landed r1 page 4 gen 1", landed[-1])
    ack = tape.message("abort-ack", "prefill", "decode", "r1")
    for page in (5, 4):
        tape.at("decode", "grant-closed", "r1", page=page, gen=1, evidence="abort-ack, clean", by=ack.data["id"])
        tape.at("decode", "page-free", "r1", page=page, gen=1, from_="DRAINING", why="stop evidence")
    tape.step("release n2")
    for identity in messages:
        tape.at("bus", "released", "r2", hold="n2", what=identity, type="written")
        delivered = tape.at("bus", "delivered", "r2", hold="n2", what=identity, type="written")
        tape.at("decode", "received", "r2", after=delivered, id=identity, type="written", **{"from": "prefill"})
    tape.done("bus reported delivered r2", delivered)
    tape.step("await finished request r2")
    tape.done("r2 finished", _finish(tape, "r2", SOLO["r2"]))
    for page in (3, 2):
        tape.at("decode", "page-free", "r2", page=page, gen=1, from_="PRIVATE", why="finished")
    _close(tape, [2, 3], 2)
    return _history(tape, "ledger", guards), _ledger_verdict()


def _history(tape: Tape, policy: str, guards: list[str]) -> History:
    header = Header(
        scenario=scenario(), target="reference", policy=policy, guards=guards, seed=7, solo=SOLO, expected=None
    )
    return History(header, tape.events)


def _verdict(**given: Any) -> dict[str, Any]:
    return {
        "scenario": "late-write-after-timeout",
        "target": "reference",
        "without": [],
        "cluster": "local",
        "transport": "tcp",
        "seed": 7,
        "runs": 1,
        "label": "default-timers",
        "injections": [
            {
                "id": "w1",
                "gate": "wire",
                "stage": "on-the-wire",
                "action": "hold",
                "payload": "at-hold",
                "state": "confirmed",
                "requested": "4 writes of r1, released after step 10",
                "achieved": "4 writes of r1 held, all landed after page-private of r2",
            }
        ],
        "checks": {
            "fingerprints_compared": 24,
            "mismatches": 0,
            "ledger_violations": 0,
            "events": 120,
            "events_lost": 0,
        },
        "blocked_at": None,
        "run_dir": "results/runs/late-write-after-timeout/latest",
    } | given


def _eager_verdict(tape: Tape, landed: list[Event]) -> dict[str, Any]:
    start = tape.events[0].mono_ns
    evidence = [
        {
            "spec": "isolation",
            "grade": "reached",
            "instance": "decode",
            "page": event.page,
            "gen": 2,
            "layer": index % 2,
            "owner": "r2 attempt 1 gen 2",
            "writer": "r1 attempt 1 gen 1",
            "bytes": [0, LAYER_BYTES],
            "when": (event.mono_ns - start) / 1e6,
            "what": "a write of r1 landed after its generation ended",
            "events": [f"wire:{event.seq}"],
        }
        for index, event in enumerate(landed)
    ]
    specs = {"isolation": "violated", "integrity": "violated", "finality": "held", "conservation": "violated"}
    tokens = [{"request": "r2", "expected": SOLO["r2"], "got": [31, 87, 12, 4], "first_difference": 1}]
    return _verdict(
        policy="eager", verdict="reproduced", expected="reproduced", specs=specs, evidence=evidence, tokens=tokens
    )


def _ledger_verdict() -> dict[str, Any]:
    specs = {"isolation": "held", "integrity": "held", "finality": "held", "conservation": "held"}
    tokens = [{"request": "r2", "expected": SOLO["r2"], "got": SOLO["r2"], "first_difference": None}]
    return _verdict(
        policy="ledger",
        verdict="prevented",
        expected="prevented",
        specs=specs,
        evidence=[],
        tokens=tokens,
        blocked_at={"step": 6, "guard": "drain-before-free"},
        coverage={"isolation": {"landings": 8, "pages": 6, "layers": 2}},
    )
