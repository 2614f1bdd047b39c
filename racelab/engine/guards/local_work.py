"""Guards of the order between local work and transfers: a transfer does not wait for a stream."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question


@dataclass(frozen=True)
class AdvertisePages(Question):
    """May a peer learn the addresses of pages on which local work is still queued?"""

    queued: int


@dataclass(frozen=True)
class PostUncomputed(Question):
    """May a chunk be posted whose forward is still queued?"""

    chunk: int


class LocalWorkBeforeGrant(Guard):
    """A peer learns a page's address once whatever the engine itself does to the page has been done."""

    name = "local-work-before-grant"
    protects = "integrity"
    race_classes = ("ordering",)
    stands_for = "no zero-fill of blocks that a load will fill, load streams that wait for the compute stream (vLLM)"
    judges = (AdvertisePages,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, AdvertisePages)
        return f"{question.queued} piece(s) of local work on its pages are still queued and would run over the transfer"


class ComputeBeforePost(Guard):
    """A chunk is posted once its keys and values have been computed."""

    name = "compute-before-post"
    protects = "integrity"
    race_classes = ("ordering",)
    stands_for = "a stream event recorded with each chunk, for which the transfer thread waits (SGLang)"
    judges = (PostUncomputed,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, PostUncomputed)
        return f"the forward of chunk {question.chunk} is still queued: its source pages hold what was there before"
