"""The indexes of a topic's segments as this broker knows them, and how they keep up with other writers."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable

from filer.clock import Clock
from filer.errors import BraidError, StoreError
from filer.segment.listed_files import compare_listed
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import (
    SegmentRef,
    catch_up,
    find_again,
    is_superseded,
    pass_over_end,
    reach,
    recover_by_names,
    recover_index,
)
from filer.stores.store import Store
from filer.topic.topic_state import Segment
from filer.verification.stored_files import verify_file

LOOK_AGAIN_SECONDS = 2.0
"""How often a broker checks whether lost objects of a segment are back."""
HOLES_AT_ONCE = 16
CHECK_AGAIN_SECONDS = 10.0
"""How often one damaged, seemingly unchanged object of a segment is read whole: time and size may be the old ones."""


def nobody_told(segment_id: int, index: SegmentIndex) -> None:
    """For indexes whose losses are not reported."""


async def _nothing_new() -> None:
    return None


class SegmentIndexes:
    """Indexes by segment id. Callers that ask for the same segment at the same time share one read of the store.

    `on_rebuilt` is called with a segment whose snapshot was damaged: its index was read from its files instead.
    `on_lost` is called with each index that may have lost or regained objects. `refresh` reads the topic's record,
    which may have given up the lost objects by now (`mq topic repair`).
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ref: Callable[[int], SegmentRef],
        on_lost: Callable[[int, SegmentIndex], None] = nobody_told,
        *,
        on_rebuilt: Callable[[int], None] = lambda segment_id: None,
        refresh: Callable[[], Awaitable[None]] = _nothing_new,
    ) -> None:
        self.known: dict[int, SegmentIndex] = {}
        self._store, self._clock, self._ref = store, clock, ref
        self._on_lost, self._on_rebuilt, self._refresh = on_lost, on_rebuilt, refresh
        self._looked_seconds: dict[int, float] = {}
        self._looked_at: dict[int, int] = {}
        self._listed_seconds: dict[int, float] = {}
        self._checked_seconds: dict[int, float] = {}
        self._checks: dict[int, int] = {}
        self._read_seconds: dict[int, float] = {}
        self._compared_seconds: dict[int, float] = {}
        self._reading: dict[int, asyncio.Task[SegmentIndex]] = {}

    def put(self, segment_id: int, index: SegmentIndex) -> None:
        """Use this index from now on."""
        self.known[segment_id] = index
        self._on_lost(segment_id, index)

    def give_up(self, segment_id: int, *, is_written_here: bool) -> None:
        """Apply what topic.json says is given up of a segment by now.

        An index that cannot be changed is recovered at its next use. That does not hold for a segment which is written
        here: its owner goes on by its index, and ranges that the index cannot apply are still reported as lost here.
        """
        known = self.known.get(segment_id)
        if known is None:
            return
        given_up = self._ref(segment_id).given_up
        if not known.give_up(given_up) and not is_written_here:
            self.forget(segment_id)
            return
        if given_up.at(known.end) is not None:
            known.blocked = None
        self._on_lost(segment_id, known)

    def forget(self, segment_id: int) -> None:
        """Recover the index at its next use, if there is one."""
        self.known.pop(segment_id, None)
        self._read_seconds.pop(segment_id, None)
        self._compared_seconds.pop(segment_id, None)

    def forget_older(self, segment_id: int, seconds: float) -> None:
        """As `forget`, if the index was read from the store longer ago."""
        if self._age_seconds(segment_id) > seconds:
            self.forget(segment_id)

    async def get(self, segment: Segment, *, longest_seconds: float) -> SegmentIndex:
        """Return the index as it was at most `longest_seconds` ago. Raises as `recover_index`."""
        known = self.known.get(segment.id)
        if known is not None and await self._is_superseded(segment.id, known):
            # No read by names within a hole would find a roll-up that reaches beyond it.
            self.forget(segment.id)
            known = None
        if known is not None and self._age_seconds(segment.id) < _longest_seconds(segment, known, longest_seconds):
            await self.look_again(segment.id, known)
            return known
        if not longest_seconds and (reading := self._reading.get(segment.id)) is not None:
            # That read may have begun before the newest files were there.
            with contextlib.suppress(Exception):
                await asyncio.shield(reading)
        reading = self._reading.get(segment.id)
        if reading is None:
            reading = asyncio.create_task(self._read(segment), name=f"index of segment {segment.id}")
            self._reading[segment.id] = reading
            reading.add_done_callback(lambda task: self._read_ended(segment.id, task))
        return await asyncio.shield(reading)

    async def _is_superseded(self, segment_id: int, index: SegmentIndex) -> bool:
        """Whether others have rolled up what is lost here, unless that was checked a moment ago."""
        now_seconds = self._clock.monotonic_seconds()
        if not index.lost or now_seconds - self._listed_seconds.get(segment_id, -1e9) < CHECK_AGAIN_SECONDS:
            return False
        self._listed_seconds[segment_id] = now_seconds
        with contextlib.suppress(BraidError):
            return await is_superseded(self._store, self._ref(segment_id), index)
        return False

    async def look_again(self, segment_id: int, index: SegmentIndex) -> None:
        """Check whether lost objects of the index are back or given up, unless that was done a moment ago.

        If the store does not answer, nothing changes, and the next caller checks again.
        """
        now_seconds = self._clock.monotonic_seconds()
        if not index.lost or now_seconds - self._looked_seconds.get(segment_id, -1e9) < LOOK_AGAIN_SECONDS:
            return
        self._looked_seconds[segment_id] = now_seconds
        with contextlib.suppress(BraidError):
            await self._refresh()
        if not (lost := index.lost):
            return
        first = self._looked_at.get(segment_id, 0) % len(lost)
        self._looked_at[segment_id] = first + HOLES_AT_ONCE
        for hole in [*lost[first:], *lost[:first]][:HOLES_AT_ONCE]:
            with contextlib.suppress(BraidError):
                await find_again(self._store, self._ref(segment_id), index, hole)
        await self._check_again(segment_id, index)
        self._on_lost(segment_id, index)

    async def _check_again(self, segment_id: int, index: SegmentIndex) -> None:
        """Read the next damaged object that seems unchanged, unless one was read a moment ago."""
        now_seconds = self._clock.monotonic_seconds()
        unchanged = [hole for hole in index.lost if hole.etag is not None]
        if not unchanged or now_seconds - self._checked_seconds.get(segment_id, -1e9) < CHECK_AGAIN_SECONDS:
            return
        self._checked_seconds[segment_id] = now_seconds
        number = self._checks[segment_id] = self._checks.get(segment_id, -1) + 1
        hole, ref = unchanged[number % len(unchanged)], self._ref(segment_id)
        with contextlib.suppress(BraidError):
            verdict, _ = await verify_file(self._store, ref, hole.name)
            if verdict.is_sound:
                await find_again(self._store, ref, index, hole, is_sound=True)

    async def lose(self, segment_id: int, index: SegmentIndex, facts: FileFacts, *, damaged: bool) -> None:
        """Make a hole in the index in the place of a file that cannot be read, until it is put back."""
        etag = None
        if damaged:
            with contextlib.suppress(BraidError):
                etag = (await self._store.head(self._ref(segment_id).key(facts.name))).etag
        index.lose(facts, damaged=damaged, etag=etag)
        self._looked_seconds[segment_id] = self._checked_seconds[segment_id] = self._clock.monotonic_seconds()
        self._on_lost(segment_id, index)

    async def compare(self, segment_id: int, index: SegmentIndex, *, longest_seconds: float) -> None:
        """Update the sizes of files that others have written again since, unless that was done lately.

        A file of another size that cannot be read is a hole from then on. A file that is not listed may have been
        rolled up. If the store does not answer, nothing changes.
        """
        now_seconds = self._clock.monotonic_seconds()
        # No other file is ever written again.
        if not any(facts.name.rolled for facts in index.files):
            return
        if now_seconds - self._compared_seconds.get(segment_id, -1e9) < longest_seconds:
            return
        self._compared_seconds[segment_id] = now_seconds
        with contextlib.suppress(StoreError):
            found = await compare_listed(self._store, self._ref(segment_id), index)
            for before, now in found.learned:
                index.learn(before, now)
            for facts in found.damaged:
                await self.lose(segment_id, index, facts, damaged=True)

    async def lose_gone(self, segment_id: int, index: SegmentIndex, segment: Segment | None) -> bool:
        """Make holes in the place of missing or damaged files; returns whether the index names none any more.

        Call it only with an index that was read from the store a moment ago, or which this broker alone changes: files
        that others have rolled up stay for a grace period. `segment` is one that is not written here. Raises
        `StoreError`.
        """
        found = await compare_listed(self._store, self._ref(segment_id), index)
        if found.gone and segment is not None and await self.rebuild(segment, found.gone[0].start):
            return True
        for facts in (*found.gone, *found.damaged):
            await self.lose(segment_id, index, facts, damaged=facts in found.damaged)
        # A seal has no messages, so it leaves no hole.
        return not any(facts in index.files for facts in found.gone)

    async def rebuild(self, segment: Segment, offset: int) -> bool:
        """Read the index from the names of files alone, since the present one names a missing file at `offset`.

        Returns whether the new one has the offset, and is used from now on. Then the snapshot is an older one that was
        put back. The files of a bulk load are known by their snapshot alone. Raises `StoreError`.
        """
        if segment.load is not None:
            return False
        index = await recover_by_names(self._store, self._ref(segment.id), start_offset=segment.start_offset)
        if not index.readable(offset):
            return False
        if segment.end_offset is not None and not index.sealed and index.end < segment.end_offset:
            reach(self._ref(segment.id), index, segment.end_offset)
        self._on_rebuilt(segment.id)
        self.put(segment.id, index)
        return True

    async def read_anew(self, segment: Segment, known_end: int) -> SegmentIndex:
        """Return the index of an open segment as the store has it now, for an owner to go on with; does not use it.

        The log reaches at least to `known_end`. No other caller has this index: reads under way change another one. The
        index of a writer cannot be exchanged later, so it must not begin with an older snapshot that was put back.
        Raises as `recover_index`.
        """
        ref = self._ref(segment.id)
        index = await recover_index(self._store, ref, start_offset=segment.start_offset)
        rebuilt = index.snapshot_damaged
        if gone := (await compare_listed(self._store, ref, index)).gone:
            by_names = await recover_by_names(self._store, ref, start_offset=segment.start_offset)
            if any(by_names.readable(facts.start) for facts in gone):
                index, rebuilt = by_names, True
        if rebuilt:
            self._on_rebuilt(segment.id)
        if not index.sealed and index.end < known_end:
            reach(ref, index, known_end)
        pass_over_end(ref, index)
        return index

    async def close(self) -> None:
        """Stop reading."""
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _age_seconds(self, segment_id: int) -> float:
        return self._clock.monotonic_seconds() - self._read_seconds.get(segment_id, -1e9)

    async def _read(self, segment: Segment) -> SegmentIndex:
        """Read only the new part, unless nothing is known or retention has moved on."""
        began_seconds = self._clock.monotonic_seconds()
        known, ref = self.known.get(segment.id), self._ref(segment.id)
        if known is not None and known.start_offset == segment.start_offset:
            index = await catch_up(self._store, ref, known)
        else:
            index = await recover_index(self._store, ref, start_offset=segment.start_offset)
            if index.snapshot_damaged:
                self._on_rebuilt(segment.id)
        if segment.end_offset is not None and not index.sealed and index.end < segment.end_offset:
            # topic.json knows where the log ends. All of it was on the store when that was written.
            reach(self._ref(segment.id), index, segment.end_offset)
        if self.known.get(segment.id) is known:
            # Otherwise there is a newer index, or this one was found to be wrong: it must not come back.
            self.known[segment.id] = index
            self._read_seconds[segment.id] = began_seconds
            self._on_lost(segment.id, index)
        return index

    def _read_ended(self, segment_id: int, task: "asyncio.Task[SegmentIndex]") -> None:
        del self._reading[segment_id]
        if not task.cancelled():
            task.exception()  # the callers have got it


def _longest_seconds(segment: Segment, index: SegmentIndex, wanted_seconds: float) -> float:
    """Return how old the index may be: of any age if it is whole. A damaged seal may be put back at any time."""
    if not index.sealed and not segment.is_over_at(index.end):
        return wanted_seconds
    return math.inf if index.blocked is None else max(wanted_seconds, LOOK_AGAIN_SECONDS)
