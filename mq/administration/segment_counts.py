"""Counts the open segments that each broker owns, in all topics of the cluster."""

import asyncio
import contextlib
from collections import Counter

from filer.clock import Clock
from filer.errors import BraidError, UnreadableObject
from filer.topic.catalogue import Catalogue
from leader.policy.placement import owned
from mq.base.errors import NotFound
from mq.base.single_flight import SingleFlight
from mq.topic.topic_registry import TopicRegistry

COUNT_SECONDS = 2.0
"""How long a listing of the topics may take.

Clients ask for the cluster's state when the store is down, too. They wait for 5 s, which has to be enough for two
counts.
"""
REST_SECONDS = 0.5
"""The shortest time between two counts.

Each client asks for the cluster's state every few seconds. One count serves all of them: it lists the store, and
counting 100,000 segments takes some 70 ms of the event loop.
"""


class SegmentCounts:
    """Counts the open segments of each broker."""

    def __init__(self, catalogue: Catalogue, clock: Clock, topics: TopicRegistry, *, clustered: bool) -> None:
        self._catalogue, self._topics, self._clustered = catalogue, topics, clustered
        self._count = SingleFlight(self._count_once, clock, name="count segments", rest_seconds=REST_SECONDS)
        self._owned: Counter[str] = Counter()

    async def by_owner(self) -> Counter[str]:
        """Return the number of open segments by broker id; while the store is down, those of topics known here."""
        await self._count()
        return self._owned

    async def close(self) -> None:
        """Stop counting."""
        await self._count.close()

    async def _count_once(self) -> None:
        with contextlib.suppress(BraidError, TimeoutError):
            async with asyncio.timeout(COUNT_SECONDS):
                await self._open_all_topics()
        self._owned = owned(runtime.state for runtime in self._topics.values())

    async def _open_all_topics(self) -> None:
        if not self._clustered:
            return  # they are read in the background (`TopicLoading`), and no other broker creates any
        for name in await self._catalogue.names():
            if name not in self._topics:
                with contextlib.suppress(NotFound, UnreadableObject):
                    await self._topics.topic(name)
