"""Repairs topics that this broker has left without an owner, or with an unfinished transition."""

import asyncio
from collections.abc import Set
from functools import partial

from filer import request_ids
from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import SegmentMoved
from filer.topic.catalogue import Catalogue
from filer.topic.incarnation import Incarnation
from filer.topic.topic_state import Segment, TopicState
from mq.topic.topic_faults import TopicFaults
from mq.topic.topic_registry import TopicRegistry
from mq.transitions.transition_executor import TransitionExecutor

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 10.0
TAKE_OVERS_AT_ONCE = 16


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
        incarnation: Incarnation,
        draining: asyncio.Event,
    ) -> None:
        self._clock, self._catalogue, self._topics, self._executor = clock, catalogue, topics, executor
        self._faults, self._draining = faults, draining
        self._incarnation, self._broker = incarnation, incarnation.broker
        # Topics that could not be taken over, with segments of this broker that it cannot go on with.
        self._not_taken_over: dict[str, Set[int]] = {}
        self._gate = asyncio.Semaphore(TAKE_OVERS_AT_ONCE)
        self._repairs: dict[str, asyncio.Task[None]] = {}
        self._take_overs: dict[str, asyncio.Task[None]] = {}

    def request(self, name: str, *, at_once: bool = False) -> None:
        """Repair a topic soon: one of its writers has stopped, or a transition has failed."""
        if name not in self._repairs and not self._draining.is_set():
            self._repairs[name] = asyncio.create_task(self._repair(name, at_once=at_once), name=f"repair {name}")

    def read(self, state: TopicState) -> None:
        """Finish a transition in a topic's record, in a broker without a cluster: no other broker carries it out.

        An earlier process has left it, or its last write took effect only now. Publishers wait for it, so it is
        finished at once. All other segments stay as they are: the topic may never be used again.
        """
        if state.transition is not None and not self._executor.lock(state.topic).locked():
            self.request(state.topic, at_once=True)

    async def take_over(self, name: str, left: Set[int]) -> None:
        """Seal a topic's segments that have no owner any more, and open successors here.

        For a broker without a cluster, when a request uses the topic. `left` are segments of this broker that it cannot
        go on with. Callers at the same time share one transition. If it fails it is tried again in the background.
        Raises `BraidError`, at once while a repair is under way.
        """
        task = self._take_overs.get(name)
        if task is None:
            if name in self._repairs:
                raise SegmentMoved("it is being repaired; try again")
            task = asyncio.create_task(self._take_over(name, left), name=f"take over {name}")
            self._take_overs[name] = task
            task.add_done_callback(partial(self._taken_over, name))
        await asyncio.shield(task)

    def _taken_over(self, name: str, task: "asyncio.Task[None]") -> None:
        self._take_overs.pop(name, None)
        if not task.cancelled():
            task.exception()  # the callers have got it

    async def close(self) -> None:
        """Give up all repairs."""
        tasks = [*self._repairs.values(), *self._take_overs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_over(self, name: str, left: Set[int]) -> None:
        async with self._gate:
            await self._incarnation.check_newest()
            try:
                with request_ids.of_work(self._clock):
                    await self._executor.repair(name, lambda each: self._is_orphan(each) or each.id in left, "failover")
            except Exception as error:
                self._not_taken_over[name] = left
                self._faults.repair_failed(name, error)
                self.request(name)
                raise

    def _is_orphan(self, segment: Segment) -> bool:
        """Whether an earlier process of this broker, which has no cluster, has left a segment."""
        return segment.owner != self._broker

    async def _repair(self, name: str, *, at_once: bool) -> None:
        """Open successors of our segments with stopped writers, as soon as the store allows it.

        A broker that took a segment over has recorded that in topic.json, or has begun a transition there. Otherwise no
        broker takes the segment over while this one lives. If a take-over of the topic has failed, all segments of
        other owners are orphans too, until it has succeeded once.
        """

        def is_orphan(segment: Segment) -> bool:
            left = self._not_taken_over.get(name)
            if left is not None and (segment.owner != self._broker or segment.id in left):
                return True
            if segment.owner != self._broker:
                return False
            runtime = self._topics.get(name)
            writer = None if runtime is None else runtime.writers.get(segment.id)
            return writer is not None and writer.has_stopped

        backoff = Backoff(self._clock, first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS)
        try:
            while not self._draining.is_set():
                if not at_once:
                    await backoff.pause()
                at_once = False
                try:
                    if name in self._not_taken_over:
                        await self._incarnation.check_newest()
                    with request_ids.of_work(self._clock):
                        await self._executor.repair(name, is_orphan, "failover")
                    self._not_taken_over.pop(name, None)
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
