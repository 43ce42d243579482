"""Proving that an owner still owned its segment when its put returned.

The danger is a name that comes back. A put that stalls may create a file whose name was superseded and deleted
meanwhile. The file would be acknowledged and never read. Deletion waits for the grace period after a file was
superseded, so a proof of ownership younger than half of that rules this out (docs/design.md §4, "Names must not come
back"). Its age is the greater of two: by this machine's monotonic clock, and by the store's time. A paused hypervisor
stops every clock of this machine, and the answer to the put still shows how late it is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from filer.clock import Clock
from filer.errors import BraidError, OutcomeUnknown, SegmentMoved
from filer.format.segment_file import Footer
from filer.keys import FileName
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, fetch_footer, recover_index
from filer.stores.store import Store
from filer.stores.store_time import LONG_AGO, Moment, age_seconds, moment


async def unknown() -> bool:
    """For an owner that cannot know whether topic.json names its segment as open."""
    return False


@dataclass(frozen=True, slots=True)
class TopicRecordChecks:
    """Questions that a fresh read of topic.json answers.

    `exists`: are the topic and the segment still there? `is_open`: is the segment open and this broker's?
    """

    exists: Callable[[], Awaitable[bool]]
    is_open: Callable[[], Awaitable[bool]] = unknown


class OwnershipProof:
    """The age of the last proof that this process owns a segment, and the ways to a new one."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ref: SegmentRef,
        index: SegmentIndex,
        *,
        checks: TopicRecordChecks,
        grace_seconds: float,
    ) -> None:
        self._store, self._clock, self._ref, self._index = store, clock, ref, index
        self._checks, self._grace_seconds = checks, grace_seconds
        # No proof yet: the read that showed our ownership, or the segment's end, may be of any age.
        self._proven = LONG_AGO

    def renew(self, sent: Moment) -> None:
        """Take a put that succeeded as a proof, as of the moment at which it was sent."""
        self._proven = self._proven.later_of(sent)

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has to be read for a put that is answered now."""
        return age_seconds(self._store.time, self._clock, self._proven) <= self._grace_seconds / 2

    async def prove_during(self, put: Awaitable[bool]) -> bool:
        """Read topic.json while the put of a segment's first file is under way; returns what the put returns.

        The publishers of a split wait for that file, and reading the whole segment after the put would add to their
        wait. The record is enough. Others roll up a segment only after the record says that it is sealed. While the
        record names the segment as open and ours, none of its files was superseded. So the first name cannot have come
        back until a grace period after that read.
        """
        began = moment(self._store.time, self._clock)
        checking = asyncio.create_task(
            self._is_open(), name=f"check that {self._ref.topic}/{self._ref.segment} is open"
        )
        try:
            ours = await put
            if await checking:
                self.renew(began)
        finally:
            checking.cancel()
        return ours

    async def _is_open(self) -> bool:
        # If the record cannot be read, `has_moved_on` reads the segment instead, and raises if that fails.
        try:
            return await self._checks.is_open()
        except BraidError:
            return False

    async def has_moved_on(self, footer: Footer) -> bool:
        """Check a file of ours that was just put, and whether others have continued the segment behind it.

        Nothing is read while the last proof is younger than half of the grace period. Else this reads the segment.
        False: the file counts and is the last one. True: it counts, and the segment went on. Raises `SegmentMoved` if
        the file does not count and never will. Raises `OutcomeUnknown` if a roll-up holds its offsets: nothing shows
        whose messages are in that roll-up.
        """
        if self.is_fresh:
            return False
        name = FileName(footer.base)
        while True:
            await self._store.tell_time()
            began = moment(self._store.time, self._clock)
            newest = await recover_index(self._store, self._ref, start_offset=self._index.start_offset)
            exists = await self._checks.exists()
            if age_seconds(self._store.time, self._clock, began) <= self._grace_seconds / 2:
                break
            # A look that takes that long mixes two times: files that it saw first may be gone before it reads them.
        if not any(facts.name == name for facts in newest.files):
            if exists and newest.end > footer.base:
                raise OutcomeUnknown(f"{self._ref.key(name)} was rolled up before its put was answered")
            raise SegmentMoved()
        written, _ = await fetch_footer(self._store, self._ref.key(name))
        if not exists or written.writer != footer.writer:
            raise SegmentMoved()
        if newest.sealed and any(footer.end <= hole.start and hole.end == newest.seal_offset for hole in newest.holes):
            # The seal was put far behind a damaged last file that was given up: readers may have gone on behind it.
            raise OutcomeUnknown(f"{self._ref.key(name)} came after its segment had been sealed")
        if (newest.sealed and not footer.sealed) or newest.end != footer.end:
            return True
        self.renew(began)
        return False
