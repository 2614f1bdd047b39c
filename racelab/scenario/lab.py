"""The lab that a scenario needs: its shape and timers, what of them cannot be combined, what its steps may not ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from racelab.instances import ROLES, named
from racelab.scenario.matches import NEWS
from racelab.scenario.steps import Armed, Release, Retract, Retry, Step, Submit, WriteMatch

RANKS = (1, 2, 4, 8)


class Lab(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The shape of the system under test: sizes in pages, tokens and layers, timers in ms.

    The timers are the reference engine's own, on its virtual clock; the defaults are the
    engine's defaults, and a scenario that shortens one is labelled `shortened`.
    """

    prefills: int = 1
    """instances that compute prompts: `prefill`, `prefill-2` ..., each with a pool of its own"""
    decodes: int = 1
    """instances that answer: `decode`, `decode-2` ..., each with a pool of its own"""
    decode_pages: int = 6
    prefill_pages: int = 8
    page_tokens: int = 16
    layers: int = 2
    ranks: int = 1
    """tensor-parallel ranks of each instance: each has some of the heads of every layer, and writes them by itself"""
    chunk_tokens: int = 16
    send: Literal["chunk-wise", "layer-wise"] = "chunk-wise"
    """prefill writes a chunk when all of it is computed, or each layer of it as soon as that layer is"""
    request_timeout_ms: int | None = 10_000
    """how long a client waits; null: for ever"""
    drain_timeout_ms: int = 10_000
    receive_timeout_ms: int = 300_000
    """how long decode waits for a transfer (SGLang: SGLANG_DISAGGREGATION_WAITING_TIMEOUT, 300 s)"""
    source_hold_ms: int = 480_000
    """how long prefill keeps an attempt's source pages for decode (vLLM: VLLM_NIXL_ABORT_REQUEST_TIMEOUT, 480 s)"""
    prefill_token_limit: int | None = None
    """a longer prompt is not accepted by prefill"""
    transfer: Literal["push", "pull"] = "push"
    """prefill writes into decode's pages, or decode reads prefill's"""
    lease_ms: int = 5_000
    """how long prefill keeps source pages to be pulled, from their reference or its last renewal"""
    router: bool = False
    """a router sends each request to prefill and to decode; else decode passes it on"""
    bootstrap_timeout_ms: int = 300_000
    """how long prefill keeps a router's request without decode's pages (SGLang:
    SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT, 300 s)"""
    prefix_cache: bool = False
    """decode keeps the full pages of committed prompts, and a request with the same prefix takes them"""
    metadata_slots: int | None = None
    """decode's metadata slots: prefill writes each request's first token into one"""
    streams: tuple[Literal["scales", "draft"], ...] = ()
    """what travels beside the model's own KV, in blocks of its own (racelab.engine.streams)"""
    preemption: bool = False
    """decode takes pages for a request's answer when a token needs one, and may preempt the youngest for it; else it
    takes them all at once"""
    max_batch: int | None = None
    """how many requests decode answers at a time"""
    zero_fill: bool = False
    """decode clears the pages that a request is given, before they are filled"""
    clock: Literal["virtual", "real"] = "virtual"
    """engine time moves when a step advances it, or by itself"""
    control_qos: Literal[0, 1] = 0
    """MQTT's quality of service for control messages: at 1 a lost acknowledgement leads to a duplicate"""
    news: Literal["bus", "notify"] = "bus"
    """how decode hears that writes have completed: by a control message, or by the transport's own notification"""

    @property
    def instances(self) -> list[str]:
        """Their names."""
        return named("prefill", self.prefills) + named("decode", self.decodes)


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
    pulls = lab.transfer == "pull"
    if not pulls and ((isinstance(step, Armed) and step.reads) or getattr(step, "reference_of", None) is not None):
        yield "nothing is read where prefill pushes: it needs 'lab: {transfer: pull}'"
    if pulls and isinstance(step, Submit) and step.transfer_id is not None:
        yield "a pull goes by its reference and has no transfer id: leave 'transfer-id' out"
    if pulls and isinstance(step, Retry):
        yield "a retry has pages filled by another prefill: it is for labs that push"
    if isinstance(step, Armed):
        yield from _of_match(step, lab)
    elif isinstance(step, Retract):
        yield from _of_retraction(step.request, steps, lab)
    elif isinstance(step, Release) and (step.corrupt is not None or step.tear is not None):
        yield from _of_change(step.hold, steps, lab)


def _of_retraction(name: str, steps: Iterable[Step], lab: Lab) -> Iterator[str]:
    """Why a request cannot be retracted."""
    if lab.transfer == "pull":
        yield "a pulled request has its reference once: only where prefill pushes does decode ask for its pages again"
    if lab.router:
        yield "with a router prefill has the request from there alone: decode cannot ask for it again"
    if any(isinstance(step, Submit) and step.request == name and step.transfer_id is not None for step in steps):
        yield f"the transfer id of {name} is its client's, and good for one transfer"


def _of_change(hold: str, steps: Iterable[Step], lab: Lab) -> Iterator[str]:
    """Why what a hold stops cannot go on torn, or with a byte changed."""
    if any(isinstance(step, Armed) and step.id == hold and _by_bus(step, lab) for step in steps):
        yield (
            "only a held write, read or notification can be torn or have a byte changed: "
            "a control connection that breaks off, ends its engine"
        )


def _by_bus(step: Armed, lab: Lab) -> bool:
    return step.message is not None and (lab.news == "bus" or step.message.type != NEWS)


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
