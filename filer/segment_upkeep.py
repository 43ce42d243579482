"""Keeping one segment in shape: roll-ups, snapshots of its index, deletion of what has been superseded.

One process keeps a segment: the owner while it is open, any broker once it is sealed. Where two do, or where one
takes over from another that stopped at any line, nothing is lost; the two may only do some work twice.
Supersession is dated by the wall clock, as its date outlives the process: clocks must not jump, nor differ between
brokers, by more than a small part of the grace period.
"""

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from filer.clock import Clock
from filer.deletion import delete_superseded
from filer.errors import EtagMismatch, ObjectExists, OutcomeUnknown, SegmentMoved
from filer.index_snapshots import snapshot_etag, take_in, write_snapshot
from filer.live_files import FileFacts
from filer.requests import StoredRequest
from filer.rollup import MIN_FILES, MIN_FILES_AT_REST, NEWEST_KEPT, Recent, none_at_hand, plan_rollup, roll_up
from filer.segment_index import SegmentIndex, Superseded
from filer.segment_log import SegmentRef
from filer.store import Store

ROLLUPS_AT_ONCE = 32
SNAPSHOT_FILES = 256
CROWD_FILES = 256
"""With more live files than this, small ones are rolled up however young they are."""
GATHER_SHARE = 0.02


@dataclass(slots=True)
class Kept:
    """What was done: roll-ups written, files deleted."""

    rollups: int = 0
    deleted: int = 0


