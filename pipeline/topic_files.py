"""Lists the live files of a topic. Names alone decide which files count (docs/file-format.md)."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from filer import keys
from filer.clock import Clock
from filer.errors import CorruptFile, DataMissing, InvalidInput
from filer.format.segment_file import DECODING_ERRORS, of_file, read_whole, undecodable
from filer.keys import FileName
from filer.segment.live_files import LiveName, live_names
from filer.segment.segment_log import SegmentRef, check_end, read_snapshot, recover_index
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import Segment, TopicState

PART_BYTES = 64 * 1024 * 1024
PART_FILES = 2000
_READS_AT_ONCE = 8
_LISTINGS_AT_ONCE = 16
_READ_AHEAD_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that counts for the offsets `[start, stop)` of its segment."""

    ref: SegmentRef
    name: FileName
    start: int
    stop: int
    size_bytes: int
    modified_us: int

    @property
    def key(self) -> str:
        """Its key on the store."""
        return self.ref.key(self.name)


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """A segment's live files in order; they hold every offset from its `start_offset` to `end` once.

    They do not hold given-up ranges. A file's `stop` is never behind the start of such a range.
    """

    segment: Segment
    ref: SegmentRef
    end: int
    files: tuple[LiveFile, ...]


async def read_topic(store: Store, clock: Clock, topic: str) -> TopicState:
    """Return the current state of the topic. Raises `InvalidInput` if there is none, or it is in a topic group."""
    record = await Catalogue(store, clock).read(keys.check_name(topic))
    if record is not None and (of := record.state.member_of) is not None:
        raise InvalidInput(
            f"topic {topic!r} has no files of its own, but is in topic group {of.group!r}: name that one"
        )
    if record is None or record.state.deleted:
        raise InvalidInput(f"there is no topic {topic!r} at {store.uri(keys.TOPICS.rstrip('/'))}")
    return record.state


async def list_topic(store: Store, state: TopicState, segments: Iterable[Segment] | None = None) -> list[SegmentFiles]:
    """Return the files of these segments of topic.json, or else of every one, in the order of segment ids."""
    gate = asyncio.Semaphore(_LISTINGS_AT_ONCE)

    async def one(segment: Segment) -> SegmentFiles:
        async with gate:
            return await list_segment(store, state, segment)

    return list(await asyncio.gather(*map(one, state.segments if segments is None else segments)))


async def list_segment(store: Store, state: TopicState, segment: Segment) -> SegmentFiles:
    """Return the segment's current files, up to the end of its log. Data beyond the end was never acknowledged.

    Raises `DataMissing` if a file is missing, and `CorruptFile` if the last one is damaged: nothing shows the end then.
    """
    ref = SegmentRef.of(state, segment)
    # First the end, then the names: files below the end may be rolled up meanwhile, but their messages stay.
    end = segment.end_offset
    if end is None:
        index = await recover_index(store, ref, start_offset=segment.start_offset)
        check_end(ref, index)
        end = index.end
    found = {}
    async for info in store.list(keys.segment_folder(ref.topic, ref.segment)):
        name = FileName.parse(info.key)
        if name is not None and name.base < end and not ref.given_up.masks_name(name):
            found[name] = info
    if segment.load is not None:
        # A file may arrive late, by a presigned URL from before the commit, and overlap one that was adopted. Its name
        # does not show that. The index knows the files that were adopted.
        index = await recover_index(store, ref, start_offset=segment.start_offset)
        counted = {facts.name for facts in index.files}
        found = {name: info for name, info in found.items() if name.rolled or name in counted}
    live = live_names(found)
    begins = [each.start for each in live]
    stops = [_stop(ref, start, following) for start, following in pairwise([*begins, end])]
    if (gap := _first_gap(ref, live, stops, segment.start_offset, end)) is not None:
        raise await _missing(store, ref, segment, gap)
    files = (
        LiveFile(ref, each.name, max(each.start, segment.start_offset), stop, info.size_bytes, info.modified_us)
        for each, stop in zip(live, stops, strict=True)
        if stop > segment.start_offset and (info := found[each.name])
    )
    return SegmentFiles(segment, ref, end, tuple(files))


