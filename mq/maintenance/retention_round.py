"""Retention, the removal of segments, and abandoning bulk loads that were never committed."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from filer.event_log import EventLog
from filer.segment.segment_index import SegmentIndex
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue
from filer.topic.reservations import sweeping
from filer.topic.topic_state import TopicState
from filer.upkeep.deletion import delete_segment
from filer.upkeep.deletion_clock import DeletionClock
from filer.upkeep.retention import (
    plan_floors,
    plan_retention,
    removable,
    with_starts,
    without_removal,
    without_segments,
)
from mq.metrics.metrics import Metrics
from mq.topic.topic_runtime import TopicRuntime

Floors: TypeAlias = Mapping[str, Callable[[], Mapping[int, int]]]
"""For topics that hold brokers' state, by name: the floors that are known here (`plan_floors`), by segment.

Every broker has the same topics here. A floor may be returned once the messages that replace everything before it are
on the store, not only with followers: files are deleted by it.
"""

_log = EventLog(__name__)


class RetentionRound:
    """Moves start offsets, removes segments from topic.json, and deletes their files."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        metrics: Metrics,
        deletions: DeletionClock,
        floors: Floors,
        *,
        grace_seconds: float,
    ) -> None:
        self._floors = floors
        self._store, self._catalogue, self._metrics = store, catalogue, metrics
        self._deletions, self._grace_seconds = deletions, grace_seconds

    async def retain(self, runtime: TopicRuntime, at_hand: Mapping[int, SegmentIndex]) -> None:
        """Move start offsets, then remove emptied segments from topic.json. `at_hand` has the indexes read already.

        Each is one compare-and-swap, decided on the newest state. Stopped before it, nothing has changed. After it, any
        broker that reads topic.json deletes the files a grace period later.
        """
        retention, has_floors = runtime.state.config.retention, runtime.topic in self._floors
        now_us, grace_seconds = self._deletions.now_us, self._grace_seconds
        expires = retention.seconds is not None or retention.bytes is not None
        if now_us is None or not (expires or has_floors):
            return
        if expires:
            indexes = await _indexes(runtime, at_hand)
            # Planned anew on the newest state: another broker may have made topics keep more since, unknown to this
            # one.
            await self._move(runtime, lambda state: plan_retention(state, indexes, now_us))
        leaving = removable(runtime.state, now_us, grace_seconds=grace_seconds, has_floors=has_floors)
        if leaving:
            # The history is written before topic.json forgets the segments. Stopped in between, both have them, and the
            # next round repeats this.
            await self._catalogue.write_history(runtime.topic, leaving)
            written = {segment.id for segment in leaving}

            def remove(state: TopicState) -> TopicState | None:
                found = removable(state, now_us, grace_seconds=grace_seconds, has_floors=has_floors)
                still = {s.id for s in found}
                # The record was just read, so this is no earlier than what it says.
                return without_segments(state, still & written, self._store.time.latest_us)

            if await self._change(runtime, remove):
                _log.info("segments_removed", topic=runtime.topic, segments=written)

    async def pass_floors(self, runtime: TopicRuntime, at_hand: Mapping[int, SegmentIndex]) -> None:
        """Move start offsets up to the floors known here, and past segments whose successors have passed them.

        Every broker does this for the segments whose floors it knows: `at_hand` has the indexes of its own. It is one
        compare-and-swap, decided on the newest state. Stopped before it, nothing has changed. After it, any broker that
        reads topic.json deletes the files a grace period later. That is safe whichever broker owns the segments by
        then, since a floor is true for ever (`plan_floors`): also a coordinator that has lost its segment may still
        report it.
        """
        if (floors_of := self._floors.get(runtime.topic)) is not None:
            floors = dict(floors_of())
            await self._move(runtime, lambda state: plan_floors(state, at_hand, floors))

    async def delete_removed(self, runtime: TopicRuntime) -> None:
        """Delete the files of segments that were removed a grace period ago, those of deleted topics too.

        The entry in topic.json goes last: stopped before that, the next round deletes the rest.
        """
        now_us = self._deletions.now_us
        if now_us is None:
            return
        oldest_us = now_us - self._grace_seconds * 1e6
        for removal in [r for r in runtime.state.removals if r.since_us <= oldest_us]:
            count = await delete_segment(self._store, runtime.topic, removal.segment)
            self._metrics.upkeep.deleted.inc(count)
            if await self._change(runtime, partial(without_removal, segment_id=removal.segment)):
                _log.info("segment_deleted", topic=runtime.topic, segment=removal.segment, files=count)

    async def abandon_bulk_loads(self, runtime: TopicRuntime) -> None:
        """Abandon bulk loads that were never committed; their files go like those of any removed segment.

        This is one compare-and-swap. A commit that comes before it ends the reservation; one that comes after it is
        refused.
        """
        now_us = self._deletions.now_us
        if now_us is None:
            return
        decide = partial(sweeping, now_us=now_us)
        if decide(runtime.state) is not None:
            reserved = {load.id for load in runtime.state.loads if load.reserved}
            if await self._change(runtime, decide):
                for load_id in reserved - {load.id for load in runtime.state.loads if load.reserved}:
                    _log.info("load_abandoned", topic=runtime.topic, load=load_id)

    async def _move(self, runtime: TopicRuntime, plan: Callable[[TopicState], dict[int, int]]) -> None:
        """Make segments start where the plan says."""
        starts = plan(runtime.state)
        if starts and await self._change(runtime, lambda state: with_starts(state, plan(state))):
            _log.debug("messages_expired", topic=runtime.topic, segments=starts)

    async def _change(self, runtime: TopicRuntime, decide: Callable[[TopicState], TopicState | None]) -> bool:
        """Change the record by `decide`; returns whether it was changed."""
        record = await self._catalogue.change_record(runtime.topic, decide)
        if record is None:
            return False
        runtime.apply(record.state)
        return record.is_ours


async def _indexes(runtime: TopicRuntime, at_hand: Mapping[int, SegmentIndex]) -> dict[int, SegmentIndex]:
    """Return the indexes that retention is decided on: those at hand, and all open segments', for their sizes."""
    indexes = dict(at_hand)
    for segment in runtime.state.open_segments:
        if segment.id not in indexes:
            indexes[segment.id] = await runtime.reads.index(segment.id)
    return indexes
