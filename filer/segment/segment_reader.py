"""Reading messages back from segment files: by offset, within bounds, through a bounded cache."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial

import pyarrow as pa

from filer.format.segment_file import WHOLE_FILE_BYTES, FileEnd, decode, decode_row_group, of_file
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, fetch_end
from filer.stores.store import Store

FILES_AT_ONCE = 8
FILES_PER_READ = 256


class SegmentReader:
    """Reads stored files. Decoding happens on `decoder` threads, separate from those that write (docs/design.md §7).

    All bytes are checked by the digests of their file before they are decoded.
    """

    def __init__(self, store: Store, decoder: Executor, *, cache_bytes: int) -> None:
        self._store, self._decoder = store, decoder
        self._cache = _TableCache(cache_bytes)
        self._gate = asyncio.Semaphore(FILES_AT_ONCE)

    async def read(
        self, ref: SegmentRef, index: SegmentIndex, offset: int, *, max_rows: int, max_bytes: int
    ) -> pa.Table:
        """Messages from `offset` on, at least one if there is one, in the columns of `log_schema`.

        At most `max_rows`, and about `max_bytes` of stored bytes; may be fewer messages than there are. Raises
        `ObjectNotFound` if a file was rolled up and deleted meanwhile: recover the index.
        """
        files = _enough(index.covering(offset), offset, max_rows, max_bytes)
        tables = await asyncio.gather(*(self._read_file(ref, facts, offset, max_bytes) for facts in files))
        found: list[pa.Table] = []
        reached = offset
        for facts, table in zip(files, tables, strict=True):
            found.append(table)
            reached += table.num_rows
            if reached < facts.end:
                break
        if not found:
            return ref.schema.empty_table()
        return pa.concat_tables(found).slice(0, max_rows)

    async def _read_file(self, ref: SegmentRef, facts: FileFacts, offset: int, max_bytes: int) -> pa.Table:
        """The file's messages from `offset` (or from where it counts) on, up to about `max_bytes`."""
        wanted = max(offset, facts.start)
        key = ref.key(facts.name)
        async with self._gate:
            if facts.size_bytes <= WHOLE_FILE_BYTES:
                return (await self._whole(ref, key, facts)).slice(wanted - facts.base)
            return await self._row_groups(ref, key, facts, wanted, max_bytes)

    async def _whole(self, ref: SegmentRef, key: str, facts: FileFacts) -> pa.Table:
        cached = self._cache.get((key, None))
        if cached is None:
            fetched = await self._store.get(key)
            cached = await self._decode(key, partial(decode, fetched.data, place=(ref.segment, facts.base)))
            self._cache.put((key, None), cached)
        return cached

    async def _row_groups(self, ref: SegmentRef, key: str, facts: FileFacts, wanted: int, max_bytes: int) -> pa.Table:
        file = await fetch_end(self._store, key)
        with of_file(key):
            file.footer.check_place(ref.segment, facts.base)
        tables: list[pa.Table] = []
        base, taken_bytes = facts.base, 0
        for group in range(file.metadata.num_row_groups):
            end = base + file.metadata.row_group(group).num_rows
            if end > wanted:
                table = await self._row_group(key, file, group)
                tables.append(table.slice(max(wanted - base, 0)))
                taken_bytes += table.nbytes
            base = end
            if taken_bytes >= max_bytes:
                break
        return pa.concat_tables(tables)

    async def _row_group(self, key: str, file: FileEnd, group: int) -> pa.Table:
        cached = self._cache.get((key, group))
        if cached is None:
            data = await fetch_row_group(self._store, key, file, group)
            cached = await self._decode(key, partial(decode_row_group, file, group, data))
            self._cache.put((key, group), cached)
        return cached

    async def _decode(self, key: str, work: "partial[pa.Table]") -> pa.Table:
        with of_file(key):
            return await asyncio.get_running_loop().run_in_executor(self._decoder, work)


def _enough(files: Sequence[FileFacts], offset: int, max_rows: int, max_bytes: int) -> list[FileFacts]:
    """The first files that together hold about `max_rows` or `max_bytes`; at least one."""
    chosen: list[FileFacts] = []
    rows = size_bytes = 0
    for facts in files[:FILES_PER_READ]:
        if facts.count == 0:
            continue
        chosen.append(facts)
        rows += facts.end - max(offset, facts.start)
        size_bytes += facts.size_bytes
        if rows >= max_rows or size_bytes >= max_bytes:
            break
    return chosen


async def fetch_row_group(store: Store, key: str, file: FileEnd, number: int) -> bytes:
    """The bytes of one row group, which decoding checks."""
    start, stop = file.row_group_range(number)
    tail_begin = file.size_bytes - len(file.tail)
    if start >= tail_begin:
        return file.tail[start - tail_begin : stop - tail_begin]
    return (await store.get(key, start=start, stop=stop)).data


class _TableCache:
    """The most recently read tables, up to a number of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes, self._size_bytes = limit_bytes, 0
        self._tables: OrderedDict[tuple[str, int | None], pa.Table] = OrderedDict()

    def get(self, key: tuple[str, int | None]) -> pa.Table | None:
        table = self._tables.get(key)
        if table is not None:
            self._tables.move_to_end(key)
        return table

    def put(self, key: tuple[str, int | None], table: pa.Table) -> None:
        if key in self._tables or table.nbytes > self._limit_bytes:
            return
        self._tables[key] = table
        self._size_bytes += table.nbytes
        while self._size_bytes > self._limit_bytes:
            _, dropped = self._tables.popitem(last=False)
            self._size_bytes -= dropped.nbytes
