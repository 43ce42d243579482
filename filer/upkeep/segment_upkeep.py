"""The upkeep of one segment: roll-ups, snapshots of its index, deletion of superseded files.

One process maintains a segment: the owner while it is open, any broker once it is sealed. Nothing is lost if two
processes do it at once, or if one continues after another that stopped at any line; the two may only do some work
twice. The time of a supersession is the store's, since all processes share it and it outlives them. It is taken after
the read or write that shows the supersession, so it is never too early. Files are deleted by `DeletionClock`.
"""

import math
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from filer.clock import Clock
from filer.errors import EtagMismatch, ObjectExists, OutcomeUnknown, SegmentMoved
from filer.event_log import EventLog
from filer.format.requests import StoredRequest
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex, Superseded
from filer.segment.segment_log import SegmentRef
from filer.stores.store import Store
from filer.stores.store_time import age_seconds, moment
from filer.upkeep.deletion import delete_superseded
from filer.upkeep.deletion_clock import DeletionClock
from filer.upkeep.index_snapshots import reconcile, snapshot_etag, write_snapshot
from filer.upkeep.rollup import MIN_FILES, MIN_FILES_AT_REST, NEWEST_KEPT, Recent, none_at_hand, plan_rollup, roll_up

ROLLUPS_AT_ONCE = 32
SNAPSHOT_FILES = 256
CROWD_FILES = 256
"""With more live files than this, small ones are rolled up however young they are."""
GATHER_SHARE = 0.02
"""Two deletions are at least this part of the grace period apart: each takes a listing."""

_log = EventLog(__name__)


@dataclass(slots=True)
class UpkeepResult:
    """How many roll-ups were written and how many files were deleted."""

    rollups: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepContext:
    """What the upkeep of all segments of a broker shares. `broker` is its id, which is part of a roll-up's writer."""

    store: Store
    clock: Clock
    executor: Executor
    broker: str
    grace_seconds: float
    rollup_age_seconds: float
    deletions: DeletionClock


