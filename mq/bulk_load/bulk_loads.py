"""Bulk loads at a broker (docs/design.md §10a): reserves segments, returns where files go, commits.

Any broker does any step of any load: everything about a load is in topic.json and on the store. Until its last step a
commit changes nothing that readers see. That step is the compare-and-swap that begins the transition. Stopped before
that, there are checked files, and seals of segments that no topic has; the same request again has the same result.
Stopped after that, topic.json names the steps left, and any broker that finds them goes on.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np

from filer import keys
from filer.bulk_load.load_check import FileClaim
from filer.clock import Clock
from filer.errors import InvalidInput, LoadRefused, ObjectNotFound, OutcomeUnknown
from filer.event_log import EventLog
from filer.keys import FileName
from filer.slots import SLOTS
from filer.stores.store import ObjectInfo, PresignedRequest, Store
from filer.topic.catalogue import Catalogue
from filer.topic.reservations import (
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
from filer.topic.topic_state import Load, Segment, TopicState
from leader.policy.cut_points import SlotTraffic, equal_parts
from leader.transitions import SealedEnd
from mq.base.errors import Conflict, NotFound, Repeatable, TopicNotFound, TransitionUnderWay
from mq.bulk_load.load_checker import LoadChecker
from mq.bulk_load.load_folders import CALLS_AT_ONCE, LoadFolders, segment_ends
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime
from mq.transitions.transition_executor import TransitionExecutor

MOST_FILE_BYTES = 4 * 1024**3
URL_SECONDS = 3600
TRIES = 5
_SHOWN_LOADS = 8

_log = EventLog(__name__)


@dataclass(frozen=True, slots=True)
class FileTarget:
    """Where a file of a load goes: its key, a presigned put if the store has them, and the object that exists there."""

    key: str
    presigned: PresignedRequest | None
    existing: ObjectInfo | None


class BulkLoads:
    """The bulk loads of all topics, as one broker serves them. All methods belong to the event loop's thread.

    `on_failed` is called for commits that were `refused`, or whose outcome is `unknown`.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        catalogue: Catalogue,
        topics: TopicRegistry,
        executor: TransitionExecutor,
        checker: LoadChecker,
        pool: Executor,
        grace_seconds: float,
        on_failed: Callable[[str], object] = lambda reason: None,
    ) -> None:
        self._store, self._clock, self._catalogue, self._grace_seconds = store, clock, catalogue, grace_seconds
        self._topics, self._executor, self._checker = topics, executor, checker
        self._on_failed = on_failed
        self._folders = LoadFolders(store, clock, pool)
        self._committing: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def reserve(self, topic: str, load_id: str, segments: int) -> tuple[Load, bool]:
        """Reserve segments for a load, unless it has some. Returns the load, and whether this call reserved it.

        Raises `NotFound`, `InvalidInput`, and `Conflict` if there are too many loads.
        """
        if not 1 <= segments <= MOST_SEGMENTS:
            raise InvalidInput(f"segments: a load must have from 1 to {MOST_SEGMENTS} segments, not {segments}")
        runtime = await self._topics.topic(topic)
        if runtime.state.is_grouped:
            raise Conflict(
                "topic-group", f"{topic!r} is a topic group, which takes no bulk loads: publish to its topics instead"
            )
        starts = await self._starts(runtime, segments)
        now_us, made = self._catalogue.stamp_us(), False

        def reserve(state: TopicState) -> TopicState | None:
            nonlocal made
            after = reserving(state, load_id, starts, now_us=now_us)
            made = made or after is not None
            return after

        # One compare-and-swap: stopped before it nothing is reserved, after it the same request finds it.
        state = await self._changed(await self._catalogue.change(topic, reserve), topic)
        load = find_load(state, load_id)
        if load is None or is_overtaken(state, load) or is_expired(state, load, now_us=now_us):
            raise Conflict("too-many-loads", _too_many(state))
        if made:
            _log.info("load_reserved", topic=topic, load=load_id, segments=segments)
        return load, made

    async def find(self, topic: str, load_id: str) -> tuple[TopicState, Load]:
        """Return the load of that id and the newest state of its topic; raises `NotFound`."""
        runtime = await self._topics.topic(topic)
        await runtime.refresh()
        load = find_load(runtime.state, load_id)
        if load is None:
            raise NotFound("load", f"topic {topic!r} has no load {load_id!r}: it was never reserved, or given up")
        return runtime.state, load

    def is_committing(self, state: TopicState, load: Load) -> bool:
        """Whether a commit is under way, as far as this broker knows."""
        lock = self._committing.get((state.topic, load.id))
        return is_committing(state, load) or (lock is not None and lock.locked())

    async def abandon(self, topic: str, load_id: str) -> None:
        """Give a load up: its files go after the grace period. Raises `NotFound`, `Conflict` if it was committed."""
        state, load = await self.find(topic, load_id)
        now_us = self._catalogue.stamp_us()
        state = await self._changed(
            await self._catalogue.change(topic, lambda newest: abandoning(newest, load_id, now_us=now_us)),
            topic,
        )
        load = find_load(state, load_id) or load
        if load.version is not None or is_committing(state, load):
            raise Conflict("load-committed", f"load {load_id!r} of topic {topic!r} has been committed")
        _log.info("load_abandoned", topic=topic, load=load_id)

    # -- files ---------------------------------------------------------------------------------------------

    async def file_targets(
        self,
        topic: str,
        load_id: str,
        files: Sequence[FileClaim],
        *,
        look: bool,
        expires_seconds: int = URL_SECONDS,
    ) -> tuple[Load, list[FileTarget]]:
        """Return the load, and where to put these files, within `expires_seconds`; with `look` also the objects there.

        Raises `NotFound`, `Conflict`, `InvalidInput`.
        """
        state, load = await self.find(topic, load_id)
        self._check_open(state, load)
        for file in files:
            self.check_file(topic, load, file)
        left_seconds = (load.expires_us - self._clock.now_us()) // 1_000_000
        # A presigned address must expire before the files of a load that was given up are deleted.
        seconds = max(1, min(expires_seconds, left_seconds, int(self._grace_seconds)))
        gate = asyncio.Semaphore(CALLS_AT_ONCE)

        async def target(file: FileClaim) -> FileTarget:
            key = keys.segment_file(topic, file.segment, FileName(file.base_offset))
            async with gate:
                presigned = await self._store.presign_create(
                    key, size_bytes=file.size_bytes, sha256=None, expires_seconds=seconds
                )
                return FileTarget(key, presigned, await self._head(key) if look else None)

        return load, await asyncio.gather(*map(target, files))

    def check_file(self, topic: str, load: Load, file: FileClaim) -> None:
        """Raises `InvalidInput` if a load cannot have such a file."""
        if file.segment not in load.segments:
            raise InvalidInput(
                f"segment {file.segment} is not one of load {load.id!r} of topic {topic!r}: those are "
                f"{load.segments.start} to {load.segments.stop - 1}"
            )
        if not 0 < file.size_bytes <= MOST_FILE_BYTES:
            raise InvalidInput(f"a file of a load must have from 1 to {MOST_FILE_BYTES} bytes, not {file.size_bytes}")

    async def _head(self, key: str) -> ObjectInfo | None:
        try:
            return await self._store.head(key)
        except ObjectNotFound:
            return None

    def _check_open(self, state: TopicState, load: Load) -> None:
        if load.version is not None or is_committing(state, load):
            raise Conflict("load-committed", f"load {load.id!r} of topic {state.topic!r} has been committed")
        if is_overtaken(state, load):
            raise Conflict(
                "load-overtaken",
                f"load {load.id!r} of topic {state.topic!r} was overtaken: another load, reserved later, has been "
                "committed, and this one's files would come before it in the order of segments; reserve it again under "
                "the same id and write its files again",
            )

    # -- commit --------------------------------------------------------------------------------------------

    async def commit(self, topic: str, load_id: str, files: Sequence[FileClaim], asker: str = "") -> Load:
        """Check the files, seal the segments, and adopt them; returns the load as committed, now or before.

        Raises `LoadRefused` if a file differs from its claim: then nothing has changed. Raises `NotFound`, `Conflict`,
        and `Repeatable` if the store or an owner did not answer. This broker runs one commit of a load at a time: a
        repeated request waits for the first one and finds its result. `asker` is the principal: they take turns.
        """
        try:
            async with self._committing.setdefault((topic, load_id), asyncio.Lock()):
                state, load = await self._settled(topic, load_id)
                if load.version is None:
                    self._check_open(state, load)
                    _log.info("load_commit_began", topic=topic, load=load_id, files=len(files))
                    load = await self._commit(state, load, files, asker)
                    _log.info("load_committed", topic=topic, load=load_id, files=len(files), messages=sum(load.ends))
                return await self._confirmed(topic, load)
        except LoadRefused as error:
            self._on_failed("refused")
            _log.warning("load_refused", topic=topic, load=load_id, error=error)
            raise
        except OutcomeUnknown as error:
            self._on_failed("unknown")
            raise Repeatable(error) from error

    async def _confirmed(self, topic: str, load: Load) -> Load:
        """Return the load, once no older record can make brokers forget its adoption: they would sweep its files.

        First writes a mark of the version that adopted it, then reads the record. A record that is put back before the
        read is seen here; after it, every broker that reads that record for the first time sees the mark
        (`model/older_records.py`). Stopped anywhere, no client has had an answer; the request comes again, and finds it
        adopted.
        """
        await self._catalogue.mark(topic, load.version or 0)
        record = await self._catalogue.read(topic)
        now = None if record is None else find_load(record.state, load.id)
        if now is None or now.version != load.version:
            raise OutcomeUnknown(
                f"{keys.topic(topic)} no longer says that load {load.id!r} was committed: somebody has put back an "
                "older one, or all its messages have expired"
            )
        return now

    async def _settled(self, topic: str, load_id: str) -> tuple[TopicState, Load]:
        """As `find`; if the load is being adopted, after that has finished."""
        state, load = await self.find(topic, load_id)
        if is_committing(state, load):
            await self._executor.finish_transition(topic)
            state, load = await self.find(topic, load_id)
        return state, load

    async def _commit(self, state: TopicState, load: Load, files: Sequence[FileClaim], asker: str) -> Load:
        try:
            ends = segment_ends(load, files)
            pinned = await self._folders.pin(state, load, files, ends)
            await self._checker.check(pinned, asker)
            sealed = await self._folders.close(state, load, pinned, ends)
            # Only checked files are adopted: a file that was replaced since has never been checked.
            if await self._folders.pin(state, load, files, ends) != pinned:
                raise LoadRefused("a file has changed since it was checked")
        except LoadRefused:
            # Another broker's commit may have come first, or be at its last step: its files may be rolled up already.
            _, now = await self._settled(state.topic, load.id)
            if now.version is None:
                raise
            return now
        return await self._adopt(state.topic, load, sealed)

    async def _adopt(self, topic: str, load: Load, ends: Mapping[int, SealedEnd]) -> Load:
        """Carry out the transition, after any other transition that is under way."""
        for _ in range(TRIES):
            state = await self._executor.adopt_load(topic, load.id, ends)
            if state is None or state.deleted:
                raise NotFound("topic", f"there is no topic {topic!r} any more")
            now = find_load(state, load.id)
            if now is None or now.first_segment != load.first_segment:
                raise Conflict("load-abandoned", f"load {load.id!r} of topic {topic!r} was given up meanwhile")
            if now.version is not None:
                return now
            self._check_open(state, now)
        raise TransitionUnderWay(f"topic {topic!r} is kept busy by other transitions: repeat the request later")

    # -- ranges --------------------------------------------------------------------------------------------

    async def _starts(self, runtime: TopicRuntime, parts: int) -> tuple[int, ...]:
        """Return the first slot of each range of a load. Ranges share known traffic evenly, else have equal widths."""
        state = runtime.state
        gate = asyncio.Semaphore(CALLS_AT_ONCE)

        async def slot_traffic(segment: Segment) -> SlotTraffic | None:
            async with gate:
                return await self._executor.slot_traffic(state.topic, segment)

        found = await asyncio.gather(*map(slot_traffic, state.open_segments))
        known = [(s.range, each) for s, each in zip(state.open_segments, found, strict=True) if each is not None]
        return (0, *equal_parts(_joined(known), 0, SLOTS, parts, state.config.target))

    async def _changed(self, state: TopicState | None, topic: str) -> TopicState:
        if state is None or state.deleted:
            raise TopicNotFound(topic)
        self._topics.apply(state)
        return state