class SegmentUpkeep:
    """The upkeep of one segment, round by round. All methods belong to the event loop's thread.

    `look` tells whether the segment is still there (a fresh read of topic.json). `born_here`: the index began at
    offset 0 in this process, so nothing stands on the store that it does not know; `recent` has its last messages.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ref: SegmentRef,
        index: SegmentIndex,
        *,
        broker: str,
        grace_seconds: float,
        rollup_age_seconds: float,
        executor: Executor,
        look: Callable[[], Awaitable[bool]],
        born_here: bool,
        recent: Recent = none_at_hand,
    ) -> None:
        self.index = index
        self._store, self._clock, self._ref = store, clock, ref
        self._broker, self._grace_seconds, self._executor, self._look = broker, grace_seconds, executor, look
        self._rollup_age_seconds = rollup_age_seconds
        self._recent = recent
        self._aware = born_here
        self._times_told = 0
        self._etag: str | None = None
        self._snapshot_changes = 0
        self._reshaped = False
        self._deleted_us = 0
        self._looked: tuple[int, bool] | None = None

    def needs_a_look(self, start_offset: int) -> bool:
        """Whether anything has happened, or fallen due, since the last look; cheap."""
        return (
            not self._aware
            or self._looked != (self.index.changes, self._at_rest())
            or start_offset > self.index.start_offset
            or bool(self._due())
        )

    async def keep(self, *, rollup_bytes: int, start_offset: int) -> Kept:
        """Do what there is to do, in the order that makes each step safe.

        Raises any `BraidError`; what was not reached is done at the next call.
        """
        kept = Kept()
        try:
            if not self._aware and not await self._become_aware():
                # Nothing is snapshotted or deleted before all is known; the next call takes in more.
                return kept
            if start_offset > self.index.start_offset:
                # topic.json says so already; forgetting it again (by stopping here) changes nothing.
                self.index.trim(start_offset, self._clock.now_us())
                self._reshaped = True
            looked = (self.index.changes, self._at_rest())
            while kept.rollups < ROLLUPS_AT_ONCE and (run := self._plan(rollup_bytes)):
                await self._roll_up(run)
                kept.rollups += 1
            if not await self._snapshot():
                self._aware, self._looked = False, None
                return kept
            if due := self._due():
                kept.deleted = await delete_superseded(self._store, self._ref, self.index, due)
                self._deleted_us, self._reshaped = self._clock.now_us(), True
        except BaseException:
            # Whether the last write took effect is not known: look at what stands before the next one.
            self._aware = False
            self._looked = None
            raise
        done = not kept.rollups and not kept.deleted
        self._looked = looked if done else None
        return kept

    def _at_rest(self) -> bool:
        """Whether no more files have come for a while: then even a short run is worth rolling up."""
        age_us = self._clock.now_us() - self.index.last_timestamp_us
        return age_us >= self._rollup_age_seconds * 1e6

    def _due(self) -> list[Superseded]:
        """What is to be deleted now: all that is old enough, gathered for a while, as it takes a listing."""
        now_us, grace_us = self._clock.now_us(), self._grace_seconds * 1e6
        if now_us - self._deleted_us < grace_us * GATHER_SHARE:
            return []
        return [old for old in self.index.superseded if now_us - old.since_us >= grace_us]

    def look_again(self) -> None:
        """Other programs have written roll-ups of this segment: take them in at the next call of `keep`."""
        self._aware = False
        self._times_told += 1

    async def _become_aware(self) -> bool:
        told = self._times_told
        self._etag = await snapshot_etag(self._store, self._ref)
        before = self.index.changes
        all_known = await take_in(self._store, self._ref, self.index, clock=self._clock, executor=self._executor)
        self._reshaped = self._reshaped or self.index.changes != before
        # What it was told of meanwhile may not have been in that listing.
        self._aware = all_known and told == self._times_told
        return self._aware

    def _ripe_us(self) -> int:
        """Files up to this time are rolled up even if they are not tiny."""
        age_us = 0 if len(self.index.files) > CROWD_FILES else int(self._rollup_age_seconds * 1e6)
        return self._clock.now_us() - age_us

    def _plan(self, rollup_bytes: int) -> list[FileFacts]:
        return list(
            plan_rollup(
                self.index.files,
                rollup_bytes=rollup_bytes,
                newest_kept=1 if self.index.sealed else NEWEST_KEPT,
                min_files=MIN_FILES_AT_REST if self._at_rest() else MIN_FILES,
                ripe_us=self._ripe_us(),
            )
        )

    async def _roll_up(self, run: list[FileFacts]) -> None:
        began_seconds = self._clock.monotonic_seconds()
        rolled = await roll_up(
            self._store,
            self._clock,
            self._ref,
            run,
            broker=self._broker,
            executor=self._executor,
            recent=self._recent,
            requests=self._requests_of(run),
        )
        if self._clock.monotonic_seconds() - began_seconds > self._grace_seconds / 2:
            # So late the name may be one that had been superseded and deleted meanwhile: look at everything again.
            if not await self._look():
                await self._store.delete([self._ref.key(rolled.name)])
                raise SegmentMoved(f"{self._ref.key(rolled.name)} came after its segment had been removed")
            raise OutcomeUnknown(f"{self._ref.key(rolled.name)} took more than half of the grace period to write")
        # Only in memory: whoever stops here finds the roll-up by its name at the next look.
        self.index.supersede(rolled, self._clock.now_us())
        self._reshaped = True

    def _requests_of(self, run: list[FileFacts]) -> list[StoredRequest]:
        """What the files of a run say of producers and still counts; the seal, where there is one, says it as well."""
        if self.index.sealed:
            return []
        return self.index.windows.stored_between(self._ref.segment, run[0].base, run[-1].end)

    async def _snapshot(self) -> bool:
        """Put a snapshot where one is due: before anything it must know of can be deleted, and when it saves work.

        False where another process has put one since we looked: it keeps the segment as well, or did (brokers hear of
        a seal, and of each other's coming and going, at different times). Then nothing may be deleted before what
        that one knows has been taken in.
        """
        new = self.index.changes - self._snapshot_changes
        if not (self._reshaped or new >= SNAPSHOT_FILES or (new and self.index.sealed)):
            return True
        changes = self.index.changes
        try:
            self._etag = await write_snapshot(
                self._store, self._ref, self.index, etag=self._etag, executor=self._executor
            )
        except (EtagMismatch, ObjectExists):
            return False
        self._aware = self._etag is not None
        self._snapshot_changes, self._reshaped = changes, False
        return True
