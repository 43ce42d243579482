"""The indexes of a topic's segments as far as this broker knows them, and how they keep up with other writers."""

import asyncio
import contextlib
from collections.abc import Callable

from filer.clock import Clock
from filer.segment_index import SegmentIndex
from filer.segment_log import SegmentRef, catch_up, recover_index
from filer.store import Store
from filer.topic_state import Segment


class SegmentIndexes:
    """Indexes by segment id. However many ask at once, the store is asked once for each segment."""

    def __init__(self, store: Store, clock: Clock, ref: Callable[[int], SegmentRef]) -> None:
        self.known: dict[int, SegmentIndex] = {}
        self._store, self._clock, self._ref = store, clock, ref
        self._seen_seconds: dict[int, float] = {}
        self._looking: dict[int, asyncio.Task[SegmentIndex]] = {}

    def put(self, segment_id: int, index: SegmentIndex) -> None:
        """Use that one from now on."""
        self.known[segment_id] = index

    def forget(self, segment_id: int) -> None:
        """Recover it at its next use, if there is one."""
        self.known.pop(segment_id, None)
        self._seen_seconds.pop(segment_id, None)

    def forget_older(self, segment_id: int, seconds: float) -> None:
        """As `forget`, of one that was read from the store longer ago."""
        if self._age_seconds(segment_id) > seconds:
            self.forget(segment_id)

    async def get(self, segment: Segment, *, longest_seconds: float) -> SegmentIndex:
        """The index as it was at most so long ago; raises as `recover_index`."""
        known = self.known.get(segment.id)
        if known is not None and (_is_whole(segment, known) or self._age_seconds(segment.id) < longest_seconds):
            return known
        if not longest_seconds and (looking := self._looking.get(segment.id)) is not None:
            # It may have looked past what has come since.
            with contextlib.suppress(Exception):
                await asyncio.shield(looking)
        looking = self._looking.get(segment.id)
        if looking is None:
            looking = asyncio.create_task(self._look(segment), name=f"index of segment {segment.id}")
            self._looking[segment.id] = looking
            looking.add_done_callback(lambda task: self._looked(segment.id, task))
        return await asyncio.shield(looking)

    async def close(self) -> None:
        """Stop looking."""
        tasks = list(self._looking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _age_seconds(self, segment_id: int) -> float:
        return self._clock.monotonic_seconds() - self._seen_seconds.get(segment_id, -1e9)

    async def _look(self, segment: Segment) -> SegmentIndex:
        """Only what is new is read, unless nothing is known or retention has moved on."""
        began_seconds = self._clock.monotonic_seconds()
        known, ref = self.known.get(segment.id), self._ref(segment.id)
        if known is not None and known.start_offset == segment.start_offset:
            index = await catch_up(self._store, ref, known)
        else:
            index = await recover_index(self._store, ref, start_offset=segment.start_offset)
        if self.known.get(segment.id) is known:
            # Else somebody has a newer one, or found a fault in it: it must not come back.
            self.known[segment.id] = index
            self._seen_seconds[segment.id] = began_seconds
        return index

    def _looked(self, segment_id: int, task: "asyncio.Task[SegmentIndex]") -> None:
        del self._looking[segment_id]
        if not task.cancelled():
            task.exception()  # whoever asked has been told


def _is_whole(segment: Segment, index: SegmentIndex) -> bool:
    return index.sealed or (segment.end_offset is not None and index.end >= segment.end_offset)
