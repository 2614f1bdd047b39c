"""Page memory that the transport knows by an address of its own, so that it can be unmapped there and be used here.

Two mappings of the same pages: this process reads and writes through one, and what is registered is the other. Taking
the other away is what an allocator does that gives memory back, or puts it to sleep, under a registration. The
addresses stay reserved without any access: a late transfer fails with EFAULT and meets nobody else's memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

import numpy
from numpy.typing import NDArray

from racelab.errors import LabError

_MAY_MOVE, _FIXED = 1, 2
_NO_ACCESS = 0
_PRIVATE, _FIXED_MAP, _ANONYMOUS, _NO_RESERVE = 0x02, 0x10, 0x20, 0x4000
"""linux/mman.h, of x86-64 and of 64-bit Arm alike."""
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = _libc.mremap.restype = ctypes.c_void_p
_SIZE, _PLACE, _INT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
_libc.mmap.argtypes = (_PLACE, _SIZE, _INT, _INT, _INT, ctypes.c_long)
_libc.mremap.argtypes = (_PLACE, _SIZE, _SIZE, _INT, _PLACE)
_libc.munmap.argtypes = (_PLACE, _SIZE)


class TwiceMapped:
    """`bytes` here, at `address` for the transport (racelab.transport.home.Memory)."""

    def __init__(self, size: int) -> None:
        whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        own = mmap.mmap(-1, whole)  # shared and anonymous: it can be mapped again
        self.bytes: NDArray[numpy.uint8] = numpy.frombuffer(own, dtype=numpy.uint8)[:size]
        self._own_address = int(self.bytes.ctypes.data)
        self._size = whole
        self.address = self._map(_MAY_MOVE)
        self._end = weakref.finalize(self, _libc.munmap, self.address, whole)
        self._end.atexit = False

    def check(self) -> None:
        """Both mappings are of the same pages.

        Raises:
            LabError: they are not.
        """
        if ctypes.c_ubyte.from_address(self.address).value != self.bytes[0]:
            raise LabError("the page pool is not the memory that is registered with the transport")

    def unmap(self) -> None:
        """Nothing is at the transport's address any more."""
        how = _PRIVATE | _FIXED_MAP | _ANONYMOUS | _NO_RESERVE
        _known(_libc.mmap(self.address, self._size, _NO_ACCESS, how, -1, 0))

    def map_again(self) -> None:
        """The pages are at the transport's address again; harmless if they were."""
        self._map(_MAY_MOVE | _FIXED, self.address)

    def _map(self, how: int, place: int = 0) -> int:
        """Map the pages once more: mremap(2) with an old size of 0 does that to a shared mapping."""
        return _known(_libc.mremap(self._own_address, 0, self._size, how, place))


def _known(address: int | None) -> int:
    if address is None or address == _FAILED:
        raise LabError(f"page memory cannot be mapped: {os.strerror(ctypes.get_errno())}")
    return address
