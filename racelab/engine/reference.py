"""A reference to source pages: what prefill hands out, and decode presents when it wants to read them.

It names pages by number and generation and gives no address: whoever has one may only ask for the right to read.
"""

from __future__ import annotations

import msgspec


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """The pages of one attempt's prompt, first to last. `fingerprints` and `chunks` are what they held when they
    were computed, one list a page with one entry a memory block (a layer, or a rank's share of it). The client
    submitted the attempt at `submitted_ms`."""

    request: str
    attempt: int
    instance: str
    pages: list[tuple[int, int]]
    fingerprints: list[list[str]]
    chunks: list[list[str]]
    submitted_ms: int
    tokens: int
    """whose KV is there"""
