"""Time, sleep and entropy, passed in everywhere so that tests and simulations can own them."""

import asyncio
import os
import time
from typing import Protocol

from ulid import ULID

ENTROPY_STOCK_BYTES = 1024


class Clock(Protocol):
    """What the code knows of time and chance."""

    def now_us(self) -> int:
        """Wall-clock time in microseconds since the Unix epoch, UTC."""
        ...

    def monotonic_seconds(self) -> float:
        """Seconds since an arbitrary start; never runs back, and goes on while the process is stopped."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for that long."""
        ...

    def entropy(self, size_bytes: int) -> bytes:
        """Unpredictable bytes."""
        ...

    def ulid(self) -> str:
        """A new ULID: 26 characters, ordered by time."""
        ...


class SystemClock:
    """The real clock of this machine."""

    def __init__(self) -> None:
        self._drawn = b""

    def now_us(self) -> int:
        """Wall-clock time in microseconds since the Unix epoch, UTC."""
        return time.time_ns() // 1000

    def monotonic_seconds(self) -> float:
        """Seconds that go on through SIGSTOP and, where the system can tell, through suspension too."""
        # CLOCK_MONOTONIC stands still while a laptop sleeps; proofs of ownership must not (DESIGN.md §4).
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for that long."""
        await asyncio.sleep(seconds)

    def entropy(self, size_bytes: int) -> bytes:
        """Bytes from the operating system's generator, each given out once."""
        # Drawn in stock: the system call gives the interpreter away, and a busy broker waits to get it back.
        if len(self._drawn) < size_bytes:
            self._drawn = os.urandom(max(ENTROPY_STOCK_BYTES, size_bytes))
        entropy, self._drawn = self._drawn[:size_bytes], self._drawn[size_bytes:]
        return entropy

    def ulid(self) -> str:
        """A new ULID: 26 characters, ordered by time."""
        return str(ULID.from_bytes((self.now_us() // 1000).to_bytes(6, "big") + self.entropy(10)))


class ManualClock:
    """A clock that moves only when told to: `advance` runs every sleeper that falls due, in order.

    Public, so that tests of code built on BraidMQ can use it as well.
    """

    def __init__(self, *, start_us: int = 1_700_000_000_000_000, seed: int = 0) -> None:
        self._now_us = start_us
        self._draws = seed
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_us(self) -> int:
        """The set time in microseconds."""
        return self._now_us

    def monotonic_seconds(self) -> float:
        """The set time in seconds."""
        return self._now_us / 1e6

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` has passed the due time; zero gives way to other tasks once."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._draws += 1
        # At least a microsecond: who sleeps what a rounding has left of a second would sleep it for ever.
        self._sleepers.append((self._now_us + max(int(seconds * 1e6), 1), self._draws, future))
        await future

    def entropy(self, size_bytes: int) -> bytes:
        """Bytes that differ at each draw, as far as so many can, and repeat from run to run."""
        self._draws += 1
        return (self._draws % (1 << 8 * size_bytes)).to_bytes(size_bytes, "big")

    def ulid(self) -> str:
        """A ULID of the set time."""
        return str(ULID.from_bytes((self._now_us // 1000).to_bytes(6, "big") + self.entropy(10)))

    async def advance(self, seconds: float) -> None:
        """Move time on by `seconds`, waking sleepers at their due times and letting them run."""
        target_us = self._now_us + int(seconds * 1e6)
        while due := sorted(s for s in self._sleepers if s[0] <= target_us and not s[2].done())[:1]:
            self._now_us = max(self._now_us, due[0][0])
            self._sleepers.remove(due[0])
            due[0][2].set_result(None)
            await settle()
        self._now_us = target_us
        await settle()


async def comes_within(clock: Clock, event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, so long at most; whether it has come."""
    if not event.is_set() and seconds > 0:
        waiting = [asyncio.create_task(event.wait()), asyncio.create_task(clock.sleep(seconds))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
    return event.is_set()


async def settle(turns: int = 50) -> None:
    """Give every runnable task that many turns of the event loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
