"""Reading messages back from segment files: by offset, within bounds, through a bounded cache."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from filer.errors import CorruptFile
from filer.format.segment_file import (
    FOOTER_GUESS_BYTES,
    WHOLE_FILE_BYTES,
    decode,
    footer_size_bytes,
    parquet_metadata,
)
from filer.format.sparse_file import SparseFile
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.stores.store import Fetched, Store

FILES_AT_ONCE = 8
FILES_PER_READ = 256


class SegmentReader:
    """Reads stored files. Decoding happens on `decoder` threads, separate from those that write (docs/design.md §7)."""

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
                return (await self._whole(key, facts)).slice(wanted - facts.base)
            return await self._row_groups(key, facts, wanted, max_bytes)

    async def _whole(self, key: str, facts: FileFacts) -> pa.Table:
        cached = self._cache.get((key, None))
        if cached is None:
            fetched = await self._store.get(key)
            cached = await self._decode(key, partial(decode, fetched.data))
            self._cache.put((key, None), cached)
        return cached

    async def _row_groups(self, key: str, facts: FileFacts, wanted: int, max_bytes: int) -> pa.Table:
        tail = await fetch_tail(self._store, key)
        metadata = parquet_metadata(tail.data)
        tables: list[pa.Table] = []
        base, taken_bytes = facts.base, 0
        for group in range(metadata.num_row_groups):
            end = base + metadata.row_group(group).num_rows
            if end > wanted:
                table = await self._row_group(key, facts, tail.data, metadata, group)
                tables.append(table.slice(max(wanted - base, 0)))
                taken_bytes += table.nbytes
            base = end
            if taken_bytes >= max_bytes:
                break
        return pa.concat_tables(tables)

    async def _row_group(
        self, key: str, facts: FileFacts, tail: bytes, metadata: pq.FileMetaData, group: int
    ) -> pa.Table:
        cached = self._cache.get((key, group))
        if cached is None:
            file = await fetch_row_group(self._store, key, facts.size_bytes, tail, metadata, group)
            cached = await self._decode(key, partial(decode, pa.PythonFile(file, "r"), row_groups=[group]))
            self._cache.put((key, group), cached)
        return cached

    async def _decode(self, key: str, work: "partial[pa.Table]") -> pa.Table:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._decoder, work)
        except (pa.ArrowException, OSError) as error:
            raise CorruptFile(f"{key} cannot be decoded: {error}") from error


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


async def fetch_tail(store: Store, key: str) -> Fetched:
    """A file's last bytes, its whole Parquet footer among them. Raises `ObjectNotFound`, `CorruptFile`."""
    tail = await store.get(key, start=-FOOTER_GUESS_BYTES)
    needed = footer_size_bytes(tail.data)
    return tail if needed <= len(tail.data) else await store.get(key, start=-needed)


async def fetch_row_group(
    store: Store, key: str, size_bytes: int, tail: bytes, metadata: pq.FileMetaData, group: int
) -> SparseFile:
    """The bytes that decoding one row group takes, of a file of `size_bytes` that ends with `tail`."""
    start, stop = _byte_range(metadata.row_group(group))
    fetched = await store.get(key, start=start, stop=stop)
    return SparseFile(size_bytes, [(start, fetched.data), (size_bytes - len(tail), tail)])


def _byte_range(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """The byte range of a row group's pages in the file."""
    columns = [group.column(i) for i in range(group.num_columns)]
    starts = [
        min(c.data_page_offset, c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset)
        for c in columns
    ]
    return min(starts), max(start + c.total_compressed_size for start, c in zip(starts, columns, strict=True))


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
