"""Loads at a broker (DESIGN.md §10a): segments reserved, places for their files, the check, and the adoption.

Any broker does any step of any load: what there is to know of one is in topic.json and on the store. A commit changes
nothing that anybody reads before its last step, one compare-and-swap that begins the transition. Stopped before that,
there are checked files and seals of segments that no topic has, and the same request again comes to the same; stopped
after it, topic.json says what is to be done, and whoever finds it so goes on.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from filer import keys
from filer.errors import InvalidInput, LoadRefused, ObjectExists, ObjectNotFound, OutcomeUnknown
from filer.keys import FileName
from filer.load_check import FileClaim
from filer.load_files import LoadSegment, writer_of
from filer.loads import (
    MOST_RESERVED,
    MOST_RESERVED_SEGMENTS,
    MOST_SEGMENTS,
    abandoning,
    find_load,
    is_committing,
    is_overtaken,
    reserving,
)
from filer.segment_file import Footer
from filer.segment_log import RETRY_FIRST_SECONDS, RETRY_LONGEST_SECONDS
from filer.slots import SLOTS
from filer.store import ObjectInfo, PresignedRequest
from filer.topic_state import Load, Segment, TopicState
from leader.cut_points import SlotLoads, equal_parts
from leader.transitions import SealedEnd
from mq.errors import Conflict, NotFound, Repeatable, TransitionUnderWay
from mq.load_checker import LoadChecker, PinnedFile
from mq.parts import Parts
from mq.topic_runtime import TopicRuntime
from mq.transition_arm import TransitionArm

MOST_FILE_BYTES = 4 * 1024**3
MOST_FILES = 16_384
"""Of one load."""
URL_SECONDS = 3600
TRIES = 5
PUT_TRIES = 8
CALLS_AT_ONCE = 16


class LoadTopics(Protocol):
    """The topics of a broker."""

    async def topic(self, name: str) -> TopicRuntime:
        """The running topic; raises `NotFound`."""
        ...

    def see(self, state: TopicState) -> None:
        """Take a newer state of a topic into account."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file of a load goes: its key, a presigned put where the store has such, and what is there already."""

    key: str
    presigned: PresignedRequest | None
    there: ObjectInfo | None


