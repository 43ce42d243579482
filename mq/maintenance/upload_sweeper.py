"""Deletes expired uploads that no message refers to."""

from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass

from filer.clock import Clock
from filer.segment.segment_index import SegmentIndex
from filer.stores.store import Store
from filer.topic.reservations import load_segments
from filer.upkeep.deletion_clock import DeletionClock
from filer.upkeep.upload_sweep import RefMemory, expired_uploads, sweep_uploads
from filer.uploads import EXPIRES_SECONDS
from mq.topic.topic_runtime import TopicRuntime

SWEEP_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class _Sweep:
    """A sweep that waits until all messages accepted before it are stored; `ends` are their ends by segment."""

    before_us: int
    ends: Mapping[int, int]


class UploadSweeper:
    """Sweeps the uploads of each topic once an hour."""

    def __init__(
        self, store: Store, clock: Clock, pool: Executor, deletions: DeletionClock, *, grace_seconds: float
    ) -> None:
        self._store, self._clock, self._pool, self._grace_seconds = store, clock, pool, grace_seconds
        self._deletions = deletions
        self._swept_seconds: dict[str, float] = {}
        self._sweeps: dict[str, _Sweep] = {}
        self._refs = RefMemory()

    async def sweep(self, runtime: TopicRuntime, at_hand: Mapping[int, SegmentIndex]) -> None:
        """Begin a sweep of a topic if one is due, or go on with it. `at_hand` has the indexes read already.

        A publish that was accepted before the time from which uploads count as expired may not be stored yet. So the
        segment files are searched for references only after all such publishes have been answered.
        """
        topic = runtime.topic
        sweep = self._sweeps.get(topic)
        if sweep is None:
            sweep = await self._begin(runtime)
            if sweep is None:
                return
            self._sweeps[topic] = sweep
        if self._deletions.now_us is None:
            return
        writers = [writer for i in sweep.ends if (writer := runtime.writers.get(i)) is not None]
        if any(not writer.has_stopped and writer.index.end < sweep.ends[writer.ref.segment] for writer in writers):
            return
        del self._sweeps[topic]
        await sweep_uploads(
            self._store,
            topic,
            at_hand,
            self._refs,
            before_us=sweep.before_us,
            executor=self._pool,
            bare=load_segments(runtime.state),
        )

    async def _begin(self, runtime: TopicRuntime) -> _Sweep | None:
        """Return a new sweep; None if the last was less than an hour ago, or no upload has expired."""
        topic, now_seconds = runtime.topic, self._clock.monotonic_seconds()
        now_us = self._deletions.now_us
        if now_us is None:
            return None
        if now_seconds - self._swept_seconds.get(topic, -1e9) < SWEEP_SECONDS:
            return None
        self._swept_seconds[topic] = now_seconds
        before_us = now_us - int((EXPIRES_SECONDS + self._grace_seconds) * 1e6)
        if before_us <= runtime.state.created_us <= now_us:
            return None  # so is everything uploaded to it, and a listing of each new topic is many
        async with aclosing(expired_uploads(self._store, topic, before_us)) as expired:
            if await anext(expired, None) is None:
                return None
        return _Sweep(before_us, {i: w.accepted_end for i, w in runtime.writers.items() if not w.has_stopped})
