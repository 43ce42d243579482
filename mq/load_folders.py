"""The segments of a load on the store: whether exactly the files that were named are there, and closing the segments.

No topic has these segments yet, so nobody reads what is put here. Stopped anywhere, whoever commits the load puts the
same again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from filer import keys
from filer.errors import LoadRefused, ObjectExists, ObjectNotFound, OutcomeUnknown
from filer.index_snapshots import create_snapshot
from filer.keys import FileName
from filer.live_files import FileFacts
from filer.load_check import FileClaim
from filer.load_files import LoadSegment, writer_of
from filer.segment_file import Footer
from filer.segment_index import SegmentIndex
from filer.segment_log import RETRY_FIRST_SECONDS, RETRY_LONGEST_SECONDS, SegmentRef
from filer.store import ObjectInfo
from filer.topic_state import Load, TopicState
from leader.transitions import SealedEnd
from mq.load_checker import PinnedFile
from mq.parts import Parts

MOST_FILES = 16_384
"""Of one load."""
PUT_TRIES = 8
CALLS_AT_ONCE = 16
T = TypeVar("T")


def laid_out(load: Load, files: Sequence[FileClaim]) -> dict[int, int]:
    """The end of each segment by what is said of its files; raises `LoadRefused` where they leave a gap or overlap."""
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

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def pin(
        self, state: TopicState, load: Load, files: Sequence[FileClaim], ends: Mapping[int, int]
    ) -> list[PinnedFile]:
        """The files as they stand; raises `LoadRefused` where one is missing, or there are others in their folders."""
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
        """One listing tells of the files of a segment; what that lacks is asked for by itself, as it may lag behind."""
        folder = keys.segment_folder(state.topic, segment)
        seal = keys.segment_file(state.topic, segment, FileName(end))
        wanted = {keys.segment_file(state.topic, segment, FileName(file.base_offset)): file for file in files}
        listed: dict[str, ObjectInfo] = {}
        async for info in self._parts.store.list(folder, limit=len(wanted) + 2):
            if info.key not in wanted and info.key != seal:
                raise LoadRefused(f"{info.key}: it is in the segment's folder and not among the files of the load")
            listed[info.key] = info
        slots = load.ranges[segment]
        config = state.config
        about = LoadSegment(load.id, segment, *slots, load.reserved_us, config.key_type, config.value_type)
        for key, file in wanted.items():
            found = listed.get(key) or await self._head(key)
            if found.size_bytes != file.size_bytes:
                raise LoadRefused(f"{key}: it has {found.size_bytes} bytes, and {file.size_bytes} were said")
            yield PinnedFile(key, found.etag, file, about)

    async def _head(self, key: str) -> ObjectInfo:
        try:
            return await self._parts.store.head(key)
        except ObjectNotFound as error:
            raise LoadRefused(f"{key}: there is no such file") from error

    async def close(
        self, state: TopicState, load: Load, pinned: Sequence[PinnedFile], ends: Mapping[int, int]
    ) -> dict[int, SealedEnd]:
        """Put the seal of each segment, and a snapshot of its index, by which it is known from then on.

        A signed address may be used after the commit yet, for a name that is free. A file that so comes to lie between
        those that were checked counts for no broker: whoever comes to know the segment begins with the snapshot, which
        has the seal, and looks at no names. The seals hold no producer windows (`filer/inheritance.py`).
        """
        by_segment: dict[int, list[PinnedFile]] = {segment: [] for segment in load.segments}
        for file in pinned:
            by_segment[file.claim.segment].append(file)
        gate = asyncio.Semaphore(CALLS_AT_ONCE)

        async def close(segment: int) -> SealedEnd:
            # A few at a time, the making of them too: in between the event loop serves others.
            async with gate:
                return await self._close(state, load, segment, by_segment[segment], ends[segment])

        closed = await asyncio.gather(*map(close, load.segments))
        return dict(zip(load.segments, closed, strict=True))

    async def _close(
        self, state: TopicState, load: Load, segment: int, files: Sequence[PinnedFile], end: int
    ) -> SealedEnd:
        ref = SegmentRef(state.topic, segment, state.config.key_type, state.config.value_type)
        footer = Footer(segment, end, 0, writer_of(load.id), 0, 0, sealed=True)
        seal = bytes(ref.encode(ref.schema.empty_table(), footer))
        await self._until_known(lambda: self._put_seal(ref.key(FileName(end)), seal))
        index = _index_of(files, load.reserved_us)
        index.append(FileFacts(FileName(end), end, len(seal), 0, 0, sealed=True, start=end))
        await self._until_known(lambda: self._put_snapshot(ref, index))
        return SealedEnd(end, end, index.stored_bytes)

    async def _put_seal(self, key: str, data: bytes) -> None:
        """Put these very bytes; raises `LoadRefused` where the name is another file's."""
        try:
            await self._parts.store.create(key, data)
        except ObjectExists:
            if (await self._parts.store.get(key, stop=len(data) + 1)).data != data:
                raise LoadRefused(f"{key}: the name of the segment's seal is taken by another file") from None

    async def _put_snapshot(self, ref: SegmentRef, index: SegmentIndex) -> None:
        """One that stands is never replaced: if the load was adopted meanwhile, upkeep has moved it on."""
        if not await create_snapshot(self._parts.store, ref, index, executor=self._parts.upkeep):
            raise LoadRefused(f"segment {ref.segment}: it was closed before, with files of other sizes")

    async def _until_known(self, put: Callable[[], Awaitable[T]]) -> T:
        """Put the same as often as it takes to know what has become of it; raises `OutcomeUnknown` in the end."""
        pause = RETRY_FIRST_SECONDS
        for _ in range(PUT_TRIES - 1):
            try:
                return await put()
            except OutcomeUnknown:
                await self._parts.clock.sleep(pause)
                pause = min(pause * 2, RETRY_LONGEST_SECONDS)
        return await put()


def _index_of(files: Sequence[PinnedFile], time_us: int) -> SegmentIndex:
    """The index of a segment whose files, in order, have been checked."""
    index = SegmentIndex()
    for claim in (file.claim for file in files):
        end = claim.base_offset + claim.count
        name = FileName(claim.base_offset)
        index.append(FileFacts(name, end, claim.size_bytes, time_us, time_us, start=claim.base_offset))
    return index