class Loads:
    """The loads of all topics, as one broker serves them. All methods belong to the event loop's thread."""

    def __init__(self, parts: Parts, topics: LoadTopics, arm: TransitionArm, checker: LoadChecker) -> None:
        self._parts, self._topics, self._arm, self._checker = parts, topics, arm, checker
        self._at_work: dict[tuple[str, str], asyncio.Lock] = {}

    async def reserve(self, topic: str, load_id: str, segments: int) -> tuple[Load, bool]:
        """Reserve so many segments for a load, unless that is done; the load, and whether it was done now.

        Raises `NotFound`, `InvalidInput`, and `Conflict` where there are too many loads.
        """
        if not 1 <= segments <= MOST_SEGMENTS:
            raise InvalidInput(f"segments: a load has from 1 to {MOST_SEGMENTS} segments, not {segments}")
        runtime = await self._topics.topic(topic)
        starts = await self._starts(runtime, segments)
        now_us, made = self._parts.clock.now_us(), False

        def reserve(state: TopicState) -> TopicState | None:
            nonlocal made
            after = reserving(state, load_id, starts, now_us=now_us)
            made = made or after is not None
            return after

        # One compare-and-swap: stopped before it nothing is reserved, after it the same request finds it.
        state = await self._changed(await self._parts.catalogue.change(topic, reserve), topic)
        load = find_load(state, load_id)
        if load is None:
            raise Conflict(
                "too-many-loads",
                f"topic {topic!r} has {MOST_RESERVED} loads, or {MOST_RESERVED_SEGMENTS} segments of loads, that are "
                "not committed, or whose files are not deleted yet: commit or abandon some, or wait",
            )
        return load, made

    async def find(self, topic: str, load_id: str) -> tuple[TopicState, Load]:
        """The load of that id and the newest state of its topic; raises `NotFound`."""
        runtime = await self._topics.topic(topic)
        await runtime.refresh()
        load = find_load(runtime.state, load_id)
        if load is None:
            raise NotFound("load", f"topic {topic!r} has no load {load_id!r}: reserve it, or it was never committed")
        return runtime.state, load

    def is_committing(self, state: TopicState, load: Load) -> bool:
        """Whether a commit is under way, as far as is known here."""
        lock = self._at_work.get((state.topic, load.id))
        return is_committing(state, load) or (lock is not None and lock.locked())

    async def abandon(self, topic: str, load_id: str) -> None:
        """Give a load up: its files go after the grace period. Raises `NotFound`, `Conflict` where it is committed."""
        state, load = await self.find(topic, load_id)
        now_us = self._parts.clock.now_us()
        state = await self._changed(
            await self._parts.catalogue.change(topic, lambda newest: abandoning(newest, load_id, now_us=now_us)), topic
        )
        load = find_load(state, load_id) or load
        if load.version is not None or is_committing(state, load):
            raise Conflict("load-committed", f"load {load_id!r} of topic {topic!r} has been committed")

    # -- files ---------------------------------------------------------------------------------------------

    async def places(
        self, topic: str, load_id: str, files: Sequence[FileClaim], *, look: bool
    ) -> tuple[Load, list[Place]]:
        """The load, and where to put these files; with `look` also what is there.

        Raises `NotFound`, `Conflict`, `InvalidInput`.
        """
        state, load = await self.find(topic, load_id)
        self._check_open(state, load)
        for file in files:
            self.check_place(topic, load, file)
        left_seconds = (load.expires_us - self._parts.clock.now_us()) // 1_000_000
        # What is put by such an address comes before the files of a load that was given up are deleted.
        seconds = max(1, min(URL_SECONDS, left_seconds, int(self._parts.settings.grace)))
        gate = asyncio.Semaphore(CALLS_AT_ONCE)

        async def place(file: FileClaim) -> Place:
            key = keys.segment_file(topic, file.segment, FileName(file.base_offset))
            async with gate:
                presigned = await self._parts.store.presign_create(
                    key, size_bytes=file.size_bytes, sha256=None, expires_seconds=seconds
                )
                return Place(key, presigned, await self._head(key) if look else None)

        return load, await asyncio.gather(*map(place, files))

    def check_place(self, topic: str, load: Load, file: FileClaim) -> None:
        """Raises `InvalidInput` where a load cannot have such a file."""
        if file.segment not in load.segments:
            raise InvalidInput(
                f"segment {file.segment} is not one of load {load.id!r} of topic {topic!r}: those are "
                f"{load.segments.start} to {load.segments.stop - 1}"
            )
        if not 0 < file.size_bytes <= MOST_FILE_BYTES:
            raise InvalidInput(f"a file of a load has from 1 to {MOST_FILE_BYTES} bytes, not {file.size_bytes}")

    async def _head(self, key: str) -> ObjectInfo | None:
        try:
            return await self._parts.store.head(key)
        except ObjectNotFound:
            return None

    def _check_open(self, state: TopicState, load: Load) -> None:
        if load.version is not None or is_committing(state, load):
            raise Conflict("load-committed", f"load {load.id!r} of topic {state.topic!r} has been committed")
        if is_overtaken(state, load):
            raise Conflict(
                "load-overtaken",
                f"load {load.id!r} of topic {state.topic!r} was overtaken: another load, reserved later, has been "
                "committed, and this one's files would come before it in the order of segments; reserve it anew under "
                "the same id and write its files again",
            )

    # -- commit --------------------------------------------------------------------------------------------

    async def commit(self, topic: str, load_id: str, files: Sequence[FileClaim]) -> Load:
        """Check the files, seal the segments, and have them adopted; the load as it was committed, now or before.

        Raises `LoadRefused` where a file is not what it is said to be: then nothing has changed. Raises `NotFound`,
        `Conflict`, and `Repeatable` where the store or an owner did not answer.
        """
        try:
            async with self._alone(topic, load_id):
                state, load = await self.find(topic, load_id)
                if is_committing(state, load):
                    state = await self._arm.finish_transition(topic) or state
                    load = find_load(state, load_id) or load
                if load.version is not None:
                    return load
                self._check_open(state, load)
                try:
                    sealed = await self._checked(state, load, files)
                except LoadRefused:
                    if (adopted := await self._adopted_elsewhere(topic, load)) is not None:
                        return adopted
                    raise
                return await self._adopt(topic, load, sealed)
        except OutcomeUnknown as error:
            raise Repeatable(error) from error

    async def _checked(self, state: TopicState, load: Load, files: Sequence[FileClaim]) -> dict[int, SealedEnd]:
        """Where the segments of a load end: of files that have been checked, with their seals behind them."""
        ends = _laid_out(load, files)
        pinned = await self._pin(state, load, files, ends)
        await self._checker.check(pinned)
        seal_bytes = await self._seal(state, load, ends)
        # What was read is what is adopted: a file that is another one by now has never been checked.
        if await self._pin(state, load, files, ends) != pinned:
            raise LoadRefused("a file has changed since it was checked")
        return _sealed_ends(load, files, ends, seal_bytes)

    async def _adopted_elsewhere(self, topic: str, load: Load) -> Load | None:
        """The load, where another broker has come first: its files may be rolled up since, and gone."""
        state = await self._arm.finish_transition(topic)
        newest = None if state is None else find_load(state, load.id)
        if newest is None or newest.version is None or newest.first_segment != load.first_segment:
            return None
        return newest

    @contextlib.asynccontextmanager
    async def _alone(self, topic: str, load_id: str) -> AsyncIterator[None]:
        """One commit of a load at a time here: a repeat waits for the answer of the first."""
        place = (topic, load_id)
        lock = self._at_work.setdefault(place, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and self._at_work.get(place) is lock:
                del self._at_work[place]

    async def _pin(
        self, state: TopicState, load: Load, files: Sequence[FileClaim], ends: Mapping[int, int]
    ) -> list[PinnedFile]:
        """The files as they stand; raises `LoadRefused` where one is missing, or there are others in their folders."""
        by_segment: dict[int, list[FileClaim]] = {segment: [] for segment in load.segments}
        for file in files:
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
            if found is None:
                raise LoadRefused(f"{key}: there is no such file")
            if found.size_bytes != file.size_bytes:
                raise LoadRefused(f"{key}: it has {found.size_bytes} bytes, and {file.size_bytes} were said")
            yield PinnedFile(key, found.etag, file, about)

    async def _seal(self, state: TopicState, load: Load, ends: Mapping[int, int]) -> int:
        """Put the seal of each segment; the size of one.

        Segments that no topic has are sealed here: stopped anywhere, whoever commits the load puts the same bytes. They
        hold no producer windows (`filer/inheritance.py`).
        """
        ref = (await self._topics.topic(state.topic)).ref
        gate = asyncio.Semaphore(CALLS_AT_ONCE)

        async def seal(segment: int) -> int:
            end = ends[segment]
            footer = Footer(segment, end, 0, writer_of(load.id), 0, 0, sealed=True)
            data = bytes(ref(segment).encode(ref(segment).schema.empty_table(), footer))
            async with gate:
                await self._put_seal(ref(segment).key(FileName(end)), data)
            return len(data)

        return max(await asyncio.gather(*map(seal, load.segments)))

    async def _put_seal(self, key: str, data: bytes) -> None:
        """Put these very bytes, however often it takes; raises `LoadRefused` where the name is another file's."""
        pause = RETRY_FIRST_SECONDS
        for attempt in range(PUT_TRIES):
            try:
                await self._parts.store.create(key, data)
                return
            except ObjectExists:
                if (await self._parts.store.get(key, stop=len(data) + 1)).data != data:
                    raise LoadRefused(f"{key}: the name of the segment's seal is taken by another file") from None
                return
            except OutcomeUnknown:
                if attempt == PUT_TRIES - 1:
                    raise
            await self._parts.clock.sleep(pause)
            pause = min(pause * 2, RETRY_LONGEST_SECONDS)

    async def _adopt(self, topic: str, load: Load, ends: Mapping[int, SealedEnd]) -> Load:
        """Have the transition carried out, after whatever other is under way."""
        for _ in range(TRIES):
            state = await self._arm.load(topic, load.id, ends)
            if state is None or state.deleted:
                raise NotFound("topic", f"there is no topic {topic!r} any more")
            now = find_load(state, load.id)
            if now is None or now.first_segment != load.first_segment:
                raise Conflict("load-abandoned", f"load {load.id!r} of topic {topic!r} has been given up meanwhile")
            if now.version is not None:
                return now
            self._check_open(state, now)
        raise TransitionUnderWay(f"topic {topic!r} goes on changing its shape for other reasons: ask again")

    # -- ranges --------------------------------------------------------------------------------------------

    async def _starts(self, runtime: TopicRuntime, parts: int) -> tuple[int, ...]:
        """Where the ranges of a load begin: so that they share the load as it has been seen, else of equal width."""
        state = runtime.state
        gate = asyncio.Semaphore(CALLS_AT_ONCE)

        async def slot_loads(segment: Segment) -> SlotLoads | None:
            async with gate:
                return await self._arm.slot_loads(state.topic, segment)

        seen = await asyncio.gather(*map(slot_loads, state.open_segments))
        known = [(s.range, loads) for s, loads in zip(state.open_segments, seen, strict=True) if loads is not None]
        return (0, *equal_parts(_joined(known), 0, SLOTS, parts, state.config.target))

    async def _changed(self, state: TopicState | None, topic: str) -> TopicState:
        if state is None or state.deleted:
            raise NotFound("topic", f"there is no topic {topic!r}: create it with PUT /v1/topics/{topic}")
        self._topics.see(state)
        return state


def _joined(known: Sequence[tuple[tuple[int, int], SlotLoads]]) -> SlotLoads | None:
    """What was seen of all slots; None where it is not known of all segments."""
    messages, size_bytes = np.zeros(SLOTS), np.zeros(SLOTS)
    covered = 0
    for (start, stop), seen in known:
        if len(seen.messages) != stop - start:
            return None
        messages[start:stop], size_bytes[start:stop] = seen.messages, seen.size_bytes
        covered += stop - start
    return SlotLoads(messages, size_bytes, sum(seen.observations for _, seen in known)) if covered == SLOTS else None


def _laid_out(load: Load, files: Sequence[FileClaim]) -> dict[int, int]:
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


def _sealed_ends(
    load: Load, files: Sequence[FileClaim], ends: Mapping[int, int], seal_bytes: int
) -> dict[int, SealedEnd]:
    sizes = dict.fromkeys(load.segments, seal_bytes)
    for file in files:
        sizes[file.segment] += file.size_bytes
    return {segment: SealedEnd(end, end, sizes[segment]) for segment, end in ends.items()}


def committed_segments(load: Load) -> Iterator[tuple[int, tuple[int, int], int]]:
    """Id, slots and end offset of each segment of a committed load."""
    yield from ((i, slots, end) for (i, slots), end in zip(load.ranges.items(), load.ends, strict=True))
