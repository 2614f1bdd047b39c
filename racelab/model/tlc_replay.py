"""Replays histories through PdLedger.tla with TLC: a second opinion, by another interpreter of another text.

The actions that the executable specification took become a log inside a generated module, with a
cursor over it; TLC must take the same actions, and come to the same page states. The log is
inline, for TLC 2.15 reads no files. Histories of equal configurations share one run of TLC.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from racelab.evidence.events import STATE_AFTER
from racelab.model import tla, tlc
from racelab.model.replay import Replay
from racelab.model.spec.actions import Action
from racelab.model.spec.state import Config, Effect

_SAID = re.compile(r'<<"(at|accepted)", (\d+)(?:, (\d+))?>>')

_BODY = """
VARIABLES run, cursor
AnyGen == -1      \\* of a page that a stale ticket frees
Is(m, e) == m.type = e.type /\\ m.request = e.r /\\ m.attempt = e.a /\\ m.chunk = e.chunk /\\ m.rank = e.rank
IsOf(w, e) == w.request = e.r /\\ w.attempt = e.a /\\ <<w.index, w.layer>> \\in e.writes
Replays(e) ==
  CASE e.name = "Submit" -> Submit(e.r)
    [] e.name = "Join" -> Join(e.r, e.a)
    [] e.name = "Evict" -> Evict(e.page)
    [] e.name = "Unjoin" -> Unjoin(e.r, e.a)
    [] e.name = "Admit" -> Admit(e.r, e.a)
    [] e.name = "Receive" -> \\E m \\in net : Is(m, e) /\\ Receive(m)
    [] e.name = "ReceiveCopy" -> \\E m \\in net : Is(m, e) /\\ ReceiveCopy(m)
    [] e.name = "Lose" -> \\E m \\in net : Is(m, e) /\\ Lose(m)
    [] e.name = "Read" -> attempts[e.r][e.a].running /\\ UNCHANGED vars
    [] e.name = "Finish" -> Finish(e.r, e.a)
    [] e.name = "TimeOut" -> TimeOut(e.r, e.a)
    [] e.name = "Abort" -> Abort(e.r, e.a)
    [] e.name = "GiveUp" -> GiveUp(e.r, e.a)
    [] e.name = "GiveUpSource" -> GiveUpSource(e.r, e.a)
    [] e.name = "Orphan" -> Orphan(e.r, e.a)
    [] e.name = "Fill" -> Fill(e.r, e.a)
    [] e.name = "Register" -> Register(e.r, e.a)
    [] e.name = "Accept" -> Accept(e.r, e.a)
    [] e.name = "Compute" -> Compute(e.r, e.a, e.chunk)
    [] e.name = "Post" -> Post(e.r, e.a, e.chunk)
    [] e.name = "Complete" -> Complete(e.r, e.a, e.writes, e.ok)
    [] e.name = "Land" -> \\E w \\in wire : IsOf(w, e) /\\ Land(w)
    [] e.name = "Vanish" -> \\E w \\in wire : IsOf(w, e) /\\ Vanish(w)
    [] e.name = "Restart" -> Restart
    [] e.name = "LandSlot" -> \\E w \\in wire : IsOf(w, e) /\\ LandSlot(w)
    [] e.name = "Request" -> Request(e.r)
    [] e.name = "Present" -> Present(e.r, e.of)
    [] e.name = "Refer" -> Refer(e.r, e.a)
    [] e.name = "Forward" -> Forward(e.r, e.a)
    [] e.name = "Lapse" -> Lapse(e.r, e.a)
    [] e.name = "TimeOutAway" -> TimeOutAway(e.r, e.a)
    [] e.name = "AbortAway" -> AbortAway(e.r, e.a)
    [] e.name = "CompleteRead" -> CompleteRead(e.r, e.a, e.writes, e.ok)
    [] e.name = "Offer" -> Offer(e.r, e.a)
    [] e.name = "GiveUpOffer" -> GiveUpOffer(e.r, e.a)
    [] e.name = "Expire" -> IF e.side = "decode" THEN ExpireDecode(e.page) ELSE ExpirePrefill(e.page)
Saw(pool, seen) == \\A i \\in 1..Len(seen) :
  LET page == pool.pages[seen[i][1]] IN page.state = seen[i][2] /\\ seen[i][3] \\in {page.gen, AnyGen}
TraceInit == Init /\\ run \\in 1..Len(Log) /\\ cursor = 1
TraceNext ==
  /\\ cursor <= Len(Log[run])
  /\\ PrintT(<<"at", run, cursor>>)
  /\\ Replays(Log[run][cursor])
  /\\ Saw(decode', Log[run][cursor].decode) /\\ Saw(prefill', Log[run][cursor].prefill)
  /\\ cursor' = cursor + 1
  /\\ UNCHANGED run
