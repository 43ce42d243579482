"""Roll-up: writing a run of small files again as one larger file that replaces them (docs/design.md §4).

Nothing here changes or removes a file of the run. Until the index replaces the run by the roll-up, both hold the same
messages, and readers take the one that reaches furthest. So stopping at any line leaves every message readable once.
Each file of the run is checked by its digests before anything is written, and the roll-up is read back and checked
before it replaces anything.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from filer.clock import Clock
from filer.errors import CorruptFile, DataMissing
from filer.format.requests import StoredRequest
from filer.format.segment_file import (
    DECODING_ERRORS,
    ROW_GROUP_BYTES,
    WHOLE_FILE_BYTES,
    FileEnd,
    Footer,
    SegmentFileEncoder,
    count_refs,
    decode_row_group,
    of_file,
    read_end,
    read_whole,
    time_bounds_us,
    undecodable,
    unmark,
)
from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_log import SegmentRef, fetch_end, put_until_known
from filer.segment.segment_reader import fetch_row_group
from filer.stores.store import Store
from filer.upkeep.pacing import SHARE, run_paced

NEWEST_KEPT = 4
MIN_FILES = 8
MIN_FILES_AT_REST = 2
MAX_FILES = 2000
TINY_BYTES = 16 * 1024
SMALL_SHARE = 16
"""A file is small below `rollup_bytes` divided by this: so a run of `MIN_FILES` always fits into one roll-up."""
GROWTH = 2
"""An earlier file joins a run if it is at most this many times as large as the run."""
SETTLED_BYTES = 128 * 1024 * 1024
"""A file of that size is never written again, by a broker or by `mq pipeline compact`: tables may refer to it."""
CHUNK_FILES = 64
CHUNK_BYTES = 8 * 1024 * 1024
READS_AT_ONCE = 8

Recent = Callable[[int, int], pa.Table | None]
"""The messages `[start, end)` of a segment in the columns of `MessageSchema.log`; None unless all are in memory."""


def none_at_hand(start: int, end: int) -> pa.Table | None:
    """For a segment that is not written by this process."""
    return None


def plan_rollup(
    files: Sequence[FileFacts], *, rollup_bytes: int, newest_kept: int, min_files: int, ripe_us: int
) -> Sequence[FileFacts]:
    """The next run of live files to roll up; empty if a roll-up would gain nothing.

    The run has at least `min_files` adjacent small files of the owner, the oldest ones there are. It also takes the
    files before them (mostly earlier roll-ups), as long as each is at most `GROWTH` times as large as the run so far
    and smaller than `SETTLED_BYTES`. So each roll-up that remains is more than twice as large as everything newer. The
    number of roll-ups, and the number of times that a message is written again, grow with the logarithm of the size.

    No run reaches over a hole in the log: its messages are in no file.

    The last `newest_kept` files are left alone: readers of the tail are at them, the seal stays, and their names show
    recovery that the log continues. Tiny files are taken at once, others when their last message is not newer than
    `ripe_us`. For a grace period a bare glob sees a roll-up beside its files. Messages that came in batches gain too
    little from a roll-up to disturb queries of them while they are fresh.
    """
    eligible = max(len(files) - newest_kept, 0)
    first, last = _small_stretch(files[:eligible], rollup_bytes, min_files, ripe_us)
    size_bytes = sum(facts.size_bytes for facts in files[first:last])
    while first and last > first and last - first < MAX_FILES:
        before = files[first - 1].size_bytes
        if files[first - 1].end != files[first].start:
            break  # a hole lies between them
        if before > GROWTH * size_bytes or before + size_bytes > rollup_bytes or before >= SETTLED_BYTES:
            break
        size_bytes += before
        first -= 1
    return files[first:last]


def _small_stretch(files: Sequence[FileFacts], rollup_bytes: int, min_files: int, ripe_us: int) -> tuple[int, int]:
    """The indexes of the oldest stretch of small files that is long enough, cut to what one roll-up takes."""
    first, size_bytes = 0, 0
    for index, facts in enumerate(files):
        ripe = facts.size_bytes < TINY_BYTES or facts.last_timestamp_us <= ripe_us
        small = ripe and not facts.name.rolled and facts.size_bytes < rollup_bytes // SMALL_SHARE
        full = size_bytes + facts.size_bytes > rollup_bytes or index - first >= MAX_FILES
        # A run does not reach over a hole.
        full = full or (index > first and files[index - 1].end != facts.start)
        if (not small or full) and index - first >= min_files:
            return first, index
        if not small or full:
            first, size_bytes = (index, 0) if small else (index + 1, 0)
        if small:
            size_bytes += facts.size_bytes
    return (first, len(files)) if len(files) - first >= min_files else (0, 0)


async def roll_up(
    store: Store,
    clock: Clock,
    ref: SegmentRef,
    run: Sequence[FileFacts],
    *,
    broker: str,
    executor: Executor,
    recent: Recent = none_at_hand,
    requests: Sequence[StoredRequest] = (),
    share: float = SHARE,
) -> FileFacts:
    """Write the run's messages as one file and read it back; returns the file's entry for the index.

    Messages that the owner still has in memory are taken from `recent`: to decode a thousand files a second would cost
    publishers more than all other work of a roll-up. Memory use is about twice `rollup_bytes` at most: the new file,
    and the copy that is read back. If a file of this name exists already (written in an earlier life, or by another
    broker), that file is checked and used.

    The footer gets the `requests` of the run that still count: their files will be deleted, and a recovery must find
    the same producer windows with or without a snapshot. It also gets the links of the run's first and last file, so
    that the chain of digests closes without them. `share` is the largest share of one processor that it takes. Raises
    `CorruptFile` if a file is not what its name promises, and `ObjectNotFound` if a file of the run is gone.
    """
    name = FileName(run[0].base, run[-1].end)
    encoder = _Encoder(ref, name)
    paced = partial(run_paced, clock, executor, share=share)
    for chunk in _chunks(run):
        rows = None if chunk[0].name.rolled else recent(chunk[0].base, chunk[-1].end)
        if rows is None:
            await paced(encoder.add_files, chunk, await _contents(store, ref, chunk))
        else:
            await paced(encoder.add, rows)
    first, last = [(await fetch_end(store, ref.key(facts.name))).footer for facts in (run[0], run[-1])]
    data, footer = await paced(encoder.finish, f"{broker}/{clock.ulid()}", tuple(requests), first.previous, last.link)
    # Stopping before this put leaves nothing. Stopping after it leaves a second copy of the run's messages: readers
    # take that copy instead of the run, and the next reconciliation adopts it.
    if not await put_until_known(store, clock, ref.key(name), memoryview(data), footer.writer):
        return await check_rollup(store, clock, ref, name, executor=executor, share=share)
    written = await store.get(ref.key(name))
    if not await paced(data.equals, pa.py_buffer(written.data)):
        # It has not replaced anything yet, and the run it was made of is untouched.
        await store.delete([ref.key(name)])
        raise CorruptFile(
            f"{ref.key(name)} was not read back as it was written; it has been removed", key=ref.key(name)
        )
    return await paced(_check_whole, ref, name, written.data)


async def check_rollup(
    store: Store, clock: Clock, ref: SegmentRef, name: FileName, *, executor: Executor, share: float = SHARE
) -> FileFacts:
    """Read all of a roll-up that was found on the store; returns its entry for the index.

    A large one is read row group by row group: its writer may have had more memory than a broker has. Raises
    `CorruptFile` if it does not hold exactly the messages that its name promises, and `ObjectNotFound`.
    """
    key = ref.key(name)
    file = await fetch_end(store, key)
    if file.size_bytes <= WHOLE_FILE_BYTES:
        whole = file.tail if len(file.tail) == file.size_bytes else (await store.get(key)).data
        return await run_paced(clock, executor, _check_whole, ref, name, whole, share=share)
    check = _Check(ref, name)
    for group in range(file.metadata.num_row_groups):
        data = await fetch_row_group(store, key, file, group)
        await run_paced(clock, executor, check.add_row_group, file, group, data, share=share)
    return check.result(file.footer, file.size_bytes)


def _chunks(run: Sequence[FileFacts]) -> Iterator[list[FileFacts]]:
    """The run in chunks that are read at once: a roll-up by itself, small files together."""
    chunk: list[FileFacts] = []
    size_bytes = 0
    for facts in run:
        alone = facts.name.rolled or (bool(chunk) and chunk[0].name.rolled)
        if chunk and (alone or len(chunk) == CHUNK_FILES or size_bytes + facts.size_bytes > CHUNK_BYTES):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(facts)
        size_bytes += facts.size_bytes
    if chunk:
        yield chunk


async def _contents(store: Store, ref: SegmentRef, files: Sequence[FileFacts]) -> list[bytes]:
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def one(facts: FileFacts) -> bytes:
        async with gate:
            return (await store.get(ref.key(facts.name))).data

    return await asyncio.gather(*map(one, files))


class _Encoder:
    """Writes the roll-up row group by row group. Executor threads call it, one at a time."""

    def __init__(self, ref: SegmentRef, name: FileName) -> None:
        self._ref, self._name = ref, name
        self._encoder: SegmentFileEncoder | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._reached = name.base
        self._refs = 0
        self._first_us = self._last_us = 0

    def add_files(self, files: Sequence[FileFacts], contents: Sequence[bytes]) -> None:
        """Add the messages of the next files.

        Raises `DataMissing` if a file between them is gone, and `CorruptFile` if they do not follow each other.
        """
        for facts, data in zip(files, contents, strict=True):
            base = facts.base
            for table in _row_groups(self._ref, facts.name, data):
                self.add(table.slice(max(self._reached - base, 0)))
                base += table.num_rows
            if base < facts.end and not facts.name.rolled:
                # All bytes of the file were checked, so it ends here: the next one must have begun here.
                key = self._ref.key(FileName(base))
                raise DataMissing(f"{key} is gone: the file before it ends at {base}", key=key)
            if self._reached != facts.end:
                key = self._ref.key(facts.name)
                raise CorruptFile(f"{key}: it ends at {self._reached}, not at {facts.end}", key=key)

    def add(self, table: pa.Table) -> None:
        """Add the next messages."""
        # One chunk instead of one per file: computing the size of a chunk takes longer than copying a small one.
        table = table.combine_chunks()
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        self._reached += table.num_rows
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        table = pa.concat_tables(self._waiting)
        groups = max(1, round(self._waiting_bytes / ROW_GROUP_BYTES))
        self._waiting, self._waiting_bytes = [], 0
        if not table.num_rows:
            return
        _check_offsets(self._ref, self._name, table, self._reached - table.num_rows)
        first_us, self._last_us = time_bounds_us(table)
        self._first_us = self._first_us or first_us
        self._refs += count_refs(table)
        table = self._ref.schema.in_file(table)
        if self._encoder is None:
            self._encoder = SegmentFileEncoder(table.schema, compression="zstd")
        rows = -(-table.num_rows // groups)
        for first in range(0, table.num_rows, rows):
            self._encoder.add_row_group(table.slice(first, rows))

    def finish(
        self, writer: str, requests: tuple[StoredRequest, ...], previous: str, last_original: str
    ) -> tuple[pa.Buffer, Footer]:
        """The whole file, and its footer, with the links of the run's first and last file."""
        if self._waiting:
            self._write()
        count = self._reached - self._name.base
        footer = Footer(
            self._ref.segment,
            self._name.base,
            count,
            writer,
            self._first_us,
            self._last_us,
            refs=self._refs,
            requests=requests,
            previous=previous,
            last_original=last_original,
        )
        if self._encoder is None or footer.end != self._name.end:
            raise CorruptFile(f"{self._ref.key(self._name)} would end at {footer.end}")
        return self._encoder.finish(footer), footer


