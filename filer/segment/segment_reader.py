"""Reading messages back from segment files: by offset, within bounds, through a bounded cache."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeAlias, TypeVar

import pyarrow as pa

from filer.errors import CorruptFile, DataMissing, StoreError, UnreadableObject
from filer.format.segment_file import ROW_GROUP_BYTES, WHOLE_FILE_BYTES, FileEnd, decode_row_group, of_file
from filer.segment.live_files import FileFacts, Hole
from filer.segment.read_room import SMALL_BYTES, NoRoom, Page, ReadRoom
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, check_end, fetch_end
from filer.segment.sized_cache import SizedCache
from filer.segment.whole_files import Decoded, Fresh, Outcome, TooLarge, WholeFile, decode_up_to, decoded_bytes
from filer.stores.store import Store

FILES_AT_ONCE = 8
FILES_PER_READ = 256
WHOLE_DECODED_BYTES = 4 * ROW_GROUP_BYTES
"""A file that decodes to more is read by row groups, however small it is on the store."""
_MOST_REMEMBERED = 10_000
_FOOTER_CACHE_BYTES = 4 * 1024 * 1024
T = TypeVar("T")
_Opened: TypeAlias = "Decoded | asyncio.Task[bytes] | Outcome | None"


class SegmentReader:
    """Reads stored files. Decoding happens on `decoder` threads, separate from those that write (docs/design.md §7).

    All bytes are checked by the digests of their file before they are decoded.
    """

    def __init__(self, store: Store, decoder: Executor, *, cache_bytes: int) -> None:
        self._store, self._decoder = store, decoder
        self._cache: SizedCache[tuple[str, int | None], Decoded] = SizedCache(cache_bytes)
        # A reader of a large file, page by page, needs its footer for each page.
        self._ends: SizedCache[str, FileEnd] = SizedCache(_FOOTER_CACHE_BYTES)
        self._gate = asyncio.Semaphore(FILES_AT_ONCE)
        self._by_row_groups: dict[str, None] = {}
        self._decoding: dict[tuple[str, int], asyncio.Lock] = {}

    def limit_cache(self, most_bytes: int) -> None:
        """Limit the cache to that size for now, and never to more than its own limit."""
        self._cache.limit(most_bytes)

    async def read(
        self,
        ref: SegmentRef,
        index: SegmentIndex,
        offset: int,
        *,
        max_rows: int,
        max_bytes: int,
        room: ReadRoom | None = None,
    ) -> pa.Table:
        """Messages from `offset` on, at least one if there is one, in the columns of `MessageSchema.log`.

        At most `max_rows`, and more than one only up to `max_bytes` of them as they are decoded; may be fewer messages
        than there are. Nothing is fetched or decoded before `room` is taken for it. A page ends when there is no room.
        Raises `NoRoom` if that is before its first message. A page also ends before a file that cannot be read. If that
        comes first, this raises `ObjectNotFound` if it was rolled up and deleted meanwhile (recover the index), and
        `CorruptFile`; at a hole in the index `DataMissing` or `CorruptFile`. The page passes by what is given up: then
        its first message lies behind that.
        """
        _check_readable(ref, index, offset)
        page = Page(offset, max_rows, max_bytes, room)
        files = _enough(index.readable(offset), offset, max_rows, max_bytes)
        if files and not await page.has_room(sum(min(each.size_bytes, WHOLE_FILE_BYTES) for each in files)):
            raise NoRoom
        # Fetched ahead, and decoded in order up to the bounds of the page.
        opening = [self._open(ref.key(facts.name), facts) for facts in files]
        try:
            for number, facts in enumerate(files):
                if page.tables and facts.start > page.reached:
                    break
                try:
                    await self._add_file(page, ref, files, opening, number)
                except (UnreadableObject, StoreError) as error:
                    if page.tables:
                        break
                    _place(error, ref, facts, page.reached)
                    raise
                if page.full or page.reached < facts.end:
                    break
        finally:
            fetching = [each for each in opening if isinstance(each, asyncio.Task)]
            for task in fetching:
                task.cancel()
            if fetching:
                await asyncio.gather(*fetching, return_exceptions=True)
        if not page.tables:
            if page.ended:
                raise NoRoom
            return ref.schema.no_messages
        return page.joined()

    def _open(self, key: str, facts: FileFacts) -> _Opened:
        """A file's rows if the cache has them, or its bytes on their way; None if it is read by row groups."""
        if facts.size_bytes > WHOLE_FILE_BYTES or key in self._by_row_groups:
            return None
        cached = self._cache.get((key, None))
        return cached if cached is not None else asyncio.create_task(self._fetch(key))

    async def _fetch(self, key: str) -> bytes:
        async with self._gate:
            return (await self._store.get(key)).data

    async def _add_file(
        self, page: Page, ref: SegmentRef, files: Sequence[FileFacts], opened: list[_Opened], number: int
    ) -> None:
        """Add the messages of the file of that number, from where the page ends now, as far as there is room."""
        facts = files[number]
        wanted, key = max(page.reached, facts.start), ref.key(facts.name)
        file = opened[number]
        if isinstance(file, asyncio.Task):
            # If the store raised an error instead, this raises it.
            await file
            await self._decode_fetched(page, ref, files, opened, number)
            file = opened[number]
        if isinstance(file, CorruptFile):
            raise file
        if file is None:
            await self._add_row_groups(page, ref, facts, wanted)
        elif isinstance(file, TooLarge):
            # Each page would fetch the whole file again. From now on it is read by row groups.
            self._remember_row_groups(key)
            await self._add_row_groups(page, ref, facts, wanted)
        elif isinstance(file, Fresh):
            page.add(wanted, file.decoded.rows(page, wanted - facts.base), decoded_bytes=file.decoded.size_bytes)
        elif isinstance(file, Decoded):
            rows = file.rows(page, wanted - facts.base)
            # Cached rows take no more memory than what is rendered of them.
            if await page.has_room(rows.size_bytes):
                page.add(wanted, rows, decoded_bytes=rows.size_bytes)

    async def _decode_fetched(
        self, page: Page, ref: SegmentRef, files: Sequence[FileFacts], opened: list[_Opened], number: int
    ) -> None:
        """Decode the file of that number, and the files behind it that are fetched already.

        Decodes only as many of these as fit into the room that the page has taken. If the first has no room, the page
        has ended, and nothing is decoded.
        """
        whole = []
        for facts, fetching in zip(files[number:], opened[number:], strict=True):
            if not isinstance(fetching, asyncio.Task) or not fetching.done() or fetching.exception() is not None:
                break
            whole.append(WholeFile(ref.key(facts.name), (ref.segment, facts.base), fetching.result()))
        if not await page.has_room(SMALL_BYTES):
            return
        most_bytes = min(max(page.spare_bytes, SMALL_BYTES), WHOLE_DECODED_BYTES)
        outcomes = await self._run(partial(decode_up_to, whole, most_bytes))
        first = outcomes[0]
        if isinstance(first, TooLarge) and first.size_bytes <= WHOLE_DECODED_BYTES:
            if not await page.has_room(first.size_bytes):
                return
            outcomes = await self._run(partial(decode_up_to, whole[:1], first.size_bytes))
        for file, outcome in zip(whole, outcomes, strict=False):
            if isinstance(outcome, Fresh):
                self._cache.put((file.key, None), outcome.decoded, outcome.decoded.size_bytes)
        opened[number : number + len(outcomes)] = outcomes

    def _remember_row_groups(self, key: str) -> None:
        self._by_row_groups[key] = None
        if len(self._by_row_groups) > _MOST_REMEMBERED:
            del self._by_row_groups[next(iter(self._by_row_groups))]

    async def _add_row_groups(self, page: Page, ref: SegmentRef, facts: FileFacts, wanted: int) -> None:
        key, base = ref.key(facts.name), facts.base
        file = await self._end(key)
        with of_file(key):
            file.footer.check_place(ref.segment, base)
        metadata = file.metadata
        for group in range(metadata.num_row_groups):
            end = base + metadata.row_group(group).num_rows
            if end > wanted:
                size_bytes = decoded_bytes(metadata, group)
                if not await page.has_room(size_bytes):
                    return
                decoded = await self._row_group(key, file, group)
                start = max(wanted, base)
                rows = decoded.rows(page, start - base)
                page.add(start, rows, decoded_bytes=max(size_bytes, decoded.size_bytes))
                if page.full or page.reached < end:
                    return
            base = end

    async def _end(self, key: str) -> FileEnd:
        file = self._ends.get(key)
        if file is None:
            file = await fetch_end(self._store, key)
            self._ends.put(key, file, len(file.tail))
        return file

    async def _row_group(self, key: str, file: FileEnd, group: int) -> Decoded:
        place = key, group
        decoding = self._decoding.get(place)
        if decoding is not None:
            # Many readers follow the same messages. What one of them decodes, the others find in the cache, if it has
            # room. They go on one after the other: all at once they would hold up the event loop.
            async with decoding:
                pass
        cached = self._cache.get(place)
        return cached if cached is not None else await self._decode_row_group(place, file)

    async def _decode_row_group(self, place: tuple[str, int], file: FileEnd) -> Decoded:
        key, group = place
        decoding = self._decoding[place] = asyncio.Lock()
        async with decoding:
            try:
                async with self._gate:
                    data = await fetch_row_group(self._store, key, file, group)
                    with of_file(key):
                        decoded = Decoded(await self._run(partial(decode_row_group, file, group, data)))
                self._cache.put(place, decoded, decoded.size_bytes)
                return decoded
            finally:
                # Another reader may have begun meanwhile, if the cache had no room for what this one waited for.
                if self._decoding.get(place) is decoding:
                    del self._decoding[place]

    async def _run(self, work: "partial[T]") -> T:
        return await asyncio.get_running_loop().run_in_executor(self._decoder, work)


