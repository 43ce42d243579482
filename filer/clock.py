"""Time, sleep and entropy. They are passed in everywhere, so that tests and simulations control them."""

import asyncio
import os
import time
from typing import Protocol

ENTROPY_STOCK_BYTES = 1024


_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [one + other for one in _DIGITS for other in _DIGITS]
"""The digits of ULIDs (Crockford's base 32) for each ten bits."""
_SHIFTS = range(120, -1, -10)


def _ulid(now_us: int, entropy: bytes) -> str:
    """The ULID of that time with these ten bytes. Each file has one."""
    number = now_us // 1000 << 80 | int.from_bytes(entropy, "big")
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


class Clock(Protocol):
    """The source of time and of random bytes."""

    def now_us(self) -> int:
        """Wall-clock time in microseconds since the Unix epoch, UTC."""
        ...

    def monotonic_seconds(self) -> float:
        """Seconds since an arbitrary start. They never decrease, and increase while the process is stopped as well."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for that many seconds."""
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
        """Seconds that also pass during SIGSTOP and, if the system counts that, while the machine is suspended."""
        # CLOCK_MONOTONIC stops while a laptop sleeps. Proofs of ownership must expire meanwhile (docs/design.md §4).
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for that many seconds."""
        await asyncio.sleep(seconds)

    def entropy(self, size_bytes: int) -> bytes:
        """Bytes from the generator of the operating system. No byte is returned twice."""
        # Drawn in advance: the system call releases the interpreter lock, and a busy broker waits to get it back.
        if len(self._drawn) < size_bytes:
            self._drawn = os.urandom(max(ENTROPY_STOCK_BYTES, size_bytes))
        entropy, self._drawn = self._drawn[:size_bytes], self._drawn[size_bytes:]
        return entropy

    def ulid(self) -> str:
        """A new ULID: 26 characters, ordered by time."""
        return _ulid(self.now_us(), self.entropy(10))


class ManualClock:
    """A clock that moves only by `advance` and `leap`. They wake the sleepers that are due, in order.

    It is public, so that tests of code built on BraidMQ can use it too.
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
        """Wait until `advance` has passed the due time. Zero seconds yield to other tasks once."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._draws += 1
        # At least a microsecond: a task that sleeps the rest that rounding left of a second would otherwise loop for
        # ever.
        self._sleepers.append((self._now_us + max(int(seconds * 1e6), 1), self._draws, future))
        await future

    def entropy(self, size_bytes: int) -> bytes:
        """Bytes that differ at each call, as far as that many bytes can, and are the same in each run."""
        self._draws += 1
        return (self._draws % (1 << 8 * size_bytes)).to_bytes(size_bytes, "big")

    def ulid(self) -> str:
        """A ULID of the set time."""
        return _ulid(self._now_us, self.entropy(10))

    async def advance(self, seconds: float) -> None:
        """Move the time on by `seconds`; wake sleepers at their due times and let them run."""
        target_us = self._now_us + int(seconds * 1e6)
        while due := sorted(s for s in self._sleepers if s[0] <= target_us and not s[2].done())[:1]:
            self._now_us = max(self._now_us, due[0][0])
            self._sleepers.remove(due[0])
            due[0][2].set_result(None)
            await settle()
        self._now_us = target_us
        await settle()

    async def leap(self, seconds: float) -> None:
        """Move the time on at once, as on a machine that was asleep: a due sleeper wakes after it, and only once.

        For long times: `advance` wakes a task that looks around each second once for each second.
        """
        self._now_us += int(seconds * 1e6)
        for sleeper in sorted(s for s in self._sleepers if s[0] <= self._now_us):
            self._sleepers.remove(sleeper)
            if not sleeper[2].done():
                sleeper[2].set_result(None)
        await settle()


async def comes_within(clock: Clock, event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event for at most that long; returns whether it is set."""
    if not event.is_set() and seconds > 0:
        waiting = [asyncio.create_task(event.wait()), asyncio.create_task(clock.sleep(seconds))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
    return event.is_set()


async def settle(turns: int = 50) -> None:
    """Let every runnable task run for that many rounds of the event loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
