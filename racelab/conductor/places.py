"""Which instances have which request: the client's, or its router's, own books."""

from __future__ import annotations

from typing import Any

from racelab.conductor.router import Router
from racelab.scenario.steps import Submit

FIRST = Submit(request="")
"""Goes to the first instances of both roles."""


class Places:
    """The latest attempt of each request, and where it was sent."""

    def __init__(self, router: Router | None) -> None:
        self._router = router
        self._sent: dict[str, Submit] = {}
        self.sizes: dict[str, dict[str, Any]] = {}
        """by request, what its instances are told of it"""

    def send(self, name: str, step: Submit | None, sizes: dict[str, Any]) -> Submit:
        """A request goes where a step says."""
        self._sent[name] = step or FIRST
        self.sizes[name] = sizes
        return self._sent[name]

    def move(self, name: str, prefill: str) -> None:
        """Another prefill serves it from now on."""
        self._sent[name] = Submit(request=name, prefill=prefill, decode=self.of(name).decode)

    def of(self, name: str) -> Submit:
        """Where a request was sent last."""
        return self._sent.get(name, FIRST)

    def asked(self, name: str, at: str) -> list[str]:
        """Whom an abort is for: `prefill`, `decode` and `both` are those that have the request."""
        sent = self.of(name)
        has = self._router.has(name) if self._router is not None else sent.decode
        return {"prefill": [sent.prefill], "decode": [has], "both": [sent.prefill, sent.decode]}.get(at, [at])
