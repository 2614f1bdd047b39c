"""What a step that arms a gate matches, as YAML has it: which key says what kind of thing it is about.

write, message, work    as their structs in racelab.scenario.steps
read                    writes whose match has `op` read: one-sided accesses that a reader posts
batch                   writes whose match has `batch` true: everything that was submitted together
notify                  messages of type NEWS, where the transport's notifications carry those
"""

from __future__ import annotations

from typing import Any

import msgspec

from racelab import documents
from racelab.scenario.steps import Armed, MessageMatch, WorkMatch, WriteMatch

READ, BATCH, NOTIFY = "read", "batch", "notify"
OWN_KEYS = (READ, BATCH, NOTIFY)
"""Keys that are no fields of a step's struct."""

NEWS = "written"
"""What prefill says of writes that have completed."""

_PLAIN: dict[str, type[msgspec.Struct]] = {"write": WriteMatch, "message": MessageMatch, "work": WorkMatch}


def read(document: documents.Document, value: dict[str, Any], place: documents.Place) -> dict[str, Any]:
    """The matches of a step by its fields; None where one cannot be read, which the document notes."""
    found: dict[str, Any] = {
        key: document.build(match, value[key], *place, key) for key, match in _PLAIN.items() if key in value
    }
    if READ in value:
        found["write"] = _writes(document, value[READ], (*place, READ), op=READ)
    if BATCH in value:
        found["write"] = _writes(document, value[BATCH], (*place, BATCH), batch=True)
    if NOTIFY in value:
        found["message"] = _notifications(document, value[NOTIFY], (*place, NOTIFY))
    return found


def rest(value: dict[str, Any]) -> dict[str, Any]:
    """What of a step is no match."""
    return {key: item for key, item in value.items() if key not in _PLAIN and key not in OWN_KEYS}


def dump(step: Armed, value: dict[str, Any]) -> dict[str, Any]:
    """The same step, as `rest` and its matches would be read back."""
    if step.reads:
        return value | {READ: _without(value.pop("write"), "op")}
    if step.batches:
        return value | {BATCH: _without(value.pop("write"), "batch")}
    return value


def _writes(document: documents.Document, wanted: Any, place: documents.Place, **also: Any) -> WriteMatch | None:
    match = document.build(WriteMatch, wanted, *place)
    return msgspec.structs.replace(match, **also) if match is not None else None


def _notifications(document: documents.Document, wanted: Any, place: documents.Place) -> MessageMatch | None:
    lab = document.data.get("lab") or {}
    if not isinstance(lab, dict) or lab.get("news") != NOTIFY:
        document.problem("nobody notifies anybody here: it needs 'lab: {news: notify}'", *place)
    return document.build(MessageMatch, {"type": NEWS} | wanted if isinstance(wanted, dict) else wanted, *place)


def _without(match: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: item for name, item in match.items() if name != key}