def _first_gap(ref: SegmentRef, live: Sequence[LiveName], stops: Sequence[int], start: int, end: int) -> int | None:
    """Return the first offset in `[start, end)` that no file can hold, as far as names show it; None if none.

    A given-up range is no gap.
    """
    begins = [*(each.start for each in live), end]
    first = ref.given_up.behind(start, begins)
    if first < end and begins[0] > first:
        return first
    for each, stop, following in zip(live, stops, begins[1:], strict=True):
        reach = each.name.end
        if reach is not None and start < reach < stop:
            return reach
        if (behind := ref.given_up.behind(stop, begins)) < following:
            return behind
    return None


async def _missing(store: Store, ref: SegmentRef, segment: Segment, offset: int) -> DataMissing:
    """Return the error that names the lost file. Only the snapshot knows of a roll-up that is gone."""
    snapshot = await read_snapshot(store, ref, segment.start_offset)
    known = snapshot.covering(offset)[:1] if snapshot is not None else ()
    name = known[0].name if known and known[0].start <= offset else FileName(offset)
    key = ref.key(name)
    return DataMissing(f"{key} is gone from the store: no file holds offset {offset}", key=key)


def _stop(ref: SegmentRef, start: int, following: int) -> int:
    """Return the stop of a file that begins at `start`: the next file, or a given-up range before that."""
    given_up = ref.given_up.next_start(start)
    return following if given_up is None else min(following, given_up)


def unbroken(files: Iterable[LiveFile]) -> list[list[LiveFile]]:
    """Return the files in runs without a gap. Between two runs lies a given-up range."""
    runs: list[list[LiveFile]] = []
    for file in files:
        if not runs or runs[-1][-1].stop != file.start:
            runs.append([])
        runs[-1].append(file)
    return runs


def in_parts(
    files: Iterable[LiveFile], *, most_bytes: int = PART_BYTES, most_files: int = PART_FILES
) -> Iterator[list[LiveFile]]:
    """Group consecutive files into parts, each for one task. A file larger than `most_bytes` is a part by itself."""
    part: list[LiveFile] = []
    size_bytes = 0
    for file in files:
        if part and (size_bytes + file.size_bytes > most_bytes or len(part) == most_files):
            yield part
            part, size_bytes = [], 0
        part.append(file)
        size_bytes += file.size_bytes
    if part:
        yield part


async def contents(store: Store, files: Sequence[LiveFile]) -> AsyncIterator[tuple[LiveFile, bytes]]:
    """Yield each file with its bytes, in order. Reads a few small files ahead."""
    ahead: deque[tuple[LiveFile, asyncio.Task[bytes]]] = deque()
    waiting = deque(files)
    try:
        while ahead or waiting:
            while waiting and _may_read(ahead, waiting[0]):
                file = waiting.popleft()
                ahead.append((file, asyncio.create_task(_read(store, file))))
            file, reading = ahead[0]
            data = await reading
            ahead.popleft()
            yield file, data
    finally:
        for _, reading in ahead:
            reading.cancel()
        await asyncio.gather(*(reading for _, reading in ahead), return_exceptions=True)


def _may_read(ahead: deque[tuple[LiveFile, asyncio.Task[bytes]]], file: LiveFile) -> bool:
    ahead_bytes = sum(each.size_bytes for each, _ in ahead)
    return not ahead or (len(ahead) < _READS_AT_ONCE and ahead_bytes + file.size_bytes <= _READ_AHEAD_BYTES)


async def _read(store: Store, file: LiveFile) -> bytes:
    return (await store.get(file.key)).data


def batches_of(file: LiveFile, data: bytes, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the file's live rows, with those columns (all by default). Checks all bytes. Raises `CorruptFile`."""
    reached = file.name.base
    with of_file(file.key):
        end = read_whole(data, place=(file.ref.segment, file.name.base))
        try:
            with pq.ParquetFile(pa.BufferReader(data), metadata=end.metadata) as parquet:
                for batch in parquet.iter_batches(columns=columns, use_threads=False):
                    live = batch.slice(max(file.start - reached, 0), max(file.stop - max(file.start, reached), 0))
                    reached += batch.num_rows
                    if live.num_rows:
                        yield live
        except DECODING_ERRORS as error:
            raise undecodable(error) from error
        if reached < file.stop and not file.name.rolled:
            key = file.ref.key(FileName(reached))
            raise DataMissing(f"{key} is gone from the store: the file before it ends at {reached}", key=key)
        if reached < file.stop:
            raise CorruptFile(f"it ends at {reached}, not at {file.stop}")
