from __future__ import annotations

import ctypes
import errno
import os

from racelab.engine.memory import TwiceMapped

SIZE = 3 * 65536


def copied(address: int, size: int) -> int:
    """What write(2) makes of bytes from there: how many, or the errno with its sign changed."""
    ours, theirs = os.pipe()
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        count = libc.write(theirs, ctypes.c_void_p(address), ctypes.c_size_t(size))
        return -ctypes.get_errno() if count < 0 else count
    finally:
        os.close(ours)
        os.close(theirs)


def test_both_addresses_are_of_the_same_bytes() -> None:
    memory = TwiceMapped(SIZE)
    memory.bytes[0], memory.bytes[SIZE - 1] = 7, 9
    assert memory.address != memory.bytes.ctypes.data
    assert ctypes.string_at(memory.address, 1) == b"\x07"
    assert ctypes.string_at(memory.address + SIZE - 1, 1) == b"\x09"
    memory.check()


def test_unmapped_the_bytes_are_still_here_and_nobody_reaches_them_there() -> None:
    memory = TwiceMapped(SIZE)
    memory.bytes[:] = 7
    address = memory.address
    memory.unmap()
    assert copied(address, 64) == -errno.EFAULT
    assert (memory.bytes == 7).all()
    memory.bytes[5] = 8
    memory.map_again()
    assert memory.address == address
    assert ctypes.string_at(address + 4, 2) == b"\x07\x08"
    memory.map_again()
    memory.check()


def test_a_size_that_is_no_number_of_pages() -> None:
    memory = TwiceMapped(5000)
    assert memory.bytes.shape == (5000,)
    assert ctypes.string_at(memory.address + 4999, 1) == b"\x00"
