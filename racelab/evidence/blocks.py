"""The memory blocks of a pool: each holds one layer of every page, or one rank's share of it, or one of another stream.

`posted` and gates' events say whose share it is (`layer`, and `rank` and `stream` where there are any). Where a lab
has several shares of a layer, rows of fingerprints, `region` and `look` have the block's number in the place of the
layer's; with one rank and the model's own KV alone the two are the same.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from racelab.evidence.history import History

T = TypeVar("T", bound=msgspec.Struct)


class Blocks:
    """What each block number stands for. `history.derived(Blocks)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self._places: dict[int, dict[str, int | str]] = {}
        for event in history.by_kind["region"]:
            if "of" in event.data:
                self._places.setdefault(event.data["layer"], event.data["of"])
        self._sizes = {
            (event.instance, event.data["layer"]): int(event.data["page_bytes"])
            for event in history.by_kind["region"]
            if "page_bytes" in event.data
        }
        self._page_bytes = {event.instance: int(event.data["page_bytes"]) for event in history.by_kind["pool"]}
        self._counts = {
            event.instance: int(event.data.get("blocks", event.data["layers"])) for event in history.by_kind["pool"]
        }

    def count(self, instance: str) -> int:
        """Blocks of a page on an instance; 0 if it never said."""
        return self._counts.get(instance, 0)

    def bytes(self, instance: str, block: int, granted: int) -> int:
        """How much of a page's block is granted with `granted` bytes of the model's own KV."""
        size = self._sizes.get((instance, block))
        return granted if size is None else granted * size // self._page_bytes[instance]

    def stream(self, block: int) -> str | None:
        """Of which stream a block is, where there are several."""
        stream = self._places.get(block, {}).get("stream")
        return None if stream is None else str(stream)

    def name(self, block: int) -> str:
        """`layer 1`, `layer 1 rank 0`, `draft layer 0 rank 1`."""
        place = self._places.get(block)
        if place is None:
            return f"layer {block}"
        words = [str(place["stream"])] if "stream" in place else []
        words += [f"{key} {place[key]}" for key in ("layer", "rank") if key in place]
        return " ".join(words)

    def placed(self, finding: T) -> T:
        """A finding, whose `layer` is a block, with the layer, rank and stream for which it stands."""
        place = self._places.get(getattr(finding, "layer", None) or 0)
        if place is None or getattr(finding, "layer", None) is None:
            return finding
        return msgspec.structs.replace(finding, **place)
