"""The scrub: reads everything stored once in a period, and reports what is damaged or missing.

Segments are shared among all brokers, whichever owns them. The progress is kept on the store (`scrub_record`), so it
does not matter which broker goes on, and after how many restarts. Two brokers may read the same segment at the same
time, when a broker comes or goes: that costs a reading, and nothing else. The scrub changes nothing but its record.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from filer import keys
from filer.clock import Clock
from filer.errors import UnreadableObject
from filer.keys import FileName
from filer.stores.decorators.paced_store import ByteRate, PacedStore
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import Segment, TopicState
from filer.verification.scrub_record import (
    MOST_FOUND,
    RECORDS,
    Finding,
    Reading,
    ScrubRecord,
    SegmentScrub,
    change_scrub,
    read_scrub,
)
from filer.verification.scrub_schedule import ScrubUnit, bytes_per_second, due, oldest_seconds
from filer.verification.stored_segment import ReadPlan
from filer.verification.stored_topic import verify_records, verify_segment_of
from filer.verification.verdict import Verdict
from leader.membership.coordinator import Coordinator
from leader.policy.placement import maintainer
from mq.maintenance.failure_pauses import FailurePauses
from mq.maintenance.scrub_findings import ScrubFindings
from mq.metrics.metrics import Metrics

LONGEST_ROUND_SECONDS = 600.0
"""How often a broker looks for work to scrub, and at most how much of its reading a restart costs."""
ROUNDS_PER_PERIOD = 20
_DAY_SECONDS = 86_400.0


class Scrubber:
    """Scrubs this broker's share. `findings` has the findings of all brokers.

    One row group is in memory at a time, and is hashed in `pool`. All methods belong to the event loop's thread.
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
        pool: Executor,
        draining: asyncio.Event,
        period_days: float,
        most_bytes_per_second: int,
    ) -> None:
        self._broker, self._store, self._clock, self._catalogue = broker, store, clock, catalogue
        self._coordinator, self._metrics, self._pool, self._draining = coordinator, metrics, pool, draining
        self._period_seconds, self._most = period_days * _DAY_SECONDS, most_bytes_per_second
        self._round_seconds = min(LONGEST_ROUND_SECONDS, self._period_seconds / ROUNDS_PER_PERIOD)
        self._rate = ByteRate(clock, most_bytes_per_second)
        self._pauses = FailurePauses(clock, metrics, interval_seconds=self._round_seconds)
        self._round_ends_seconds = self._looked_seconds = self._oldest_then_seconds = 0.0
        self._removed: set[str] = set()
        self.findings = ScrubFindings(metrics)
        metrics.upkeep.scrub_period_seconds.set(self._period_seconds)

    @property
    def oldest_seconds(self) -> float:
        """For how long the longest-waiting object was not read; 0 if there is none. It grows while a file is read."""
        if not self._oldest_then_seconds:
            return 0.0
        return self._oldest_then_seconds + self._clock.monotonic_seconds() - self._looked_seconds

    async def run(self) -> None:
        """Scrub until cancelled; not at all if the period is 0."""
        while self._period_seconds:
            await self._clock.sleep(self._round_seconds)
            while await self.round():
                pass

    async def round(self) -> bool:
        """Look for work, and read what is due for as long as a round takes; returns whether more is due.

        Work that fails is logged, counted, and tried again in a later round.
        """
        self._round_ends_seconds = self._clock.monotonic_seconds() + self._round_seconds
        units: list[ScrubUnit] = []
        await self._pauses.attempt("", "look of the scrub", partial(self._look, units))
        now_us = self._catalogue.stamp_us()
        self._looked_seconds, self._oldest_then_seconds = self._clock.monotonic_seconds(), oldest_seconds(units, now_us)
        self._metrics.upkeep.scrub_oldest_seconds.set(self.oldest_seconds)
        self._rate.bytes_per_second = bytes_per_second(units, self._period_seconds, self._most)
        for unit in due(units, now_us, self._period_seconds):
            if self._draining.is_set():
                return False
            if self._is_over():
                return True
            what = f"scrub of segment {unit.scrub.segment}" if unit.scrub.segment != RECORDS else "scrub of its records"
            await self._pauses.attempt(unit.topic, what, partial(self._scrub, unit))
        self._pauses.forget_old()
        return self._is_over()

    def _is_over(self) -> bool:
        return self._clock.monotonic_seconds() >= self._round_ends_seconds

    async def _look(self, units: list[ScrubUnit]) -> None:
        """Add this broker's share of all topics to `units`, and apply the findings of other brokers."""
        for topic in await self._catalogue.names():
            try:
                record = await self._catalogue.read(topic)
            except UnreadableObject:
                continue  # the catalogue reports it
            if record is None:
                continue
            if record.state.deleted:
                await self._remove(topic)
                continue
            self._removed.discard(topic)
            scrub = await read_scrub(self._store, topic)
            self.findings.apply(topic, scrub)
            units += self._share_of(record.state, scrub)

    def _share_of(self, state: TopicState, record: ScrubRecord) -> list[ScrubUnit]:
        known = {each.segment: each for each in record.segments}
        brokers = self._coordinator.brokers()
        units = [ScrubUnit(state.topic, state.created_us, known.get(RECORDS, SegmentScrub(segment=RECORDS)))]
        for segment in state.segments:
            scrub = known.get(segment.id, SegmentScrub(segment=segment.id))
            units.append(ScrubUnit(state.topic, segment.opened_us, scrub, segment.stored_bytes or 0))
        return [each for each in units if maintainer(brokers, each.topic, each.scrub.segment) == self._broker]

    async def _remove(self, topic: str) -> None:
        """Delete the scrub's record of a deleted topic."""
        self.findings.forget(topic)
        if topic not in self._removed and maintainer(self._coordinator.brokers(), topic, RECORDS) == self._broker:
            await self._store.delete([keys.scrub_record(topic)])
            self._removed.add(topic)

    async def _scrub(self, unit: ScrubUnit) -> None:
        """Read a segment from the end of its last reading, until its end or that of the round.

        The record is written after the reading. Stopped before that, the next broker reads the same again.
        """
        segment, now_us = unit.scrub.segment, self._catalogue.stamp_us()
        known = replace(unit, scrub=(await read_scrub(self._store, unit.topic)).of(segment))
        if not due([known], now_us, self._period_seconds):
            return  # another broker has read it since the look
        begin = known.scrub.under_way
        if begin is None or not now_us - self._period_seconds * 1e6 <= begin.began_us <= now_us:
            begin = Reading(began_us=now_us)
        slice_ = await self._read(unit.topic, segment, begin)
        if slice_ is None:
            return
        present = await self._segments(unit.topic)

        def decide(record: ScrubRecord) -> ScrubRecord:
            changed = record.with_segment(slice_.applied_to(record.of(segment)))
            return ScrubRecord(segments=tuple(each for each in changed.segments if each.segment in present))

        self.findings.apply(unit.topic, await change_scrub(self._store, unit.topic, decide))

    async def _segments(self, topic: str) -> set[int]:
        record = await self._catalogue.read(topic)
        segments: Sequence[Segment] = () if record is None else record.state.segments
        return {RECORDS, *(segment.id for segment in segments)}

    async def _read(self, topic: str, segment: int, begin: Reading) -> "_Slice | None":
        """Read until the end of the segment or of the round, at least one file; None if the broker drains.

        Files are read for at least as long as the listing of them took.
        """
        store = PacedStore(self._store, self._rate)
        began_seconds, ends_seconds = self._clock.monotonic_seconds(), self._round_ends_seconds
        found, reached, counted_bytes = {each.key: each for each in begin.found}, begin.reached, 0
        is_whole = True
        async with aclosing(self._verdicts(store, topic, segment, begin.reached)) as verdicts:
            async for verdict in verdicts:
                now_seconds = self._clock.monotonic_seconds()
                if not counted_bytes:
                    ends_seconds = max(ends_seconds, now_seconds + now_seconds - began_seconds)
                if now_seconds >= ends_seconds and _end_of(verdict.key) > reached > begin.reached:
                    # Only here, where the next file begins, is everything about those before it reported.
                    is_whole = False
                    break
                self._metrics.upkeep.scrubbed_objects.labels(verdict.condition).inc()
                self._metrics.upkeep.scrubbed_bytes.inc(store.read_bytes - counted_bytes)
                counted_bytes = store.read_bytes
                if not verdict.is_sound and len(found) < MOST_FOUND:
                    found[verdict.key] = Finding(key=verdict.key, condition=verdict.condition, why=verdict.why)
                reached = max(reached, _end_of(verdict.key))
                if self._draining.is_set():
                    return None
        reading = Reading(
            began_us=begin.began_us,
            reached=reached,
            size_bytes=begin.size_bytes + store.read_bytes,
            found=tuple(found.values()),
        )
        return _Slice(reading, is_whole)

    def _verdicts(self, store: Store, topic: str, segment: int, from_offset: int) -> AsyncGenerator[Verdict, None]:
        if segment == RECORDS:
            return verify_records(store, self._catalogue, topic)
        plan = ReadPlan(from_offset=from_offset, files_at_once=1, hashing=self._pool)
        return verify_segment_of(store, self._catalogue, topic, segment, plan=plan)


@dataclass(frozen=True, slots=True)
class _Slice:
    """The part of a segment read by now, and whether that is all of it."""

    reading: Reading
    is_whole: bool

    def applied_to(self, scrub: SegmentScrub) -> SegmentScrub:
        """Return the state of the segment with this part."""
        reading = self.reading
        if not self.is_whole:
            return scrub.model_copy(update={"under_way": reading})
        return SegmentScrub(
            segment=scrub.segment,
            read_us=max(scrub.read_us, reading.began_us),
            size_bytes=reading.size_bytes,
            found=reading.found,
        )


def _end_of(key: str) -> int:
    """Return the offset that a reading has reached at least after this object; 0 if it is no segment file."""
    name = FileName.parse(key)
    if name is None:
        return 0
    return name.base + 1 if name.end is None else name.end