def _check_readable(ref: SegmentRef, index: SegmentIndex, offset: int) -> None:
    """Raise `DataMissing` or `CorruptFile` if a hole, or the damaged last file, holds the offset."""
    hole = index.hole_at(offset)
    if hole is not None and not hole.given_up:
        raise unreadable(ref, hole, offset)
    if index.blocked is not None and offset >= index.end:
        check_end(ref, index)


def unreadable(ref: SegmentRef, hole: Hole, offset: int) -> UnreadableObject:
    """The error for a reader at `offset`, which lies in the hole."""
    key = ref.key(hole.name)
    kind, what = (CorruptFile, "is damaged") if hole.damaged else (DataMissing, "is gone from the store")
    return kind(
        f"{key} {what}: the messages [{hole.start}, {hole.end}) of segment {ref.segment} cannot be read. "
        "Putting the object back mends this",
        key=key,
        segment=ref.segment,
        offset=offset,
        next_offset=hole.end,
    )


def _place(error: BaseException, ref: SegmentRef, facts: FileFacts, offset: int) -> None:
    """Add to the error of a file which messages readers cannot read because of it."""
    if isinstance(error, UnreadableObject):
        error.key, error.segment = ref.key(facts.name), ref.segment
        error.offset, error.next_offset = max(offset, facts.start), facts.end


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