def _too_many(state: TopicState) -> str:
    waiting = [load.id for load in state.loads if load.reserved]
    shown = ", ".join(waiting[:_SHOWN_LOADS]) + (", …" if len(waiting) > _SHOWN_LOADS else "")
    return (
        f"topic {state.topic!r} has {MOST_RESERVED} loads, or {MOST_RESERVED_SEGMENTS} segments of loads, that are not "
        f"committed ({shown or 'none'}) or were given up and whose files are not deleted yet: commit or abandon some, "
        "or wait"
    )


def _joined(known: Sequence[tuple[tuple[int, int], SlotTraffic]]) -> SlotTraffic | None:
    """Return the traffic of all slots; None if the traffic of any segment is unknown."""
    messages, size_bytes = np.zeros(SLOTS), np.zeros(SLOTS)
    covered = 0
    for (start, stop), seen in known:
        if len(seen.messages) != stop - start:
            return None
        messages[start:stop], size_bytes[start:stop] = seen.messages, seen.size_bytes
        covered += stop - start
    return SlotTraffic(messages, size_bytes, sum(seen.observations for _, seen in known)) if covered == SLOTS else None


def committed_segments(load: Load) -> Iterator[tuple[int, tuple[int, int], int]]:
    """Yield id, slots and end offset of each segment of a committed load."""
    yield from ((i, slots, end) for (i, slots), end in zip(load.ranges.items(), load.ends, strict=True))
