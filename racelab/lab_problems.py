"""What of a lab cannot be combined, and what a match asks for that no lab of its kind has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from racelab.instances import ROLES
from racelab.steps import Armed, Retract, Step, Submit, WriteMatch

if TYPE_CHECKING:
    from racelab.scenario import Lab


def of_lab(lab: Lab) -> Iterator[tuple[str, str]]:
    """Each key that does not go with the others, and why."""
    if lab.news == "notify" and len(lab.instances) > len(ROLES):
        yield "news", "notifications are of one prefill and one decode"
    if lab.transfer == "pull":
        yield from _of_pulls(lab)
    if lab.preemption and lab.transfer == "pull":
        yield "preemption", "a preempted request has no reference to come again with: it is for labs that push"
    if lab.preemption and lab.router:
        yield "preemption", "a preempted request comes again without its router, and prefill would wait for that"
    if len(set(lab.streams)) < len(lab.streams):
        yield "streams", "each stream once"
    if lab.streams and lab.transfer == "pull":
        yield "streams", "a pull reads the model's own KV alone"
    if lab.send == "layer-wise" and lab.transfer == "pull":
        yield "send", "a pull reads a prompt when all of it is computed"
    if lab.send == "layer-wise" and lab.prefill_token_limit is not None:
        yield "send", "a placeholder is sent as a whole: no prefill-token-limit beside layer-wise sending"
    if lab.streams and lab.prefill_token_limit is not None:
        yield "streams", "a placeholder is of the model's own KV alone: no prefill-token-limit beside other streams"


def _of_pulls(lab: Lab) -> Iterator[tuple[str, str]]:
    if lab.router:
        yield "router", "a pulled request goes by its client, or router, in any case: to prefill, then to decode"
    if lab.metadata_slots is not None:
        yield "metadata-slots", "prefill writes slots of decode's, and nothing where decode pulls"
    if lab.news != "bus":
        yield "news", "prefill has no completed writes to tell of where decode pulls"


def of_step(step: Step, steps: Iterable[Step], lab: Lab) -> Iterator[str]:
    """What cannot be asked of this lab, in this schedule."""
    if isinstance(step, Armed):
        yield from _of_match(step, lab)
    elif isinstance(step, Retract):
        yield from _of_retraction(step.request, steps, lab)


def _of_retraction(name: str, steps: Iterable[Step], lab: Lab) -> Iterator[str]:
    """Why a request cannot be retracted."""
    if lab.transfer == "pull":
        yield "a pulled request has its reference once: only where prefill pushes does decode ask for its pages again"
    if lab.router:
        yield "with a router prefill has the request from there alone: decode cannot ask for it again"
    if any(isinstance(step, Submit) and step.request == name and step.transfer_id is not None for step in steps):
        yield f"the transfer id of {name} is its client's, and good for one transfer"


def _of_match(step: Armed, lab: Lab) -> Iterator[str]:
    """What a match names that nothing in this lab has."""
    match = step.match
    if getattr(match, "layer", None) is not None and not isinstance(match, WriteMatch) and lab.send != "layer-wise":
        yield "only a lab with 'send: layer-wise' computes and reports layer by layer"
    stream = getattr(match, "stream", None)
    if stream is not None and stream not in ("kv", *lab.streams):
        yield f"there is no stream {stream!r} in this lab: it needs 'lab: {{streams: [{stream}]}}'"
    elif stream is not None and not lab.streams:
        yield "a lab without other streams has the model's own KV alone: leave 'stream' out"