TraceSpec == TraceInit /\\ [][TraceNext]_<<vars, run, cursor>>
Place == <<run, cursor>>
Tell == cursor > Len(Log[run]) => PrintT(<<"accepted", run>>)
"""


@dataclass(frozen=True)
class Answer:
    """What TLC says of one history: `refused_at` is the number, from 0, of the action that it refuses."""

    actions: int
    refused_at: int | None


def replay(
    replays: Sequence[Replay], *, model: Path | None = None, jar: Path | None = None, java: Path | None = None
) -> list[Answer]:
    """TLC's answer for each history that the executable specification has replayed.

    A history that the specification refused is replayed up to the refused action, and with it if
    the event named one.

    Raises:
        MissingPartError: no TLC or no Java.
        UsageError: the model lacks an action that a history takes.
    """
    groups: list[tuple[Config, list[int]]] = []
    for place, done in enumerate(replays):
        wanted = _renamed(done.config)
        known = next((members for config, members in groups if config == wanted), None)
        if known is None:
            groups.append((wanted, [place]))
        else:
            known.append(place)
    answers: dict[int, Answer] = {}
    for config, members in groups:
        logs = [_log(replays[place]) for place in members]
        for place, answer in zip(members, _ask(config, logs, model, jar, java), strict=True):
            answers[place] = answer
    return [answers[place] for place in range(len(replays))]


def _renamed(config: Config) -> Config:
    """The same configuration with short names for the content keys, so that histories of several seeds are alike."""
    names: dict[str, str] = {}
    shapes = {
        request: shape._replace(keys=tuple(names.setdefault(key, f"k{len(names)}") for key in shape.keys))
        for request, shape in config.shapes.items()
    }
    return replace(config, shapes=shapes)


def _ask(
    config: Config, logs: list[list[str]], model: Path | None, jar: Path | None, java: Path | None
) -> list[Answer]:
    with tempfile.TemporaryDirectory(prefix="racelab-trace-") as folder:
        text = ",\n".join("<<\n" + ",\n".join(log) + "\n>>" for log in logs)
        module = tla.write(
            Path(folder),
            "Trace",
            config,
            f"Log == <<\n{text}\n>>\n{_BODY}",
            ["INVARIANT Tell"],
            specification="TraceSpec",
            view="Place",
            model=model,
        )
        said = tlc.output_of(module, module.with_suffix(".cfg"), options=("-deadlock",), jar=jar, java=java)
    reached = [0] * len(logs)
    accepted = set()
    for kind, run, cursor in _SAID.findall("".join(said)):
        if kind == "accepted":
            accepted.add(int(run) - 1)
        else:
            reached[int(run) - 1] = max(reached[int(run) - 1], int(cursor))
    return [Answer(len(log), None if run in accepted else max(0, reached[run] - 1)) for run, log in enumerate(logs)]


def _log(done: Replay) -> list[str]:
    entries = [_entry(taken.step.action, taken.step.effects) for taken in done.taken]
    if done.not_enabled is not None:
        entries.append(_entry(done.not_enabled, ()))
    return entries


def _entry(action: Action, effects: Sequence[Effect]) -> str:
    last: dict[tuple[str, int], tuple[str, int]] = {}
    for effect in effects:
        if effect.kind in STATE_AFTER and effect.page is not None and effect.gen is not None:
            gen = -1 if effect.kind == "page-free" else effect.gen
            last[effect.instance, effect.page] = (STATE_AFTER[effect.kind], gen)
    seen = {
        side: tuple((page, *state) for (where, page), state in last.items() if where == side)
        for side in ("decode", "prefill")
    }
    return tla.text({"name": action.name, **_arguments(action), **seen})


def _arguments(action: Action) -> dict[str, Any]:
    match action.name, action.args:
        case "Evict", (page,):
            return {"page": page}
        case "Expire", (side, page):
            return {"side": side, "page": page}
        case (("Receive" | "ReceiveCopy" | "Lose"), (message,)):
            chunk = -1 if message.chunk is None else message.chunk
            about = {"r": message.request or None, "a": message.attempt, "chunk": chunk, "rank": message.rank}
            return {"type": message.type, **about}
        case (("Land" | "LandSlot" | "Vanish"), (write,)):
            return {"r": write.request, "a": write.attempt, "writes": {(write.nth, write.layer)}}
        case (("Complete" | "CompleteRead"), (request, attempt, writes, ok)):
            return {"r": request, "a": attempt, "writes": set(writes), "ok": ok}
        case (("Post" | "Compute"), (request, attempt, chunk)):
            return {"r": request, "a": attempt, "chunk": chunk}
        case "Present", (request, of):
            return {"r": request, "of": of}
        case (("Submit" | "Request"), (request,)):
            return {"r": request}
        case "Restart", ():
            return {}
        case _, (request, attempt):
            return {"r": request, "a": attempt}
    raise TypeError(f"{action} has no form in the trace module")


__all__ = ["Answer", "replay"]
