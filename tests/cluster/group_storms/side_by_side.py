"""Several loads under the same storm."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.cluster.group_storms.queue_load import QueueLoad
from tests.cluster.group_storms.verdict import Verdict
from tests.support.cluster.cluster import Cluster


class SideBySide:
    """Each is judged by itself."""

    consumer_processes: Sequence[Any] = ()

    def __init__(self, *loads: QueueLoad) -> None:
        self._loads = loads
        self.topics = tuple(topic for load in loads for topic in load.topics)

    async def create(self, cluster: Cluster, **settings: Any) -> None:
        """Make their topics."""
        for load in self._loads:
            await load.create(cluster, **settings)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A context in which they run."""
        async with AsyncExitStack() as stack:
            for load in self._loads:
                await stack.enter_async_context(load.running())
            yield

    async def each_acknowledged(self, count: int, *, timeout_seconds: float = 60.0) -> None:
        """Wait until each has got on by so much."""
        await asyncio.gather(*(load.each_acknowledged(count, timeout_seconds=timeout_seconds) for load in self._loads))

    def struck(self, name: str, began_at: float) -> None:
        """A fault has been, from then until now."""
        for load in self._loads:
            load.struck(name, began_at)

    async def verdict(self) -> Verdict:
        """What is wrong in what any of them has seen, and their figures."""
        found = [await load.verdict() for load in self._loads]
        return Verdict(
            [complaint for each in found for complaint in each.complaints],
            "; ".join(f"{load.topic}: {each.figures}" for load, each in zip(self._loads, found, strict=True)),
        )

    def around(self, complaint: str) -> list[str]:
        """Everything that they have seen of what a complaint names."""
        return [event for load in self._loads for event in load.around(complaint)]

    async def close(self) -> None:
        """Ask nobody any more."""
        await asyncio.gather(*(load.close() for load in self._loads))
