"""The segments of a bulk load on the store: checks that exactly the named files exist, and seals the segments.

No topic has these segments yet, so no reader sees the objects put here. Stopped anywhere, the next commit of the load
puts the same again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TypeVar

from filer import keys
from filer.backoff import Backoff
from filer.bulk_load.load_check import FileClaim
from filer.bulk_load.load_segment import LoadSegment, writer_of
from filer.clock import Clock
from filer.errors import CorruptFile, LoadRefused, ObjectExists, ObjectNotFound, OutcomeUnknown
from filer.format.segment_file import Footer, encode
from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, fetch_footer
from filer.stores.store import ObjectInfo, Store
from filer.topic.topic_schema import schema_of
from filer.topic.topic_state import Load, TopicState
from filer.upkeep.index_snapshots import create_snapshot
from leader.transitions import SealedEnd
from mq.bulk_load.load_checker import PinnedFile

MOST_FILES = 16_384
"""The most files of one load."""
PUT_TRIES = 8
CALLS_AT_ONCE = 16
T = TypeVar("T")


def segment_ends(load: Load, files: Sequence[FileClaim]) -> dict[int, int]:
    """Return the end offset of each segment by the claims; raises `LoadRefused` if files overlap or leave a gap."""
    if len(files) > MOST_FILES:
        raise LoadRefused(f"{len(files)} files were named: a load has at most {MOST_FILES}")
    ends = dict.fromkeys(load.segments, 0)
    for file in sorted(files, key=lambda file: (file.segment, file.base_offset)):
        if file.segment not in ends:
            raise LoadRefused(f"segment {file.segment} is not one of load {load.id!r}")
        if file.base_offset != ends[file.segment] or file.count < 1:
            raise LoadRefused(
                f"segment {file.segment}: the files up to offset {ends[file.segment]} are followed by one that begins "
                f"at {file.base_offset} with {file.count} messages: offsets begin at 0 and have no gaps, no file is "
                "empty"
            )
        ends[file.segment] += file.count
    return ends


class LoadFolders:
    """The folders of segments that are reserved for loads."""

    def __init__(self, store: Store, clock: Clock, pool: Executor) -> None:
        self._store, self._clock, self._pool = store, clock, pool

    async def pin(
        self, state: TopicState, load: Load, files: Sequence[FileClaim], ends: Mapping[int, int]
    ) -> list[PinnedFile]:
        """Return the files as stored; raises `LoadRefused` if one is missing, or their folders have other files."""
        by_segment: dict[int, list[FileClaim]] = {segment: [] for segment in load.segments}
        for file in sorted(files, key=lambda file: file.base_offset):
            by_segment[file.segment].append(file)
        gate = asyncio.Semaphore(CALLS_AT_ONCE)

        async def pin(segment: int) -> list[PinnedFile]:
            async with gate:
                return [
                    each async for each in self._pin_segment(state, load, segment, by_segment[segment], ends[segment])
                ]

        found = await asyncio.gather(*map(pin, load.segments))
        return [each for pinned in found for each in pinned]

    async def _pin_segment(
        self, state: TopicState, load: Load, segment: int, files: Sequence[FileClaim], end: int
    ) -> AsyncIterator[PinnedFile]:
        """Return the files of a segment by one listing. Requests a file that it lacks: listings may lag behind."""
        folder = keys.segment_folder(state.topic, segment)
        seal = keys.segment_file(state.topic, segment, FileName(end))
        wanted = {keys.segment_file(state.topic, segment, FileName(file.base_offset)): file for file in files}
        listed: dict[str, ObjectInfo] = {}
        async for info in self._store.list(folder, limit=len(wanted) + 2):
            if info.key not in wanted and info.key != seal:
                raise LoadRefused(f"{info.key}: it is in the segment's folder and not among the files of the load")
            listed[info.key] = info
        slots = load.ranges[segment]
        about = LoadSegment(load.id, segment, *slots, load.reserved_us, schema_of(state))
        for key, file in wanted.items():
            found = listed.get(key) or await self._head(key)
            if found.size_bytes != file.size_bytes:
                raise LoadRefused(f"{key}: it has {found.size_bytes} bytes, and {file.size_bytes} were said")
            yield PinnedFile(key, found.etag, file, about)

    async def _head(self, key: str) -> ObjectInfo:
        try:
            return await self._store.head(key)
        except ObjectNotFound as error:
            raise LoadRefused(f"{key}: there is no such file") from error

    async def close(
        self, state: TopicState, load: Load, pinned: Sequence[PinnedFile], ends: Mapping[int, int]
    ) -> dict[int, SealedEnd]:
        """Put the seal of each segment, and a snapshot of its index, from which brokers take the segment's files.

        A presigned address may still be used after the commit, for a name that is free. A file that comes to lie
        between the checked ones in this way counts for no broker: every broker begins with the snapshot, which has the
        seal, and looks at no names. The seals hold no producer windows (`filer/segment/inheritance.py`).
        """
        by_segment: dict[int, list[PinnedFile]] = {segment: [] for segment in load.segments}
        for file in pinned:
            by_segment[file.claim.segment].append(file)
        gate = asyncio.Semaphore(CALLS_AT_ONCE)

        async def close(segment: int) -> SealedEnd:
            # Few at a time, encoding included: between them the event loop serves other requests.
            async with gate:
                return await self._close(state, load, segment, by_segment[segment], ends[segment])

        closed = await asyncio.gather(*map(close, load.segments))
        return dict(zip(load.segments, closed, strict=True))

    async def _close(
        self, state: TopicState, load: Load, segment: int, files: Sequence[PinnedFile], end: int
    ) -> SealedEnd:
        ref = SegmentRef(state.topic, segment, schema_of(state))
        last = await self._until_known(lambda: fetch_footer(self._store, files[-1].key)) if files else None
        footer = Footer(
            segment, end, 0, writer_of(load.id), 0, 0, sealed=True, previous="" if last is None else last[0].link
        )
        seal = bytes(encode(ref.schema.in_file(ref.schema.no_messages), footer))
        size_bytes = await self._until_known(lambda: self._put_seal(ref.key(FileName(end)), seal, footer))
        index = _index_of(files, load.reserved_us)
        index.append(FileFacts(FileName(end), end, size_bytes, 0, 0, sealed=True, start=end))
        await self._until_known(lambda: self._put_snapshot(ref, index))
        return SealedEnd(end, end, index.stored_bytes)

    async def _put_seal(self, key: str, data: bytes, footer: Footer) -> int:
        """Put this seal; returns its size in bytes. Raises `LoadRefused` if another file has the name.

        An existing seal may be of a broker of another version, which encodes the same seal in other bytes.
        """
        try:
            await self._store.create(key, data)
        except ObjectExists:
            try:
                found, size_bytes = await fetch_footer(self._store, key)
            except CorruptFile:
                found, size_bytes = None, 0
            if found is None or replace(found, previous=footer.previous) != footer:
                raise LoadRefused(f"{key}: the name of the segment's seal is taken by another file") from None
            return size_bytes
        return len(data)

    async def _put_snapshot(self, ref: SegmentRef, index: SegmentIndex) -> None:
        """Create the snapshot. Never replace an existing one: if the load was adopted, upkeep may have updated it."""
        if not await create_snapshot(self._store, ref, index, executor=self._pool):
            raise LoadRefused(f"segment {ref.segment}: it was closed before, with files of other sizes")

    async def _until_known(self, put: Callable[[], Awaitable[T]]) -> T:
        """Repeat the put until its outcome is known; raises `OutcomeUnknown` after `PUT_TRIES` tries."""
        backoff = Backoff(self._clock)
        for _ in range(PUT_TRIES - 1):
            try:
                return await put()
            except OutcomeUnknown:
                await backoff.pause()
        return await put()


def _index_of(files: Sequence[PinnedFile], time_us: int) -> SegmentIndex:
    """Return the index of a segment with checked files, in order."""
    index = SegmentIndex()
    for claim in (file.claim for file in files):
        end = claim.base_offset + claim.count
        name = FileName(claim.base_offset)
        index.append(FileFacts(name, end, claim.size_bytes, time_us, time_us, start=claim.base_offset))
    return index
