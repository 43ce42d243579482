"""Repairs topics that this broker has left without an owner, or with an unfinished transition."""

import asyncio
import logging

from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import BraidError, CorruptFile
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import Segment
from mq.topic.topic_registry import TopicRegistry
from mq.transitions.transition_executor import TransitionExecutor

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 10.0

_log = logging.getLogger(__name__)


class TopicRepair:
    """Repairs topics in the background, one loop per topic, until `draining` is set."""

    def __init__(
        self,
        clock: Clock,
        catalogue: Catalogue,
        topics: TopicRegistry,
        executor: TransitionExecutor,
        *,
        broker: str,
        draining: asyncio.Event,
    ) -> None:
        self._clock, self._catalogue, self._topics, self._executor = clock, catalogue, topics, executor
        self._broker, self._draining = broker, draining
        self._repairs: dict[str, asyncio.Task[None]] = {}

    def request(self, name: str) -> None:
        """Repair a topic soon: one of its writers has stopped, or a transition has failed."""
        if name not in self._repairs and not self._draining.is_set():
            self._repairs[name] = asyncio.create_task(self._repair(name), name=f"repair {name}")

    async def take_over_all(self) -> None:
        """Take over all topics from earlier lives of this broker. For a broker without a cluster, at its start."""
        for name in await self._catalogue.names():
            try:
                await self._executor.repair(name, lambda segment: segment.owner != self._broker, "failover")
            except CorruptFile as error:
                # One damaged topic must not keep the others from being served. It stays as it is: publishes to it are
                # refused, and its readable files are read.
                _log.error("topic %r cannot be taken over: %s", name, error)

    async def close(self) -> None:
        """Give up all repairs."""
        repairs = list(self._repairs.values())
        for task in repairs:
            task.cancel()
        await asyncio.gather(*repairs, return_exceptions=True)

    async def _repair(self, name: str) -> None:
        """Open successors of our segments whose writer has stopped, as soon as the store allows it.

        A broker that took a segment over has recorded that in topic.json, or has begun a transition there. Otherwise no
        broker takes the segment over while this one lives.
        """

        def is_orphan(segment: Segment) -> bool:
            writer = self._topics[name].writers.get(segment.id)
            return segment.owner == self._broker and writer is not None and writer.has_stopped

        backoff = Backoff(self._clock, first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS)
        try:
            while not self._draining.is_set():
                await backoff.pause()
                try:
                    await self._executor.repair(name, is_orphan, "failover")
                    # A topic that does not run here may not exist.
                    runtime = self._topics.get(name)
                    if runtime is None or not any(map(is_orphan, runtime.state.open_segments)):
                        return
                except BraidError as error:
                    _log.warning("topic %r is not repaired yet: %s: %s", name, type(error).__name__, error)
        finally:
            del self._repairs[name]
