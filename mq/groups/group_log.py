"""The log of the groups of one segment of `__groups`: replays it, and appends to it."""

from collections.abc import AsyncIterator, Mapping

from filer.errors import SegmentMoved
from filer.segment.next_file import Single
from filer.segment.writer.segment_writer import SegmentWriter
from filer.slots import slot_of
from filer.topic.topic_state import Segment, TopicState
from groups.fold import GroupFold
from groups.records import CHECKPOINT_KEY, Checkpoint, Record, from_json, to_json
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_runtime import TopicRuntime

PAGE_ROWS, PAGE_BYTES = 4096, 8 * 1024 * 1024
CHECKPOINT_RECORDS = 10_000
"""After so many records, or twice as many as there are groups, a new checkpoint is written."""
CHECKPOINT_SEGMENTS = 8
"""And at once, if a replay has read more segments: each costs a look at its files, however few records it has."""


class GroupLog:
    """The records of the groups whose keys lie in one segment that this broker owns, by its `writer`.

    An appended record is in the log of this owner, or nowhere: once the segment is sealed or lost, the writer refuses
    it, or never acknowledges it. So a coordinator that lives on as a zombie cannot make anything count.
    """

    def __init__(self, runtime: TopicRuntime, segment: int, writer: SegmentWriter, reader: TopicReader) -> None:
        self._runtime, self.segment, self._writer, self._reader = runtime, segment, writer, reader

    @property
    def stored_end(self) -> int:
        """All records below this offset are on the store."""
        return self._writer.index.end

    @property
    def pending_bytes(self) -> int:
        """The size of the records that are appended and not yet on the store."""
        return self._writer.pending_bytes

    async def append(self, key: str, record: Record, *, replicated: bool) -> int:
        """Store a record; returns its offset once it is on the store, or, if `replicated`, with the brokers for that.

        Raises `SegmentSealed` and `SegmentMoved` if this broker does not own the segment any more: then the record does
        not count. Raises `OutcomeUnknown` if the broker ends meanwhile.
        """
        value = to_json(record)
        single = Single(key.encode(), value, None, None)
        (position, *_) = await self._writer.append(single, len(value), replicated=replicated)
        return position.offset

    async def replay(self) -> GroupFold:
        """Return the result of the records of all groups of the segment, from the last checkpoint on.

        No other broker may write the segment by now, so its predecessors are sealed. Records that this broker has
        appended before are stored first. Raises `CorruptFile` for a record that cannot be read, and as
        `TopicReader.read_segment`.
        """
        state = self._runtime.state
        own = state.segment(self.segment)
        if own is None:
            raise SegmentMoved(f"topic {state.topic!r} has no segment {self.segment} any more")
        await self._writer.all_stored()
        fold = GroupFold()
        begin = await self._first_positions(state, own)
        fold.segments = len(begin)
        # A successor has a higher id than its predecessors, so the records of a group come in their order.
        for segment_id in sorted(begin):
            async for _, key, value in self._records(segment_id, begin[segment_id], self._end_of(state, segment_id)):
                if key != CHECKPOINT_KEY and own.start_slot <= slot_of(key.encode()) < own.stop_slot:
                    fold.add(key, from_json(value))
        return fold

    def _end_of(self, state: TopicState, segment_id: int) -> int:
        if segment_id == self.segment:
            return self._writer.index.end
        segment = state.segment(segment_id)
        return 0 if segment is None or segment.end_offset is None else segment.end_offset

    async def _first_positions(self, state: TopicState, own: Segment) -> Mapping[int, int]:
        """Return where to begin in a segment, and in those before it, to find all records of its groups.

        Each is looked at once: through splits and merges, the number of ways back doubles with each.
        """
        begin = dict[int, int]()
        waiting, seen = [own], {own.id}
        while waiting:
            segment = waiting.pop()
            first, ahead = await self._begin_in(state, segment)
            for found, offset in first.items():
                begin[found] = min(offset, begin.get(found, offset))
            waiting += [each for each in ahead if each.id not in seen]
            seen |= {each.id for each in ahead}
        return begin

    async def _begin_in(self, state: TopicState, segment: Segment) -> tuple[dict[int, int], list[Segment]]:
        """Return where to begin by the segment alone, and the segments before it that are needed for the rest."""
        end, known = self._end_of(state, segment.id), [state.segment(each) for each in segment.predecessors]
        predecessors = [each for each in known if each is not None]
        if end - segment.start_offset < CHECKPOINT_RECORDS and not predecessors:
            # A search for a checkpoint would read all of it twice.
            return {segment.id: segment.start_offset}, []
        checkpoint = await self._last_checkpoint(segment, end)
        if checkpoint is not None:
            return {segment.id: segment.start_offset, **dict(checkpoint.positions)}, []
        return {segment.id: segment.start_offset}, predecessors

    async def _last_checkpoint(self, segment: Segment, end: int) -> Checkpoint | None:
        """Return the newest checkpoint in a segment. Searches from the end: only so many records come after it."""
        while end > segment.start_offset:
            begin = max(end - PAGE_ROWS, segment.start_offset)
            found: Checkpoint | None = None
            async for _, key, value in self._records(segment.id, begin, end):
                if key == CHECKPOINT_KEY and isinstance(record := from_json(value), Checkpoint):
                    found = record
            if found is not None:
                return found
            end = begin
        return None

    async def _records(self, segment: int, offset: int, end: int) -> AsyncIterator[tuple[int, str, bytes | str]]:
        """Yield the messages `[offset, end)` of a segment, as (offset, key, value)."""
        while offset < end:
            run = await self._reader.read_segment(
                segment, offset, max_rows=min(end - offset, PAGE_ROWS), max_bytes=PAGE_BYTES
            )
            if not run.table.num_rows:
                break
            columns = (run.table[name].to_pylist() for name in ("_offset", "key", "value"))
            for each_offset, key, value in zip(*columns, strict=True):
                if key is not None and value is not None:
                    yield each_offset, key, value
            offset = run.end
