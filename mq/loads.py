"""Loads at a broker (DESIGN.md §10a): segments reserved, places for their files, the check, and the adoption.

Any broker does any step of any load: what there is to know of one is in topic.json and on the store. A commit changes
nothing that anybody reads before its last step, one compare-and-swap that begins the transition. Stopped before that,
there are checked files and seals of segments that no topic has, and the same request again comes to the same; stopped
after it, topic.json says what is to be done, and whoever finds it so goes on.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np

from filer import keys
from filer.errors import InvalidInput, LoadRefused, ObjectNotFound, OutcomeUnknown
from filer.keys import FileName
from filer.load_check import FileClaim
from filer.loads import (
    MOST_RESERVED,
    MOST_RESERVED_SEGMENTS,
    MOST_SEGMENTS,
    abandoning,
    find_load,
    is_committing,
    is_expired,
    is_overtaken,
    reserving,
)
from filer.slots import SLOTS
from filer.store import ObjectInfo, PresignedRequest
from filer.topic_state import Load, Segment, TopicState
from leader.cut_points import SlotLoads, equal_parts
from leader.transitions import SealedEnd
from mq.errors import Conflict, NotFound, Repeatable, TransitionUnderWay
from mq.load_checker import LoadChecker
from mq.load_folders import CALLS_AT_ONCE, LoadFolders, laid_out
from mq.parts import Parts
from mq.topic_runtime import TopicRuntime
from mq.transition_arm import TransitionArm

MOST_FILE_BYTES = 4 * 1024**3
URL_SECONDS = 3600
TRIES = 5
_SHOWN_LOADS = 8


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
        self._folders = LoadFolders(parts)
        self._at_work: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

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
        if load is None or is_overtaken(state, load) or is_expired(state, load, now_us=now_us):
            raise Conflict("too-many-loads", _too_many(state))
        return load, made

    async def find(self, topic: str, load_id: str) -> tuple[TopicState, Load]:
        """The load of that id and the newest state of its topic; raises `NotFound`."""
        runtime = await self._topics.topic(topic)
        await runtime.refresh()
        load = find_load(runtime.state, load_id)
        if load is None:
            raise NotFound("load", f"topic {topic!r} has no load {load_id!r}: it was never reserved, or given up")
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
        `Conflict`, and `Repeatable` where the store or an owner did not answer. Of the same load one is at work here
        at a time: a repeat waits for the first, and finds what that has done.
        """
        try:
            async with self._at_work.setdefault((topic, load_id), asyncio.Lock()):
                state, load = await self._settled(topic, load_id)
                if load.version is not None:
                    return load
                self._check_open(state, load)
                return await self._commit(state, load, files)
        except OutcomeUnknown as error:
            raise Repeatable(error) from error

    async def _settled(self, topic: str, load_id: str) -> tuple[TopicState, Load]:
        """As `find`; where the load is being adopted, once that is over."""
        state, load = await self.find(topic, load_id)
        if is_committing(state, load):
            await self._arm.finish_transition(topic)
            state, load = await self.find(topic, load_id)
        return state, load

    async def _commit(self, state: TopicState, load: Load, files: Sequence[FileClaim]) -> Load:
        try:
            ends = laid_out(load, files)
            pinned = await self._folders.pin(state, load, files, ends)
            await self._checker.check(pinned)
            sealed = await self._folders.close(state, load, pinned, ends)
            # What was read is what is adopted: a file that is another one by now has never been checked.
            if await self._folders.pin(state, load, files, ends) != pinned:
                raise LoadRefused("a file has changed since it was checked")
        except LoadRefused:
            # Another broker's commit may have come first, or be at its last step: what it adopted is rolled up, say.
            _, now = await self._settled(state.topic, load.id)
            if now.version is None:
                raise
            return now
        return await self._adopt(state.topic, load, sealed)

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


def _too_many(state: TopicState) -> str:
    waiting = [load.id for load in state.loads if load.reserved]
    shown = ", ".join(waiting[:_SHOWN_LOADS]) + (", …" if len(waiting) > _SHOWN_LOADS else "")
    return (
        f"topic {state.topic!r} has {MOST_RESERVED} loads, or {MOST_RESERVED_SEGMENTS} segments of loads, that are not "
        f"committed ({shown or 'none'}) or were given up and whose files are not deleted yet: commit or abandon some, "
        "or wait"
    )


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


def committed_segments(load: Load) -> Iterator[tuple[int, tuple[int, int], int]]:
    """Id, slots and end offset of each segment of a committed load."""
    yield from ((i, slots, end) for (i, slots), end in zip(load.ranges.items(), load.ends, strict=True))
