"""Clients that publish and read at an even pace, and what they see of a broker while it is attacked."""

import asyncio
import resource
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.attacking.attack import MIB, TOPIC

REQUESTS_PER_SECOND = 60
GIVE_UP_SECONDS = 5.0


@dataclass(slots=True)
class Window:
    """What other clients saw, and the broker's memory, for some time."""

    waits_ms: list[float] = field(default_factory=list)
    failures: int = 0
    resident_mib: float = 0.0

    @property
    def p99_ms(self) -> float:
        """99 of 100 requests were answered sooner."""
        return statistics.quantiles(self.waits_ms, n=100)[98]

    @property
    def median_ms(self) -> float:
        """Half of the requests were answered sooner."""
        return statistics.median(self.waits_ms)

    def add(self, other: "Window") -> None:
        """Add what was seen in another window."""
        self.waits_ms += other.waits_ms
        self.failures += other.failures
        self.resident_mib = max(self.resident_mib, other.resident_mib)


class OtherClients:
    """A third of the requests publish on a connection that stays open, a third on a new one, and a third read a page.

    One that fails or waits for `GIVE_UP_SECONDS` counts as a failure with that wait.
    """

    def __init__(self, url: str, pid: int) -> None:
        self._where, self._pid = f"{url}/v1/topics/{TOPIC}/messages", pid

    async def during(self, seconds: float, until: "asyncio.Task[Any] | None" = None) -> Window:
        """What they see for so long, and until that task has ended."""
        window = Window()
        timeout = aiohttp.ClientTimeout(total=GIVE_UP_SECONDS)
        closing = aiohttp.TCPConnector(force_close=True)
        async with (
            aiohttp.ClientSession(timeout=timeout) as kept,
            aiohttp.ClientSession(timeout=timeout, connector=closing) as new,
            asyncio.TaskGroup() as tasks,
        ):
            began, number = time.perf_counter(), 0
            while time.perf_counter() < began + seconds or (until is not None and not until.done()):
                await asyncio.sleep(max(0.0, began + number / REQUESTS_PER_SECOND - time.perf_counter()))
                tasks.create_task(self._one(number, new if number % 3 == 1 else kept, window))
                number += 1
                window.resident_mib = max(window.resident_mib, resident_mib(self._pid))
            await asyncio.sleep(0)
        return window

    async def _one(self, number: int, session: aiohttp.ClientSession, window: Window) -> None:
        began = time.perf_counter()
        try:
            if number % 3 == 2:
                ask = session.get(f"{self._where}?limit=10")
            else:
                ask = session.post(self._where, data=b"x" * 100)
            async with ask as answer:
                await answer.read()
                answer.raise_for_status()
        except (aiohttp.ClientError, TimeoutError, OSError):
            window.failures += 1
            window.waits_ms.append(GIVE_UP_SECONDS * 1000)
        else:
            window.waits_ms.append((time.perf_counter() - began) * 1000)


def resident_mib(pid: int) -> float:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * resource.getpagesize() / MIB
