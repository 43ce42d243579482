"""The loop that maintains the topics of a broker, and the order of the work on one topic."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence, Set
from concurrent.futures import Executor
from functools import partial

from filer.clock import Clock
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import Segment
from filer.upkeep.deletion_clock import DeletionClock
from filer.upkeep.retention import has_expired
from filer.upkeep.segment_upkeep import UpkeepContext
from leader.membership.coordinator import Coordinator
from mq.maintenance.failure_pauses import FailurePauses
from mq.maintenance.idle_topics import IdleTopics
from mq.maintenance.retention_round import Floors, RetentionRound
from mq.maintenance.segment_rounds import FIRST_INDEXES_PER_ROUND, SegmentRounds
from mq.maintenance.upload_sweeper import UploadSweeper
from mq.metrics.metrics import Metrics
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime
from mq.transitions.transition_executor import TransitionExecutor

REFRESH_SECONDS = 10.0
TOPICS_AT_ONCE = 4
"""Some 0.5 ms if nothing has happened."""
IDLE_PERIOD_ROUNDS, AGEING_PERIOD_ROUNDS = 60, 12
"""An idle topic is looked at once in so many rounds, and one with messages that expire sooner more often."""


class Maintenance:
    """Maintains this broker's open segments, and the sealed segments of topics that it maintains.

    A round costs almost nothing if nothing has happened, and looks at a few topics in each `turn`. Idle topics have
    their turn in few of the rounds (`IdleTopics`). Computations run in `pool`. All methods belong to the event loop's
    thread.
    """

    def __init__(
        self,
        *,
        broker: str,
        store: Store,
        clock: Clock,
        catalogue: Catalogue,
        coordinator: Coordinator,
        metrics: Metrics,
        topics: TopicRegistry,
        executor: TransitionExecutor,
        pool: Executor,
        draining: asyncio.Event,
        floors: Floors,
        interval_seconds: float,
        grace_seconds: float,
        rollup_age_seconds: float,
        turn: Callable[[], Awaitable[None]],
        take_over: Callable[[str, Set[int]], Awaitable[None]],
    ) -> None:
        self._take_over = take_over
        self._clock, self._topics, self._executor, self._draining = clock, topics, executor, draining
        self._catalogue, self._coordinator, self._turn = catalogue, coordinator, turn
        self._interval_seconds = interval_seconds
        self._pauses = FailurePauses(clock, metrics, interval_seconds=interval_seconds)
        self.deletions = DeletionClock(store, clock, grace_seconds=grace_seconds)
        self._retention = RetentionRound(store, catalogue, metrics, self.deletions, floors, grace_seconds=grace_seconds)
        self._uploads = UploadSweeper(store, clock, pool, self.deletions, grace_seconds=grace_seconds)
        context = UpkeepContext(
            store=store,
            clock=clock,
            executor=pool,
            broker=broker,
            grace_seconds=grace_seconds,
            rollup_age_seconds=rollup_age_seconds,
            deletions=self.deletions,
        )
        self._segments = SegmentRounds(context, catalogue, coordinator, metrics)
        self._refreshed_seconds: dict[str, float] = {}
        self._idle, self._brokers = IdleTopics(booked_per_round=FIRST_INDEXES_PER_ROUND), frozenset[str]()
        self._busy = asyncio.Lock()

    async def run(self) -> None:
        """Do a round every `interval_seconds` until cancelled."""
        while True:
            await self._clock.sleep(self._interval_seconds)
            async with self._busy:
                await self._round(self._due())

    async def round(self) -> None:
        """Maintain every topic once, idle ones too.

        Work that fails is logged, counted, and tried again later; the rest goes on.
        """
        async with self._busy:
            await self._round(list(self._topics.values()))

    def _due(self) -> list[TopicRuntime]:
        """Return the topics that this round looks at: all if brokers come or go, since maintainers change then."""
        self._idle.begin_round()
        brokers = frozenset(broker.id for broker in self._coordinator.brokers())
        if brokers != self._brokers:
            self._brokers = brokers
            self._idle.wake_all()
        return [each for each in self._topics.values() if self._idle.is_due(each.topic, each.changes)]

    async def _round(self, runtimes: Sequence[TopicRuntime]) -> None:
        await self.deletions.look()
        self._segments.begin_round()
        for number, runtime in enumerate(runtimes):
            if not number % TOPICS_AT_ONCE:
                await self._turn()
            changes = runtime.changes
            await self._maintain(runtime)
            if self._segments.waits(runtime):
                self._idle.waits(runtime.topic, changes)
            else:
                self._idle.looked(runtime.topic, changes, rest_rounds=self._rest_rounds(runtime))
        self._segments.forget_removed(self._topics)
        self._pauses.forget_old()

    def _rest_rounds(self, runtime: TopicRuntime) -> int:
        """For how many rounds nothing is to be done in a topic, as far as is known."""
        state = runtime.state
        if state.loads or state.removals or state.transition is not None or self._pauses.concern(runtime.topic):
            return 0
        retention = state.config.retention
        expires = retention.seconds is not None or retention.bytes is not None
        most_rounds = AGEING_PERIOD_ROUNDS if expires else IDLE_PERIOD_ROUNDS
        rest_seconds = self._segments.rest_seconds(runtime)
        return math.ceil(min(rest_seconds / self._interval_seconds, most_rounds))

    def invalidate(self, topic: str) -> int:
        """Make the next round read what other programs have written. Returns how many segments are maintained here."""
        self._idle.wake(topic)
        return self._segments.invalidate(topic)

    def is_maintainer(self, runtime: TopicRuntime) -> bool:
        """As `SegmentRounds.is_maintainer`."""
        return self._segments.is_maintainer(runtime)

    async def _maintain(self, runtime: TopicRuntime) -> None:
        topic, segments, attempt = runtime.topic, self._segments, self._pauses.attempt
        await attempt(topic, "refresh", partial(self._refresh, runtime))
        if not runtime.state.deleted:
            await attempt(topic, "roll", partial(self._roll, runtime))
            await attempt(topic, "open segments", partial(segments.go_on, runtime))
            for segment in segments.maintained(runtime):
                await attempt(topic, f"index of segment {segment.id}", partial(segments.prepare, runtime, segment))
            await attempt(topic, "floors", lambda: self._retention.pass_floors(runtime, segments.indexes(runtime)))
            if segments.is_maintainer(runtime) and segments.all_read(runtime):
                await attempt(topic, "retention", lambda: self._retention.retain(runtime, segments.indexes(runtime)))
                await attempt(topic, "expired segments", partial(self._seal_expired, runtime))
            for segment in segments.maintained(runtime):
                await attempt(topic, f"segment {segment.id}", partial(segments.maintain, runtime, segment))
            segments.show_size(runtime)
        if segments.is_maintainer(runtime):
            await attempt(topic, "bulk loads", partial(self._retention.abandon_bulk_loads, runtime))
            await attempt(topic, "removal", partial(self._retention.delete_removed, runtime))
            await attempt(topic, "uploads", lambda: self._uploads.sweep(runtime, segments.indexes(runtime)))
            await attempt(topic, "version mark", lambda: self._catalogue.mark(topic, runtime.state.version))

    async def _refresh(self, runtime: TopicRuntime) -> None:
        """Read topic.json every 10 s: another process may have changed it."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds - self._refreshed_seconds.setdefault(runtime.topic, now_seconds) >= REFRESH_SECONDS:
            self._refreshed_seconds[runtime.topic] = now_seconds
            await self._topics.refresh(runtime.topic)

    async def _roll(self, runtime: TopicRuntime) -> None:
        """Roll our segments that have grown too large or too old: seal each, and open its successor."""
        full = [s.id for s in runtime.state.open_segments if self._is_full(runtime, s)]
        if full and runtime.state.transition is None and not self._draining.is_set():
            await self._executor.give_successors(runtime.topic, full, "roll")

    async def _seal_expired(self, runtime: TopicRuntime) -> None:
        """Without a cluster, seal segments that an earlier process has left open, once all their messages have expired.

        The next publish would also seal them, but there may never be one. An owner would have rolled them by then. The
        next round empties them. This is a take-over like any other: stopped anywhere, the transition goes on when the
        topic is read.
        """
        now_us, retention = self.deletions.now_us, runtime.state.config.retention
        indexes = self._segments.indexes(runtime)
        if now_us is None or self._draining.is_set():
            return
        left = {
            segment.id
            for segment in self._segments.left_open(runtime)
            if segment.id in indexes and has_expired(segment, indexes[segment.id], retention, now_us)
        }
        if left:
            await self._take_over(runtime.topic, left)

    def _is_full(self, runtime: TopicRuntime, segment: Segment) -> bool:
        writer = runtime.writers.get(segment.id)
        if writer is None or not writer.is_open or not writer.index.files:
            return False
        config = runtime.state.config
        age_us = self._clock.now_us() - segment.opened_us
        return writer.index.size_bytes >= config.segment_bytes or age_us >= config.segment_seconds * 1e6
