"""Repairs topics that this broker has left without an owner, or with an unfinished transition."""

import asyncio
import contextlib

from filer import request_ids
from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import BraidError
from filer.event_log import EventLog
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import Segment
from mq.topic.topic_faults import TopicFaults
from mq.topic.topic_registry import TopicRegistry
from mq.transitions.transition_executor import TransitionExecutor

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 10.0
TAKE_OVERS_AT_ONCE = 8
START_PATIENCE_SECONDS = 60.0
"""How long a start waits for topics to be taken over; those that take longer are taken over while others are served."""

_log = EventLog(__name__)


class TopicRepair:
    """Repairs topics in the background, one loop per topic, until `draining` is set."""

    def __init__(
        self,
        clock: Clock,
        catalogue: Catalogue,
        topics: TopicRegistry,
        executor: TransitionExecutor,
        faults: TopicFaults,
        *,
        broker: str,
        draining: asyncio.Event,
    ) -> None:
        self._clock, self._catalogue, self._topics, self._executor = clock, catalogue, topics, executor
        self._faults, self._broker, self._draining = faults, broker, draining
        self._not_taken_over: set[str] = set()
        self._repairs: dict[str, asyncio.Task[None]] = {}
        self._take_overs: dict[str, asyncio.Task[None]] = {}

    def request(self, name: str) -> None:
        """Repair a topic soon: one of its writers has stopped, or a transition has failed."""
        if name not in self._repairs and not self._draining.is_set():
            self._repairs[name] = asyncio.create_task(self._repair(name), name=f"repair {name}")

    async def take_over_all(self) -> None:
        """Take over all topics from earlier lives of this broker. For a broker without a cluster, at its start.

        A topic that cannot be taken over keeps no other waiting: it is logged and tried again, while what can be read
        of it is read.
        """
        gate = asyncio.Semaphore(TAKE_OVERS_AT_ONCE)
        for name in await self._catalogue.names():
            self._take_overs[name] = asyncio.create_task(self._take_over(name, gate), name=f"take over {name}")
        patience = asyncio.create_task(self._clock.sleep(START_PATIENCE_SECONDS))
        try:
            while (left := [task for task in self._take_overs.values() if not task.done()]) and not patience.done():
                await asyncio.wait([*left, patience], return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        if late := sorted(name for name, task in self._take_overs.items() if not task.done()):
            _log.warning("take_overs_late", topics=len(late), topic=late[0])

    async def close(self) -> None:
        """Give up all repairs."""
        tasks = [*self._repairs.values(), *self._take_overs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_over(self, name: str, gate: asyncio.Semaphore) -> None:
        async with gate:
            try:
                with request_ids.of_work(self._clock):
                    await self._executor.repair(name, self._is_orphan, "failover")
            except Exception as error:
                # Catch every error: one topic must not keep the others from being served.
                self._not_taken_over.add(name)
                self._faults.repair_failed(name, error)
                with contextlib.suppress(BraidError):
                    # Read what can be read.
                    await self._topics.refresh(name)
                self.request(name)

    def _is_orphan(self, segment: Segment) -> bool:
        """Whether the past of this broker, which has no cluster, has left a segment."""
        return segment.owner != self._broker

    async def _repair(self, name: str) -> None:
        """Open successors of our segments whose writer has stopped, as soon as the store allows it.

        A broker that took a segment over has recorded that in topic.json, or has begun a transition there. Otherwise no
        broker takes the segment over while this one lives. Where the take-over at the start has failed, all segments of
        other owners are orphans too, until it has succeeded once.
        """

        def is_orphan(segment: Segment) -> bool:
            if segment.owner != self._broker:
                return name in self._not_taken_over
            runtime = self._topics.get(name)
            writer = None if runtime is None else runtime.writers.get(segment.id)
            return writer is not None and writer.has_stopped

        backoff = Backoff(self._clock, first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS)
        try:
            while not self._draining.is_set():
                await backoff.pause()
                try:
                    with request_ids.of_work(self._clock):
                        await self._executor.repair(name, is_orphan, "failover")
                    self._not_taken_over.discard(name)
                    # A topic that does not run here may not exist.
                    runtime = self._topics.get(name)
                    if runtime is None or not any(map(is_orphan, runtime.state.open_segments)):
                        self._faults.repaired(name)
                        return
                except Exception as error:
                    # Catch every error: the topic is tried again, whatever it was.
                    self._faults.repair_failed(name, error)
        finally:
            del self._repairs[name]