def _row_groups(ref: SegmentRef, name: FileName, data: bytes) -> Iterator[pa.Table]:
    """The file's messages, one row group at a time: repetitive values decompress to many times the file's size."""
    with of_file(ref.key(name)):
        end = read_whole(data, place=(ref.segment, name.base))
        try:
            with pq.ParquetFile(pa.BufferReader(data), metadata=end.metadata) as file:
                for group in range(file.num_row_groups):
                    # Arrow's own threads would take processors from the publishers; this one thread does not.
                    yield unmark(file.read_row_group(group))
        except DECODING_ERRORS as error:
            raise undecodable(error) from error


def _check_offsets(ref: SegmentRef, name: FileName, table: pa.Table, base: int) -> None:
    offsets = table["_offset"].to_numpy()
    if not np.array_equal(offsets, np.arange(base, base + len(offsets), dtype=np.int64)):
        key = ref.key(name)
        raise CorruptFile(f"{key}: it does not hold the offsets [{base}, {base + len(offsets)})", key=key)


class _Check:
    """Compares all messages of a roll-up, decoded, with its name and its footer. Runs on executor threads."""

    def __init__(self, ref: SegmentRef, name: FileName) -> None:
        self._ref, self._name = ref, name
        self._reached, self._refs = name.base, 0
        self._first_us = self._last_us = 0

    def add_row_group(self, file: FileEnd, group: int, data: bytes) -> None:
        """Add the messages of one row group of a file that was fetched in part."""
        with of_file(self._ref.key(self._name)):
            table = decode_row_group(file, group, data)
        self.add(table)

    def add(self, table: pa.Table) -> None:
        """Add the next messages."""
        _check_offsets(self._ref, self._name, table, self._reached)
        first_us, self._last_us = time_bounds_us(table)
        self._first_us = self._first_us or first_us
        self._reached += table.num_rows
        self._refs += count_refs(table)

    def result(self, footer: Footer, size_bytes: int) -> FileFacts:
        """The file's entry for the index, once all messages were added; raises `CorruptFile`."""
        bounds = self._first_us, self._last_us
        said = (footer.segment, footer.base, footer.end, footer.refs)
        times_said = footer.first_timestamp_us, footer.last_timestamp_us
        held = (self._ref.segment, self._name.base, self._reached, self._refs)
        if (said, times_said) != (held, bounds) or self._reached != self._name.end:
            key = self._ref.key(self._name)
            raise CorruptFile(f"{key}: it does not hold what its name and its footer say", key=key)
        return FileFacts(self._name, self._reached, size_bytes, *bounds, refs=self._refs)


def _check_whole(ref: SegmentRef, name: FileName, data: bytes) -> FileFacts:
    """The entry for the index of a roll-up of these bytes; raises `CorruptFile`. Runs on an executor thread."""
    check = _Check(ref, name)
    for table in _row_groups(ref, name, data):
        check.add(table)
    with of_file(ref.key(name)):
        footer = read_end(data, len(data)).footer
    return check.result(footer, len(data))
