"""Upkeep in the background, topic by topic: roll, retention, roll-up, snapshots, deletion, the sweep of uploads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa

from filer.deletion import delete_segment
from filer.errors import ObjectNotFound
from filer.loads import load_segments, sweeping
from filer.retention import plan_retention, removable, with_starts, without_removal, without_segments
from filer.segment_index import SegmentIndex
from filer.segment_upkeep import SegmentUpkeep
from filer.segment_writer import SegmentWriter, WriterState
from filer.topic_state import Segment, TopicState
from filer.upload_sweep import RefMemory, expired_uploads, sweep_uploads
from filer.uploads import EXPIRES_SECONDS
from leader.placement import keeper
from mq.parts import Parts
from mq.topic_runtime import TopicRuntime

REFRESH_SECONDS = 10.0
SWEEP_SECONDS = 3600.0
LONGEST_PAUSE_SECONDS = 600.0
FIRST_LOOKS_PER_ROUND = 16

log = logging.getLogger(__name__)


class Kept(Protocol):
    """What upkeep needs of the broker whose topics it keeps."""

    @property
    def topics(self) -> Mapping[str, TopicRuntime]:
        """The running topics by name, deleted ones included."""
        ...

    @property
    def draining(self) -> asyncio.Event:
        """Set once nothing new is to be begun."""
        ...

    async def refresh(self, name: str) -> None:
        """Read topic.json again."""
        ...

    async def roll(self, name: str, segments: Sequence[int]) -> None:
        """Seal these segments and open one successor each."""
        ...


@dataclass(slots=True)
class _Pause:
    """How often something failed in a row, and until when it is left alone."""

    failures: int = 0
    until_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Sweep:
    """A sweep that waits until all that was accepted before it is stored; `ends` by segment."""

    before_us: int
    ends: Mapping[int, int]


class Maintenance:
    """Keeps the topics of one broker in shape: its own open segments and all sealed ones.

    A round costs about nothing where nothing has happened. All methods belong to the event loop's thread.
    """

    def __init__(self, parts: Parts, broker: Kept) -> None:
        self._parts, self._broker = parts, broker
        self._upkeeps: dict[tuple[str, int], SegmentUpkeep] = {}
        self._pauses: dict[tuple[str, str], _Pause] = {}
        self._refreshed_seconds: dict[str, float] = {}
        self._swept_seconds: dict[str, float] = {}
        self._sweeps: dict[str, _Sweep] = {}
        self._refs = RefMemory()
        self._first_looks = 0
        self._busy = asyncio.Lock()

    async def run(self) -> None:
        """Do a round every `maintenance_interval` until cancelled."""
        while True:
            await self._parts.clock.sleep(self._parts.settings.maintenance_interval)
            await self.round()

    async def round(self) -> None:
        """One pass over all topics. What fails is logged, counted, and tried again later; the rest goes on."""
        async with self._busy:
            self._first_looks = FIRST_LOOKS_PER_ROUND
            for runtime in list(self._broker.topics.values()):
                await self._keep_topic(runtime)
            self._forget_the_gone()

    def look_again(self, topic: str) -> int:
        """Have the next round take in what other programs have written; of how many segments kept here."""
        kept = [upkeep for (name, _), upkeep in self._upkeeps.items() if name == topic]
        for upkeep in kept:
            upkeep.look_again()
        return len(kept)

    # -- one topic -----------------------------------------------------------------------------------------

    async def _keep_topic(self, runtime: TopicRuntime) -> None:
        topic = runtime.topic
        await self._try(topic, "refresh", partial(self._refresh, runtime))
        if not runtime.state.deleted:
            await self._try(topic, "roll", partial(self._roll, runtime))
            for segment in self._kept_segments(runtime):
                await self._try(topic, f"index of segment {segment.id}", partial(self._look, runtime, segment))
            if self.keeps(runtime):
                await self._try(topic, "retention", partial(self._retain, runtime))
            for segment in self._kept_segments(runtime):
                await self._try(topic, f"segment {segment.id}", partial(self._keep_segment, runtime, segment))
        if self.keeps(runtime):
            await self._try(topic, "loads", partial(self._sweep_loads, runtime))
            await self._try(topic, "removal", partial(self._remove, runtime))
            await self._try(topic, "uploads", partial(self._sweep, runtime))

    async def _try(self, topic: str, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do it unless it failed lately: each failure in a row doubles the pause, up to ten minutes."""
        clock, pause = self._parts.clock, self._pauses.get((topic, what))
        if pause is not None and clock.monotonic_seconds() < pause.until_seconds:
            return
        try:
            await work()
            self._pauses.pop((topic, what), None)
        except Exception as error:
            pause = self._pauses.setdefault((topic, what), _Pause())
            wait_seconds = self._parts.settings.maintenance_interval * (2 ** min(pause.failures, 20) - 1)
            pause.failures += 1
            pause.until_seconds = clock.monotonic_seconds() + min(wait_seconds, LONGEST_PAUSE_SECONDS)
            self._parts.metrics.maintenance_errors.inc()
            log.warning("upkeep of topic %r, %s: %s: %s", topic, what, type(error).__name__, error)

    async def _refresh(self, runtime: TopicRuntime) -> None:
        """Another process may have changed topic.json."""
        now_seconds = self._parts.clock.monotonic_seconds()
        if now_seconds - self._refreshed_seconds.setdefault(runtime.topic, now_seconds) >= REFRESH_SECONDS:
            self._refreshed_seconds[runtime.topic] = now_seconds
            await self._broker.refresh(runtime.topic)

    async def _roll(self, runtime: TopicRuntime) -> None:
        """Begin a new segment in place of each of ours that has grown too large or too old."""
        full = [s.id for s in runtime.state.open_segments if self._is_full(runtime, s)]
        if full and runtime.state.transition is None and not self._broker.draining.is_set():
            await self._broker.roll(runtime.topic, full)

    def _is_full(self, runtime: TopicRuntime, segment: Segment) -> bool:
        writer = runtime.writers.get(segment.id)
        if writer is None or writer.state is not WriterState.OPEN or not writer.index.files:
            return False
        config = runtime.state.config
        age_us = self._parts.clock.now_us() - segment.opened_us
        return writer.index.size_bytes >= config.segment_bytes or age_us >= config.segment_seconds * 1e6

    # -- its segments --------------------------------------------------------------------------------------

    def _kept_segments(self, runtime: TopicRuntime) -> Iterator[Segment]:
        """Our own open segments, and the sealed ones where the topic is ours to keep."""
        keeps = self.keeps(runtime)
        for segment in runtime.state.segments:
            if keeps if segment.state == "sealed" else _is_ours(runtime.writers.get(segment.id)):
                yield segment

    def keeps(self, runtime: TopicRuntime) -> bool:
        """Whether it is this broker that looks after what no broker owns of a topic.

        Two that both think so do the same work twice and no harm: each step is a conditional put or a deletion of what
        nothing refers to.
        """
        return keeper(self._parts.coordinator.brokers(), runtime.topic) == self._parts.broker

    async def _look(self, runtime: TopicRuntime, segment: Segment) -> None:
        """Have the upkeep of a segment at hand; of those of former lives, a few more each round."""
        place = (runtime.topic, segment.id)
        writer = runtime.writers.get(segment.id)
        if place not in self._upkeeps and not _is_ours(writer):
            if not self._first_looks:
                return
            self._first_looks -= 1
        index = await runtime.index(segment.id)
        known = self._upkeeps.get(place)
        if known is None or known.index is not index:
            born_here = writer is not None and _is_ours(writer) and writer.index is index
            self._upkeeps[place] = self._upkeep(runtime, segment.id, index, born_here=born_here)

    def _upkeep(self, runtime: TopicRuntime, segment_id: int, index: SegmentIndex, *, born_here: bool) -> SegmentUpkeep:
        parts = self._parts

        async def still_there() -> bool:
            record = await parts.catalogue.read(runtime.topic)
            return record is not None and record.state.segment(segment_id) is not None

        def recent(start: int, end: int) -> pa.Table | None:
            tail = runtime.tail(segment_id)
            return None if tail is None else tail.between(start, end)

        return SegmentUpkeep(
            parts.store,
            parts.clock,
            runtime.ref(segment_id),
            index,
            broker=parts.broker,
            grace_seconds=parts.settings.grace,
            rollup_age_seconds=parts.settings.rollup_age,
            executor=parts.upkeep,
            look=still_there,
            born_here=born_here,
            recent=recent,
        )

    async def _keep_segment(self, runtime: TopicRuntime, segment: Segment) -> None:
        upkeep = self._upkeeps.get((runtime.topic, segment.id))
        if upkeep is None or not upkeep.needs_a_look(segment.start_offset):
            return
        try:
            kept = await upkeep.keep(rollup_bytes=runtime.state.config.rollup_bytes, start_offset=segment.start_offset)
        except ObjectNotFound:
            # Another process rolled up and deleted what our index names.
            runtime.distrust_index(segment.id)
            raise
        self._parts.metrics.rollups.labels(runtime.topic).inc(kept.rollups)
        self._parts.metrics.deleted.inc(kept.deleted)

    # -- what goes -----------------------------------------------------------------------------------------

    async def _retain(self, runtime: TopicRuntime) -> None:
        """Move start offsets, then let emptied segments leave topic.json.

        Each is one compare-and-swap, decided on the newest state: stopping before it changes nothing, and whoever
        reads topic.json after it lets the files go, a grace period later.
        """
        retention = runtime.state.config.retention
        if retention.seconds is None and retention.bytes is None:
            return
        now_us, topic = self._parts.clock.now_us(), runtime.topic
        starts = plan_retention(runtime.state, await self._indexes(runtime), now_us)
        if starts:
            await self._change(runtime, lambda state: with_starts(state, starts))
        grace_seconds = self._parts.settings.grace
        leaving = removable(runtime.state, now_us, grace_seconds=grace_seconds)
        if leaving:
            # Kept before topic.json forgets them: whoever stops in between leaves them in both, and does it again.
            await self._parts.catalogue.write_history(topic, leaving)
            written = {segment.id for segment in leaving}

            def remove(state: TopicState) -> TopicState | None:
                still = {s.id for s in removable(state, now_us, grace_seconds=grace_seconds)}
                return without_segments(state, still & written, now_us)

            await self._change(runtime, remove)

    async def _indexes(self, runtime: TopicRuntime) -> dict[int, SegmentIndex]:
        """Indexes of the segments that retention is decided on: those at hand, and for sizes all open ones."""
        indexes: dict[int, SegmentIndex] = {}
        for segment in runtime.state.segments:
            upkeep = self._upkeeps.get((runtime.topic, segment.id))
            if upkeep is not None:
                indexes[segment.id] = upkeep.index
            elif segment.state == "open":
                indexes[segment.id] = await runtime.index(segment.id)
        return indexes

    async def _change(self, runtime: TopicRuntime, decide: Callable[[TopicState], TopicState | None]) -> None:
        state = await self._parts.catalogue.change(runtime.topic, decide)
        if state is not None:
            runtime.apply(state)

    async def _remove(self, runtime: TopicRuntime) -> None:
        """Delete the files of segments (of deleted topics too) whose removal is a grace period old.

        The entry in topic.json goes last: whoever stops before that deletes again what is left.
        """
        oldest_us = self._parts.clock.now_us() - self._parts.settings.grace * 1e6
        for removal in [r for r in runtime.state.removals if r.since_us <= oldest_us]:
            count = await delete_segment(self._parts.store, runtime.topic, removal.segment)
            self._parts.metrics.deleted.inc(count)
            await self._change(runtime, partial(without_removal, segment_id=removal.segment))

    async def _sweep_loads(self, runtime: TopicRuntime) -> None:
        """Give up loads that were never committed; their files go like those of any removed segment.

        One compare-and-swap: a commit of such a load comes before it, and then it is none any more, or is refused.
        """
        decide = partial(sweeping, now_us=self._parts.clock.now_us())
        if decide(runtime.state) is not None:
            await self._change(runtime, decide)

    async def _sweep(self, runtime: TopicRuntime) -> None:
        """Delete expired uploads that nothing refers to, now and then.

        A publish that was accepted before the moment from which expiry counts may still wait to be stored: the
        files are looked through only when all of those have been answered.
        """
        topic, clock = runtime.topic, self._parts.clock
        sweep = self._sweeps.get(topic)
        if sweep is None:
            if clock.monotonic_seconds() - self._swept_seconds.get(topic, -1e9) < SWEEP_SECONDS:
                return
            self._swept_seconds[topic] = clock.monotonic_seconds()
            before_us = clock.now_us() - int((EXPIRES_SECONDS + self._parts.settings.grace) * 1e6)
            async with aclosing(expired_uploads(self._parts.store, topic, before_us)) as expired:
                if await anext(expired, None) is None:
                    return
            ours = {i: writer for i, writer in runtime.writers.items() if _is_ours(writer)}
            sweep = self._sweeps[topic] = _Sweep(before_us, {i: w.accepted_end for i, w in ours.items()})
        waiting = (runtime.writers.get(i) for i, end in sweep.ends.items())
        if any(w is not None and _is_ours(w) and w.index.end < sweep.ends[w.ref.segment] for w in waiting):
            return
        del self._sweeps[topic]
        indexes = {s.id: u.index for s in runtime.state.segments if (u := self._upkeeps.get((topic, s.id)))}
        await sweep_uploads(
            self._parts.store,
            topic,
            indexes,
            self._refs,
            before_us=sweep.before_us,
            executor=self._parts.upkeep,
            bare=load_segments(runtime.state),
        )

    def _forget_the_gone(self) -> None:
        """Let go of what belongs to segments that no topic has any more."""
        topics = self._broker.topics
        present = {(name, s.id) for name, runtime in topics.items() for s in runtime.state.segments}
        for place in [place for place in self._upkeeps if place not in present]:
            del self._upkeeps[place]
        longest_ago = self._parts.clock.monotonic_seconds() - LONGEST_PAUSE_SECONDS
        for key in [key for key, pause in self._pauses.items() if pause.until_seconds < longest_ago]:
            del self._pauses[key]


def _is_ours(writer: SegmentWriter | None) -> bool:
    return writer is not None and writer.state is not WriterState.STOPPED
