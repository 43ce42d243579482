import asyncio

import pytest

from filer.clock import ManualClock, settle
from mq.process.freed_memory import LEAST_BYTES, LOOK_SECONDS, UNUSED_LOOKS, GlibcHeap, give_back


class FakeHeap:
    """A heap that has `unused` bytes."""

    def __init__(self) -> None:
        self.unused, self.trims = 0, 0

    def unused_bytes(self) -> int:
        return self.unused

    def trim(self) -> None:
        self.unused, self.trims = 0, self.trims + 1


async def test_what_is_not_used_again_is_given_back() -> None:
    heap, clock = FakeHeap(), ManualClock()
    running = asyncio.create_task(give_back(heap, clock))
    for look in range(3 * UNUSED_LOOKS):
        heap.unused = LEAST_BYTES if look % UNUSED_LOOKS else 0  # now and then all of it is in use
        await clock.advance(LOOK_SECONDS)
    assert not heap.trims
    for _ in range(UNUSED_LOOKS):
        heap.unused = LEAST_BYTES
        await clock.advance(LOOK_SECONDS)
    async with asyncio.timeout(10):
        while not heap.trims:
            await settle()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_what_glibc_tells_is_what_it_holds() -> None:
    try:
        heap = GlibcHeap()
    except (AttributeError, OSError):
        pytest.skip("the C library is not glibc")
    # Below the size that is taken from the system, and above that of Python's own pools.
    pieces = [bytearray(100_000) for _ in range(400)]
    before = heap.unused_bytes()
    kept = pieces[-1]
    pieces.clear()
    assert heap.unused_bytes() >= before + 30_000_000
    heap.trim()
    assert len(kept) == 100_000
