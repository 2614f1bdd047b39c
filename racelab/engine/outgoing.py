"""What the NIC still reads of one attempt's source pages.

A page is posted block by block, all at once or layer by layer as each is computed; it is free of the NIC once every
block that was posted has gone, and no other will be posted.
"""

from __future__ import annotations


class Outgoing:
    """By source page."""

    def __init__(self) -> None:
        self._unfinished: dict[int, int] = {}
        """blocks without a successful completion, posted or to be posted"""
        self._unposted: dict[int, int] = {}
        self._last: dict[int, str] = {}
        """the last batch with a write of the page that has succeeded"""

    def __contains__(self, page: int) -> bool:
        return page in self._unfinished

    def begin(self, page: int, blocks: int) -> None:
        """All its blocks are to be posted."""
        self._unfinished[page] = self._unposted[page] = blocks

    def post(self, page: int, blocks: int) -> None:
        """So many of them are."""
        self._unposted[page] -= blocks

    def succeed(self, page: int, batch: str) -> bool:
        """One of them has gone; whether the page is free of the NIC by that."""
        self._unfinished[page] -= 1
        self._last[page] = batch
        return self._unfinished[page] == 0

    def stop(self) -> dict[int, str]:
        """Nothing more is posted: the pages that are free of the NIC by that, and their last batch."""
        cut = [page for page, blocks in self._unposted.items() if blocks]
        for page in cut:
            self._unfinished[page] -= self._unposted[page]
            self._unposted[page] = 0
        return {page: self._last[page] for page in cut if self._unfinished[page] == 0}
