"""Faults in the glue between the engine and its ledger, to be switched on one at a time.

A ledger that is right is worth nothing if the engine tells it wrong things. Each fault here is one
such lie of decode's; it is there to show that the run-time preconditions and the checkers find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from racelab.engine.guards import Ticket
from racelab.engine.ledger import Ledger
from racelab.engine.prefix_cache import PrefixCache


@dataclass(frozen=True)
class Glue:
    """What decode keeps its books with."""

    ledger: type[Ledger] = Ledger
    cache: type[PrefixCache] = PrefixCache


SOUND = Glue()


class _CreditsWrongGeneration(Ledger):
    def close(self, ticket: Ticket, evidence: str, by: str) -> None:
        super().close(ticket._replace(gen=ticket.gen - 1), evidence, by)


class _SkipsRelease(Ledger):
    def release(self, ticket: Ticket, why: str) -> None:
        if self.is_shared(ticket):
            super().release(ticket, why)
        else:
            self.free.append(ticket.page)


class _PublishesEarly(PrefixCache):
    def publish(self, tickets: Sequence[Ticket], keys: Sequence[str], *, committed: bool) -> None:
        super().publish(tickets, keys, committed=True)


PUBLISH_BEFORE_COMMIT = "publish-before-commit"

GLUE_FAULTS: dict[str, Glue] = {
    "completion-credited-to-wrong-generation": Glue(ledger=_CreditsWrongGeneration),
    "release-skips-ledger": Glue(ledger=_SkipsRelease),
    PUBLISH_BEFORE_COMMIT: Glue(cache=_PublishesEarly),
}
"""By the name that `racelab run --glue-fault` takes."""
