"""Roll-up: writing a run of small files again as one larger file that stands for them (DESIGN.md §4).

Nothing here changes or removes a file. Until the index lets the roll-up stand for the run, both hold the same
messages, and readers take whichever reaches furthest; so stopping at any line leaves every message readable once.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from filer.clock import Clock
from filer.errors import CorruptFile
from filer.keys import FileName
from filer.live_files import FileFacts
from filer.paced import SHARE, run_paced
from filer.requests import StoredRequest
from filer.segment_file import (
    ROW_GROUP_BYTES,
    WHOLE_FILE_BYTES,
    Footer,
    count_refs,
    mark_json,
    parquet_metadata,
    parquet_writer,
    read_footer,
    time_bounds_us,
    unmark,
)
from filer.segment_log import SegmentRef, put_until_known
from filer.segment_reader import fetch_row_group, fetch_tail
from filer.store import Store

NEWEST_KEPT = 4
MIN_FILES = 8
MIN_FILES_AT_REST = 2
MAX_FILES = 2000
TINY_BYTES = 16 * 1024
SMALL_SHARE = 16
"""A file is small below this part of `rollup_bytes`: so a whole run of `MIN_FILES` always fits into one roll-up."""
GROWTH = 2
SETTLED_BYTES = 128 * 1024 * 1024
"""A file of that size is never written again, by a broker or by `mq pipeline compact`: tables may refer to it."""
PART_FILES = 64
PART_BYTES = 8 * 1024 * 1024
READS_AT_ONCE = 8

Recent = Callable[[int, int], pa.Table | None]
"""The messages `[start, end)` of a segment where they are all at hand, in the columns of `log_schema`."""


def none_at_hand(start: int, end: int) -> pa.Table | None:
    """For a segment that nobody writes here."""
    return None


def plan_rollup(
    files: Sequence[FileFacts], *, rollup_bytes: int, newest_kept: int, min_files: int, ripe_us: int
) -> Sequence[FileFacts]:
    """The next run of live files to be rolled up; empty where there is nothing to gain.

    At least `min_files` small files of the owner that follow each other, the oldest first, and before them the
    files (earlier roll-ups mostly) that are at most `GROWTH` times as large as what the run already holds, and not
    settled. So each roll-up that stays is more than twice as large as all that is newer: as many stay as the size has
    doublings, and a message is written again about that often. The `newest_kept` last files are left alone: readers
    of the tail are at them, the seal stays, and names there tell recovery that a log goes on. Tiny files are taken
    at once, others when their last message is not newer than `ripe_us`: for a grace period a bare glob sees a roll-up
    beside its files, and what came in batches gains too little to trouble those who query it while it is fresh.
    """
    eligible = max(len(files) - newest_kept, 0)
    first, last = _small_stretch(files[:eligible], rollup_bytes, min_files, ripe_us)
    size_bytes = sum(facts.size_bytes for facts in files[first:last])
    while first and last > first and last - first < MAX_FILES:
        before = files[first - 1].size_bytes
        if before > GROWTH * size_bytes or before + size_bytes > rollup_bytes or before >= SETTLED_BYTES:
            break
        size_bytes += before
        first -= 1
    return files[first:last]


def _small_stretch(files: Sequence[FileFacts], rollup_bytes: int, min_files: int, ripe_us: int) -> tuple[int, int]:
    """Bounds of the oldest stretch of small files that is long enough, or of as much of it as one roll-up takes."""
    first, size_bytes = 0, 0
    for place, facts in enumerate(files):
        ripe = facts.size_bytes < TINY_BYTES or facts.last_timestamp_us <= ripe_us
        small = ripe and not facts.name.rolled and facts.size_bytes < rollup_bytes // SMALL_SHARE
        full = size_bytes + facts.size_bytes > rollup_bytes or place - first >= MAX_FILES
        if (not small or full) and place - first >= min_files:
            return first, place
        if not small or full:
            first, size_bytes = (place, 0) if small else (place + 1, 0)
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
    """Write the run's messages as one file and read it back; what the index is to keep of it.

    Messages that the owner still has from writing them are taken from `recent`: decoding a thousand files a second
    would cost the publishers more than all the rest. Holds about twice `rollup_bytes` at most (the new file, and
    what is read back of it). Where a file of that very name stands already (a try of an earlier life, or of another
    broker) that one is checked and used. The footer takes `requests` over from the run, as far as they still count:
    the files that said it will be deleted, and a recovery must come to the same windows of producers with or without a
    snapshot of them. `share` of one processor is what it takes at most. Raises `CorruptFile` where a file is not what
    its name promises, `ObjectNotFound` where one of the run is gone.
    """
    name = FileName(run[0].base, run[-1].end)
    encoder = _Encoder(ref, name)
    paced = partial(run_paced, clock, executor, share=share)
    for part in _parts(run):
        rows = None if part[0].name.rolled else recent(part[0].base, part[-1].end)
        if rows is None:
            await paced(encoder.add_files, part, await _contents(store, ref, part))
        else:
            await paced(encoder.add, rows)
    data, footer = await paced(encoder.finish, f"{broker}/{clock.ulid()}", tuple(requests))
    # Stopping before this put leaves nothing; stopping behind it leaves a second copy of the run's messages under
    # a name that readers take instead of the run, and that the next look at the segment's names adopts.
    if not await put_until_known(store, clock, ref.key(name), memoryview(data), footer.writer):
        return await check_rollup(store, clock, ref, name, executor=executor, share=share)
    written = await store.get(ref.key(name))
    if not await paced(data.equals, pa.py_buffer(written.data)):
        # Nobody has let it stand for anything yet, and the run it was made of is untouched.
        await store.delete([ref.key(name)])
        raise CorruptFile(f"{ref.key(name)} reads back otherwise than it was written; it has been removed")
    return await paced(_check_whole, ref, name, written.data)


async def check_rollup(
    store: Store, clock: Clock, ref: SegmentRef, name: FileName, *, executor: Executor, share: float = SHARE
) -> FileFacts:
    """What the index keeps of a roll-up found on the store, once all of it has been read.

    A large one is read row group by row group: whoever wrote it may have had more memory than a broker has. Raises
    `CorruptFile` where it does not hold exactly the messages its name promises, `ObjectNotFound`.
    """
    key = ref.key(name)
    tail = await fetch_tail(store, key)
    size_bytes = tail.info.size_bytes
    if size_bytes <= WHOLE_FILE_BYTES:
        whole = tail.data if len(tail.data) == size_bytes else (await store.get(key)).data
        return await run_paced(clock, executor, _check_whole, ref, name, whole, share=share)
    check, metadata = _Check(ref, name), parquet_metadata(tail.data)
    for group in range(metadata.num_row_groups):
        file = await fetch_row_group(store, key, size_bytes, tail.data, metadata, group)
        await run_paced(clock, executor, check.add_row_group, pa.PythonFile(file, "r"), group, share=share)
    return check.result(read_footer(tail.data), size_bytes)


def _parts(run: Sequence[FileFacts]) -> Iterator[list[FileFacts]]:
    """The run in parts that are taken at once: a roll-up by itself, small files together."""
    part: list[FileFacts] = []
    size_bytes = 0
    for facts in run:
        alone = facts.name.rolled or (bool(part) and part[0].name.rolled)
        if part and (alone or len(part) == PART_FILES or size_bytes + facts.size_bytes > PART_BYTES):
            yield part
            part, size_bytes = [], 0
        part.append(facts)
        size_bytes += facts.size_bytes
    if part:
        yield part


async def _contents(store: Store, ref: SegmentRef, part: Sequence[FileFacts]) -> list[bytes]:
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def one(facts: FileFacts) -> bytes:
        async with gate:
            return (await store.get(ref.key(facts.name))).data

    return await asyncio.gather(*map(one, part))


class _Encoder:
    """Writes the roll-up row group by row group. Every call belongs to one executor thread at a time."""

    def __init__(self, ref: SegmentRef, name: FileName) -> None:
        self._ref, self._name = ref, name
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._reached = name.base
        self._refs = 0
        self._first_us = self._last_us = 0

    def add_files(self, part: Sequence[FileFacts], contents: Sequence[bytes]) -> None:
        """Take the messages of the next files; raises `CorruptFile` where they do not follow each other."""
        for facts, data in zip(part, contents, strict=True):
            base = facts.base
            for table in _row_groups(self._ref, facts.name, data):
                self.add(table.slice(max(self._reached - base, 0)))
                base += table.num_rows
            if self._reached != facts.end:
                raise CorruptFile(f"{self._ref.key(facts.name)} ends at {self._reached}, not at {facts.end}")

    def add(self, table: pa.Table) -> None:
        """Take the next messages."""
        # One chunk instead of one per file: telling the size of a chunk takes longer than copying a small one.
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
        if self._ref.value_type == "json":
            table = mark_json(table)
        if self._writer is None:
            self._writer = parquet_writer(self._sink, table.schema, compression="zstd")
        self._writer.write_table(table, row_group_size=-(-table.num_rows // groups))

    def finish(self, writer: str, requests: tuple[StoredRequest, ...]) -> tuple[pa.Buffer, Footer]:
        """The whole file and what its footer says."""
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
        )
        if self._writer is None or footer.end != self._name.end:
            raise CorruptFile(f"{self._ref.key(self._name)} would end at {footer.end}")
        self._writer.add_key_value_metadata(footer.to_metadata())
        self._writer.close()
        return self._sink.getvalue(), footer


def _row_groups(ref: SegmentRef, name: FileName, data: bytes) -> Iterator[pa.Table]:
    """The file's messages, one row group at a time: a roll-up of repetitive values unpacks to many times its size."""
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            for group in range(file.num_row_groups):
                # Arrow's own threads would take the publishers' processors; this thread alone does not.
                yield unmark(file.read_row_group(group, use_threads=False))
    except (pa.ArrowException, OSError) as error:
        raise _undecodable(ref, name, error) from error


