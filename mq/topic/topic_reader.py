"""Reads a topic: one segment by offset, or all of it from positions on, from the front store and from files."""

import asyncio
import contextlib
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from filer import tracing
from filer.errors import CorruptFile, InvalidMarker, ObjectNotFound, OutcomeUnknown, StoreError, UnreadableObject
from filer.format.row_ends import head, row_ends
from filer.format.schema import TIMESTAMP
from filer.segment.read_room import NoRoom, ReadRoom
from filer.segment.segment_reader import SegmentReader
from filer.topic.positions import Positions, advance, check_positions, earliest, to_marker
from mq.base.errors import OwnerSilent
from mq.topic.run import Run
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.topic_view import of_member

STALE_TRIES = 5
LOST_TRIES = 2
"""A file that is missing after so many tries was not rolled up meanwhile."""
# A page with less than this part left is full. To fill it to the last byte would take a read for each message.
_FULL_PART = 8
SEEK_ROWS, SEEK_BYTES = 10_000, 8 * 1024 * 1024
# To find messages of a member of a topic group, so many of all members are read, at least and at most.
PASSED_ROWS, PASSED_BYTES, MOST_PASSED_BYTES = 10_000, 1024 * 1024, 8 * 1024 * 1024


class TopicReader:
    """Reads of one topic at a broker.

    A `streaming` reader follows the segments that it waits for, and then gets new messages from there. Any other reader
    asks the owner of an open segment, so that it finds everything that was acknowledged before.

    With `room`, results take room there, and a page ends early if there is none. Without it only the bounds of the page
    count.

    With `member` it is a reader of that member of a topic group: it returns the member's messages alone, and passes by
    the others. A read that has passed by as much as its bounds allow, and has found none, `may_go_on` at the positions
    that it has reached.
    """

    def __init__(
        self,
        runtime: TopicRuntime,
        reader: SegmentReader,
        *,
        streaming: bool = False,
        room: ReadRoom | None = None,
        member: str | None = None,
    ) -> None:
        self._member = member
        self.may_go_on = False
        self._runtime, self._reads, self._reader, self._streaming = runtime, runtime.reads, reader, streaming
        self._room = room
        # What stopped the last read in one of the segments.
        self.unreadable: UnreadableObject | None = None

    async def read_segment(self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int) -> Run:
        """Return messages of one segment from `offset` on; none if it has no more (yet).

        Passes by given-up ranges: `Run.end` lies behind them, even if no message follows. So it does with other
        members' messages. Raises `OwnerSilent` if there may be more that only the segment's owner has.
        """
        scan_rows, scan_bytes = self._looked_at(max_rows, max_bytes)
        run = await self._all_of(segment_id, offset, max_rows=scan_rows, max_bytes=scan_bytes)
        return run if self._member is None else self._wanted(run, max_rows=max_rows, max_bytes=max_bytes)

    async def _all_of(self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int) -> Run:
        """As `read_segment`, for all members."""
        began_seconds = self._reads.now_seconds()
        while True:
            run = await self._read_segment(segment_id, offset, max_rows=max_rows, max_bytes=max_bytes)
            if run.table.num_rows:
                self._reads.observe_page(began_seconds)
                return run
            if not await self._enlarged():
                return run

    def _looked_at(self, max_rows: int, max_bytes: int) -> tuple[int, int]:
        """Return how much to read at once to find so much: other members' messages may leave few, or none."""
        if self._member is None:
            return max_rows, max_bytes
        return max(max_rows, PASSED_ROWS), max(max_bytes, PASSED_BYTES)

    def _wanted(self, run: Run, *, max_rows: int, max_bytes: int) -> Run:
        """Return the member's messages of the run, up to these bounds, and at least one if there is one."""
        assert self._member is not None
        table = of_member(run.table, self._member)
        if not table.num_rows:
            return Run.of(run.segment, run.end, table)
        rows, _ = head(table, row_ends(table), 0, max_rows=max(max_rows, 1), max_bytes=max_bytes)
        # If it is cut, the next read begins behind the last message returned.
        end = run.end if rows.num_rows == table.num_rows else rows["_offset"][-1].as_py() + 1
        return Run.of(run.segment, end, rows)

    async def _enlarged(self) -> bool:
        """Whether there was no room for the first message, and now there is."""
        return self._room is not None and await self._room.enlarge()

    async def _read_segment(self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int) -> Run:
        """As `read_segment`; also returns none if there is no room for the first."""
        with tracing.current().child("read") as span:
            span.note(segment=segment_id, offset=offset)
            run = await self._look_in_segment(segment_id, offset, max_rows=max_rows, max_bytes=max_bytes)
            span.note(messages=run.table.num_rows)
            return run

    async def _look_in_segment(self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int) -> Run:
        offset, max_rows = await self._reads.pass_by(segment_id, offset, max_rows)
        tail = self._reads.tail(segment_id)
        table = tail.read(offset, max_rows=max_rows, max_bytes=max_bytes) if tail is not None else None
        if table is None and self._streaming and tail is not None and offset == tail.end:
            return Run.of(segment_id, offset, self._runtime.ref(segment_id).schema.no_messages)
        if table is None:
            # Taken before the files are read: messages stored during that read would otherwise be missed.
            table = self._reads.read_unstored(segment_id, offset, max_rows=max_rows, max_bytes=max_bytes)
        if table is not None:
            tracing.current().note(source="front store")
            size_bytes = table.nbytes
            if size_bytes > max_bytes:
                table, size_bytes = head(table, row_ends(table), 0, max_rows=max_rows, max_bytes=max_bytes)
            if self._room is not None and not await self._room.take(size_bytes):
                table, size_bytes = table.slice(0, 0), 0
        else:
            try:
                table = await self._from_files_or_owner(segment_id, offset, max_rows=max_rows, max_bytes=max_bytes)
            except NoRoom:
                table = self._runtime.ref(segment_id).schema.no_messages
            size_bytes = table.nbytes if table.num_rows else 0
        # After retention the first message may lie behind `offset`.
        first = table["_offset"][0].as_py() if table.num_rows else offset
        return Run(segment_id, first + table.num_rows, table, size_bytes)

    async def _from_files_or_owner(self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int) -> pa.Table:
        """Read the files, so that owners are asked only for newer messages.

        If the store does not answer, the owner may have the messages in memory. Raises the store's error if it has not.
        """
        try:
            table = await self._from_files(segment_id, offset, max_rows=max_rows, max_bytes=max_bytes)
        except StoreError:
            with contextlib.suppress(OwnerSilent):
                page = await self._reads.ask_owner(segment_id, offset, max_rows=max_rows, max_bytes=max_bytes)
                if page is not None:
                    return page.table
            raise
        if table.num_rows:
            tracing.current().note(source="files")
            return table
        return await self._from_owner(segment_id, offset, table, max_rows=max_rows, max_bytes=max_bytes)

    async def _from_owner(
        self, segment_id: int, offset: int, found: pa.Table, *, max_rows: int, max_bytes: int
    ) -> pa.Table:
        """Return what another broker has from `offset` on; `found`, from the files, if none owns the segment.

        If the owner is silent, a fresh look at the files shows all acknowledged messages, unless the segment has
        followers: then no reader may get the answer that there is nothing more.
        """
        silent: OwnerSilent | None = None
        try:
            page = await self._reads.ask_owner(segment_id, offset, max_rows=max_rows, max_bytes=max_bytes)
            if page is not None and (page.table.num_rows or not page.sealed):
                tracing.current().note(source="owner")
                return page.table
            if page is not None or self._reads.may_have_successors(segment_id):
                # Before a reader gets the answer that there is nothing more: it may be in the successors.
                await self._runtime.refresh()
            if not self._reads.ends_behind(segment_id, offset):
                return found
            # Sealed since the files were read.
        except OwnerSilent as error:
            silent = error
            await self._runtime.refresh()
        table = await self._from_files(segment_id, offset, max_rows=max_rows, max_bytes=max_bytes, fresh=True)
        if silent is not None and not table.num_rows and self._reads.may_hold_more(segment_id):
            raise silent
        return table

    async def _from_files(
        self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int, fresh: bool = False
    ) -> pa.Table:
        with tracing.current().child("scan"):
            return await self._from_newest_files(
                segment_id, offset, max_rows=max_rows, max_bytes=max_bytes, fresh=fresh
            )

    async def _from_newest_files(
        self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int, fresh: bool
    ) -> pa.Table:
        ref = self._runtime.ref(segment_id)
        for attempt in range(STALE_TRIES):
            index = await self._reads.index(segment_id, fresh=fresh)
            try:
                return await self._reader.read(
                    ref, index, offset, max_rows=max_rows, max_bytes=max_bytes, room=self._room
                )
            except ObjectNotFound:
                # Rolled up and deleted since the index was read. The index is newer by now, or is recovered.
                if attempt < LOST_TRIES:
                    self._reads.invalidate_index(segment_id)
                    continue
                # By an index that was read a moment ago: files stay for a grace period after they are replaced, so this
                # one was not replaced. The next try reports that, unless the topic's record has a newer start.
                await self._runtime.refresh()
                if not await self._reads.rebuild(segment_id, offset):
                    await self._reads.lose(segment_id, index, offset, damaged=False)
            except CorruptFile as error:
                if index.hole_at(offset) is None and index.blocked is None:
                    await self._reads.lose(segment_id, index, error.offset or offset, damaged=True)
                raise
        raise OutcomeUnknown(f"the files of segment {segment_id} of topic {self._runtime.topic!r} keep changing")

    async def read(self, positions: Mapping[int, int], *, max_rows: int, max_bytes: int) -> tuple[list[Run], Positions]:
        """Return messages from `positions` on, about evenly from all readable segments, and the positions after them.

        Runs are grouped by segment. Order holds within each segment, and a successor's messages come only after all
        messages of its predecessors. Raises `OwnerSilent` if nothing was found and a silent owner may have more, except
        for a `streaming` reader, which waits anyway. Raises `DataMissing` or `CorruptFile` if nothing was found and an
        object cannot be read: its messages come next. Otherwise `unreadable` has that error, and the position stays
        before those messages.
        """
        began_seconds = self._reads.now_seconds()
        while True:
            runs, moved = await self._read(positions, max_rows=max_rows, max_bytes=max_bytes)
            if runs:
                self._reads.observe_page(began_seconds)
            if runs or self.may_go_on:
                return runs, moved
            if not await self._enlarged():
                return runs, moved

    async def _read(
        self, positions: Mapping[int, int], *, max_rows: int, max_bytes: int
    ) -> tuple[list[Run], Positions]:
        """As `read`; also returns nothing if there is no room for the first message."""
        self.unreadable, self.may_go_on = None, False
        moved = advance(self._runtime.state, positions)
        runs: list[Run] = []
        idle: set[int] = set()
        silent: OwnerSilent | None = None
        least_bytes, passed_bytes = max_bytes // _FULL_PART, 0
        while max_rows > 0 and max_bytes > least_bytes and (ready := [s for s in moved if s not in idle]):
            if passed_bytes > MOST_PASSED_BYTES:
                break
            share_rows, share_bytes = self._looked_at(-(-max_rows // len(ready)), -(-max_bytes // len(ready)))
            finding = [self._found_in(s, moved[s], max_rows=share_rows, max_bytes=share_bytes) for s in ready]
            # A task for each would take rounds of the event loop, in which others may have their turn.
            found = [await finding[0]] if len(finding) == 1 else await asyncio.gather(*finding)
            for segment_id, run in zip(ready, found, strict=True):
                if isinstance(run, UnreadableObject):
                    self.unreadable = run
                    idle.add(segment_id)
                    continue
                if isinstance(run, OwnerSilent):
                    silent = run
                    idle.add(segment_id)
                    continue
                if not run.table.num_rows:
                    moved[segment_id] = run.end  # further on, if what comes next is given up
                    idle.add(segment_id)
                    continue
                if self._member is not None and max_rows > 0:
                    passed_bytes += run.size_bytes
                    run = self._wanted(run, max_rows=max_rows, max_bytes=max_bytes)
                    if not run.table.num_rows:
                        moved[run.segment], self.may_go_on = run.end, True
                        continue
                if run.table.num_rows > max_rows:
                    run = Run.of(run.segment, run.end - run.table.num_rows + max_rows, run.table.slice(0, max_rows))
                if not run.table.num_rows:
                    continue
                runs.append(run)
                moved[run.segment] = run.end
                max_rows -= run.table.num_rows
                max_bytes -= run.size_bytes
            moved = advance(self._runtime.state, moved)
        if self.unreadable is not None:
            self._mark_next(self.unreadable, moved)
            if not runs and not self.may_go_on:
                raise self.unreadable
        if silent is not None and not runs and not self.may_go_on and not self._streaming:
            raise silent
        return runs, moved

    async def _found_in(
        self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int
    ) -> Run | OwnerSilent | UnreadableObject:
        try:
            return await self._read_segment(segment_id, offset, max_rows=max_rows, max_bytes=max_bytes)
        except (OwnerSilent, UnreadableObject) as error:
            return error

    def _mark_next(self, error: UnreadableObject, positions: Positions) -> None:
        """Add the marker of positions behind the unreadable messages."""
        if error.segment in positions and error.next_offset is not None:
            behind = {**positions, error.segment: error.next_offset}
            topic = self._member or self._runtime.topic
            error.next_marker = to_marker(topic, advance(self._runtime.state, behind))

    def earliest(self) -> Positions:
        """Return positions of the oldest messages kept."""
        return earliest(self._runtime.state)

    async def latest(self) -> Positions:
        """Return positions behind the newest message of each open segment."""
        ids = [s.id for s in self._runtime.state.open_segments]
        ends = await asyncio.gather(*(self._reads.end_of(i) for i in ids))
        return dict(zip(ids, ends, strict=True))

    async def at_time(self, timestamp_us: int) -> Positions:
        """Return positions of each key range's first message that was accepted at that time or later."""
        state = self._runtime.state
        positions = earliest(state)
        settled: set[int] = set()
        while unsettled := [s for s in positions if s not in settled]:
            for segment_id in unsettled:
                positions[segment_id] = await self._seek(segment_id, timestamp_us)
                settled.add(segment_id)
            positions = advance(state, positions)
        return positions

    async def _seek(self, segment_id: int, timestamp_us: int) -> int:
        """Return the offset of a segment's first message at that time or later; its end if there is none."""
        index = await self._reads.index(segment_id)
        file_index = index.position_of_time(timestamp_us)
        # Behind the last file there may be messages that are not stored yet, or files that are not known here.
        is_known = file_index < len(index.files)
        offset = max(index.files[file_index].start, index.start_offset) if is_known else index.end
        if is_known and not index.holes and index.files[file_index].first_timestamp_us >= timestamp_us:
            return offset
        for hole in reversed(index.holes):
            # Messages of that time may be in a lost range right before.
            offset = hole.start if hole.end == offset else offset
        # It is in this very file, unless a part of it is lost: no other one needs to be read.
        most_rows = max(1, index.files[file_index].end - offset) if is_known else SEEK_ROWS
        tail = self._reads.tail(segment_id)
        found = tail.offset_of_time(offset, timestamp_us) if tail is not None else None
        if found is not None and tail is not None:
            if found < tail.end:
                return found
            # Followers, or another broker, may hold it.
            offset, most_rows = found, SEEK_ROWS
        while True:
            try:
                run = await self._all_of(segment_id, offset, max_rows=min(most_rows, SEEK_ROWS), max_bytes=SEEK_BYTES)
            except UnreadableObject:
                return offset  # a read from there reports it
            if not run.table.num_rows:
                return offset
            late = pc.index(
                pc.greater_equal(run.table["_timestamp"], pa.scalar(timestamp_us, TIMESTAMP)), pa.scalar(True)
            ).as_py()
            if late >= 0:
                return offset + int(late)
            offset, most_rows = run.end, SEEK_ROWS

    async def check(self, positions: Mapping[int, int]) -> None:
        """Raise `InvalidMarker` or `PositionExpired` if a reader cannot read on from there."""
        try:
            check_positions(self._runtime.state, positions)
        except InvalidMarker:
            # Another broker issued the marker, and knows of segments that are not known here yet.
            await self._runtime.refresh()
            check_positions(self._runtime.state, positions)
        for segment_id, offset in positions.items():
            segment = self._runtime.state.segment(segment_id)
            if segment is not None and segment.state == "open":
                self._check_open(segment_id, offset, await self._reads.end_of(segment_id, at_least=offset))

    def _check_open(self, segment_id: int, offset: int, end: int) -> None:
        if offset > end:
            raise InvalidMarker(f"offset {offset} is beyond the end of segment {segment_id}, {end} now")