class SegmentUpkeep:
    """The upkeep of one segment, round by round. All methods belong to the event loop's thread.

    `exists` reads topic.json and returns whether the segment is still there. `is_current` reads it and returns whether
    no more of the segment is given up than `ref` has. `born_here`: the index began at offset 0 in this process, so it
    knows everything on the store. `recent` has the segment's last messages.
    """

    def __init__(
        self,
        context: UpkeepContext,
        ref: SegmentRef,
        index: SegmentIndex,
        *,
        exists: Callable[[], Awaitable[bool]],
        is_current: Callable[[], Awaitable[bool]],
        born_here: bool,
        recent: Recent = none_at_hand,
    ) -> None:
        self.index = index
        self._context, self.ref, self._exists, self._recent = context, ref, exists, recent
        self._is_current = is_current
        # Whether the index knows all roll-ups on the store, and `_etag` is that of the snapshot there.
        self._reconciled = born_here
        self._invalidations = 0
        self._etag: str | None = None
        self._snapshot_changes = 0
        self._snapshot_due = False
        self._deleted_us = 0
        # The state of the index in which there was nothing to do; None while that is not known.
        self._idle_at: tuple[int, bool] | None = None

    def has_work(self, start_offset: int) -> bool:
        """Whether anything has happened or become due since the last round. This is cheap."""
        return (
            not self._reconciled
            or self._idle_at != (self.index.changes, self._at_rest())
            or start_offset > self.index.start_offset
            or bool(self._due(self._context.deletions.about_us()))
        )

    def rest_seconds(self) -> float:
        """For how long there is no work, if there is none now and nothing happens: until files are old enough."""
        context = self._context
        ripe_seconds = context.rollup_age_seconds - (context.clock.now_us() - self.index.last_timestamp_us) / 1e6
        due_us = min((old.since_us for old in self.index.superseded), default=math.inf)
        due_seconds = context.grace_seconds - (context.deletions.about_us() - due_us) / 1e6
        return min(math.inf if self._at_rest() else ripe_seconds, due_seconds)

    async def run(self, *, rollup_bytes: int, start_offset: int) -> UpkeepResult:
        """Do one round, in the order that makes each step safe.

        Raises any `BraidError`; the next round does what this one did not reach.
        """
        result = UpkeepResult()
        try:
            if not self._reconciled and not await self._reconcile():
                # Nothing is snapshotted or deleted before all is known; the next round takes in more.
                return result
            if start_offset > self.index.start_offset:
                # topic.json says so already; if we stop here, the next process trims again. We may know that record
                # only from another broker: ask for the store's time, which is later then.
                await self._context.deletions.look()
                self.index.trim(start_offset, self._context.store.time.latest_us)
                self._snapshot_due = True
            began_at = (self.index.changes, self._at_rest())
            while result.rollups < ROLLUPS_AT_ONCE and (run := self._plan(rollup_bytes)):
                await self._roll_up(run)
                result.rollups += 1
            if not await self._write_snapshot():
                self._reconciled, self._idle_at = False, None
                return result
            if self._due(self._context.deletions.about_us()):
                result.deleted = await self._delete()
        except BaseException:
            # It is unknown whether the last write took effect: read the store before the next one.
            self._reconciled = False
            self._idle_at = None
            raise
        idle = not result.rollups and not result.deleted
        self._idle_at = began_at if idle else None
        return result

    def invalidate(self) -> None:
        """Note that other programs have written roll-ups of this segment: the next round takes them in."""
        self._reconciled = False
        self._invalidations += 1

    def _at_rest(self) -> bool:
        """Whether no files have come for a while: then even a short run is worth rolling up."""
        age_us = self._context.clock.now_us() - self.index.last_timestamp_us
        return age_us >= self._context.rollup_age_seconds * 1e6

    async def _delete(self) -> int:
        """Delete what has been superseded for a grace period of the store's time; returns the number of files."""
        await self._context.deletions.look()
        now_us = self._context.deletions.now_us
        if now_us is None or not (due := self._due(now_us)):
            return 0
        if not await self._is_current():
            # The topic has given up messages that a roll-up contains, so readers ignore that roll-up. The files that it
            # replaced may be the only copy of its other messages.
            return 0
        deleted = await delete_superseded(self._context.store, self.ref, self.index, due)
        self._deleted_us, self._snapshot_due = now_us, True
        return deleted

    def _due(self, now_us: int) -> list[Superseded]:
        """The ranges to be deleted then: all that are old enough, once enough time has passed since the last ones."""
        grace_us = self._context.grace_seconds * 1e6
        if self._context.deletions.is_paused or now_us - self._deleted_us < grace_us * GATHER_SHARE:
            return []
        return [old for old in self.index.superseded if now_us - old.since_us >= grace_us]

    async def _reconcile(self) -> bool:
        """Make the index complete, with everything on the store. Returns whether it is."""
        context, invalidations = self._context, self._invalidations
        # What no longer counts now was superseded before this time. What others supersede later, `reconcile` reads
        # before it takes the time.
        await context.deletions.look()
        self._etag = await snapshot_etag(context.store, self.ref)
        before = self.index.changes
        complete = await reconcile(context.store, self.ref, self.index, clock=context.clock, executor=context.executor)
        self._snapshot_due = self._snapshot_due or self.index.changes != before
        # A roll-up announced meanwhile may not have been in that listing.
        self._reconciled = complete and invalidations == self._invalidations
        return self._reconciled

    def _ripe_us(self) -> int:
        """Files up to this time are rolled up even if they are not tiny."""
        age_us = 0 if len(self.index.files) > CROWD_FILES else int(self._context.rollup_age_seconds * 1e6)
        return self._context.clock.now_us() - age_us

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
        context = self._context
        # Else the store may have reported no time for so long that this would look slow.
        await context.deletions.look()
        began = moment(context.store.time, context.clock)
        rolled = await roll_up(
            context.store,
            context.clock,
            self.ref,
            run,
            broker=context.broker,
            executor=context.executor,
            recent=self._recent,
            requests=self._requests_of(run),
        )
        if age_seconds(context.store.time, context.clock, began) > context.grace_seconds / 2:
            # By now the name may be one that was superseded and deleted meanwhile: read everything again.
            if not await self._exists():
                await context.store.delete([self.ref.key(rolled.name)])
                raise SegmentMoved(f"{self.ref.key(rolled.name)} was written after its segment had been removed")
            raise OutcomeUnknown(f"{self.ref.key(rolled.name)} took more than half of the grace period to write")
        # Only in memory: if we stop here, the next reconciliation finds the roll-up by its name. It was read back, so
        # the store has reported a time since it was created.
        self.index.supersede(rolled, context.store.time.latest_us)
        self._snapshot_due = True
        _log.debug(
            "files_rolled_up",
            topic=self.ref.topic,
            segment=self.ref.segment,
            key=self.ref.key(rolled.name),
            files=len(run),
            size_bytes=rolled.size_bytes,
        )

    def _requests_of(self, run: list[FileFacts]) -> list[StoredRequest]:
        """The requests in these files that still count. If there is a seal, it has them as well."""
        if self.index.sealed:
            return []
        return self.index.windows.stored_between(self.ref.segment, run[0].base, run[-1].end)

    async def _write_snapshot(self) -> bool:
        """Write a snapshot if one is due: before files are deleted that it must know, and when it saves work.

        False if another process has written one since we read the store: it maintains the segment too, or did (brokers
        learn of a seal, and of each other's coming and going, at different times). Then nothing may be deleted before
        we have taken in what that snapshot knows.
        """
        new = self.index.changes - self._snapshot_changes
        if not (self._snapshot_due or new >= SNAPSHOT_FILES or (new and self.index.sealed)):
            return True
        changes = self.index.changes
        try:
            self._etag = await write_snapshot(
                self._context.store, self.ref, self.index, etag=self._etag, executor=self._context.executor
            )
        except (EtagMismatch, ObjectExists):
            return False
        self._reconciled = self._etag is not None
        self._snapshot_changes, self._snapshot_due = changes, False
        return True