def _undecodable(ref: SegmentRef, name: FileName, error: Exception) -> CorruptFile:
    return CorruptFile(f"{ref.key(name)} cannot be decoded: {error}")


def _check_offsets(ref: SegmentRef, name: FileName, table: pa.Table, base: int) -> None:
    offsets = table["_offset"].to_numpy()
    if not np.array_equal(offsets, np.arange(base, base + len(offsets), dtype=np.int64)):
        raise CorruptFile(f"{ref.key(name)} does not hold the offsets [{base}, {base + len(offsets)})")


class _Check:
    """Holds a roll-up's messages, all decoded, against its name and its footer. Runs on executor threads."""

    def __init__(self, ref: SegmentRef, name: FileName) -> None:
        self._ref, self._name = ref, name
        self._reached, self._refs = name.base, 0
        self._first_us = self._last_us = 0

    def add_row_group(self, file: pa.NativeFile, group: int) -> None:
        """Take the messages of one row group of a file that has been fetched in part."""
        try:
            with pq.ParquetFile(file) as parquet:
                table = parquet.read_row_group(group, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise _undecodable(self._ref, self._name, error) from error
        self.add(unmark(table))

    def add(self, table: pa.Table) -> None:
        """Take the next messages."""
        _check_offsets(self._ref, self._name, table, self._reached)
        first_us, self._last_us = time_bounds_us(table)
        self._first_us = self._first_us or first_us
        self._reached += table.num_rows
        self._refs += count_refs(table)

    def result(self, footer: Footer, size_bytes: int) -> FileFacts:
        """What the index keeps, once all messages have been taken; raises `CorruptFile`."""
        bounds = self._first_us, self._last_us
        said = (footer.segment, footer.base, footer.end, footer.refs)
        times_said = footer.first_timestamp_us, footer.last_timestamp_us
        held = (self._ref.segment, self._name.base, self._reached, self._refs)
        if (said, times_said) != (held, bounds) or self._reached != self._name.end:
            raise CorruptFile(f"{self._ref.key(self._name)} does not hold what its name and its footer say")
        return FileFacts(self._name, self._reached, size_bytes, *bounds, refs=self._refs)


def _check_whole(ref: SegmentRef, name: FileName, data: bytes) -> FileFacts:
    """Runs on an executor thread: what the index keeps of a roll-up of these bytes; raises `CorruptFile`."""
    check, footer = _Check(ref, name), read_footer(data)
    for table in _row_groups(ref, name, data):
        check.add(table)
    return check.result(footer, len(data))
