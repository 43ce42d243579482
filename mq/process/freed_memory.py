"""Returns freed memory to the system, if the C library is glibc.

glibc keeps what is freed below a piece in use, and each thread has a heap of its own. After a burst of large bodies or
answers, a process would not shrink. jemalloc, which has Arrow's memory, gives it back by itself.
"""

import asyncio
import ctypes
from collections import deque
from typing import Protocol

from filer.clock import Clock

LOOK_SECONDS = 1.0
# Freed memory that was not used again in this time is given back. Used again, it would cost page faults.
UNUSED_LOOKS = 5
LEAST_BYTES = 32 * 1024 * 1024
# Pieces of memory that are larger than this are taken from the system and given back one by one. By itself, glibc
# raises this limit up to 32 MiB. Bodies of a usual size, 8 MiB, stay below.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MMAP_BYTES, _TRIM_BYTES, _ARENAS = 12 * 1024 * 1024, 64 * 1024 * 1024, 4


class Heap(Protocol):
    """The C library's memory."""

    def unused_bytes(self) -> int:
        """Return the size of memory that is freed and not given back."""
        ...

    def trim(self) -> None:
        """Give it back."""
        ...


class _Figures(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = (("before", ctypes.c_size_t * 8), ("unused", ctypes.c_size_t), ("top", ctypes.c_size_t))


class GlibcHeap:
    """The heap of a process that uses glibc. Raises `AttributeError` or `OSError` if there is none."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libc.so.6")
        self._figures, self._trim, self._set = library.mallinfo2, library.malloc_trim, library.mallopt
        self._figures.restype = _Figures
        self._trim.argtypes = [ctypes.c_size_t]

    def limit(self) -> None:
        """Take large pieces from the system one by one, and have few heaps."""
        for option, value in (
            (_M_MMAP_THRESHOLD, _MMAP_BYTES),
            (_M_TRIM_THRESHOLD, _TRIM_BYTES),
            (_M_ARENA_MAX, _ARENAS),
        ):
            self._set(option, value)

    def unused_bytes(self) -> int:
        """Return the size of memory that is freed and not given back."""
        return int(self._figures().unused)

    def trim(self) -> None:
        """Give it back."""
        self._trim(0)


def glibc_heap() -> GlibcHeap | None:
    """Return the limited heap of this process; None if the C library is another one."""
    try:
        heap = GlibcHeap()
    except (AttributeError, OSError):
        return None
    heap.limit()
    return heap


async def give_back(heap: Heap, clock: Clock) -> None:
    """Give back freed memory that is not used again, until cancelled."""
    unused: deque[int] = deque(maxlen=UNUSED_LOOKS)
    while True:
        await clock.sleep(LOOK_SECONDS)
        unused.append(heap.unused_bytes())
        if len(unused) == UNUSED_LOOKS and min(unused) >= LEAST_BYTES:
            await asyncio.to_thread(heap.trim)
            unused.clear()
