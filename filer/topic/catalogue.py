"""The topic catalogue: reading topic.json and changing it by compare-and-swap."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import orjson

from filer import keys
from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import (
    BraidError,
    CorruptFile,
    DataMissing,
    EtagMismatch,
    ObjectExists,
    ObjectNotFound,
    OutcomeUnknown,
    UnreadableObject,
)
from filer.stores.store import Store
from filer.stores.store_time import Moment, moment
from filer.topic.known_records import KnownRecords, check_covers, check_not_older
from filer.topic.record_check import checked, with_check
from filer.topic.topic_state import Segment, TopicState, broken_invariants

TRIES = 12
MOST_IN_ONE_RECORD = 1000
"""The most segments in one file of a topic's history."""
_CALLS_AT_ONCE = 16


class BrokenInvariant(BraidError):
    """A change would have left the topic in an impossible state."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic's state with the ETag it was read under.

    `is_ours`: the call of `change_record` that returned it has written it. If the store's answer did not come, the
    writer is not known, and it is False.
    """

    state: TopicState
    etag: str
    is_ours: bool = field(default=False, compare=False)


OnRead = Callable[[str, UnreadableObject | None], None]
"""Called with the topic after each read of its record, and with the error that keeps it from being used, or None."""


class Catalogue:
    """All topics of one store.

    It remembers the newest version of each record, and refuses an older one. It calls `on_read` after each read.
    """

    def __init__(self, store: Store, clock: Clock, *, on_read: OnRead = lambda topic, fault: None) -> None:
        self._store, self._clock, self._on_read = store, clock, on_read
        self._known = KnownRecords()
        # The newest version of each topic that has a mark on the store; 0 for one that was made here and has none yet.
        self._marked: dict[str, int] = {}

    def stamp_us(self) -> int:
        """The time to note in a record: this machine's, unless the store has reported a later one.

        What is kept for some time from then on is kept for at least as long, whatever the clock here shows.
        """
        return max(self._clock.now_us(), self._store.time.latest_us)

    async def names(self, *, after: str | None = None) -> list[str]:
        """The sorted names of all topics ever created here, including deleted ones; those `after` a name, if given."""
        names = await self._store.list_folders(keys.TOPICS)
        return [name for name in names if after is None or name > after]

    async def group_of(self, name: str) -> str | None:
        """The topic group in whose files the messages of that name lie; None if it is not a member of one.

        Raises as `read`.
        """
        record = await self.read(name)
        member_of = None if record is None else record.state.member_of
        group = None if member_of is None else await self.read(member_of.group)
        is_member = member_of is not None and group is not None and group.state.has_member(member_of)
        return member_of.group if is_member and member_of is not None else None

    async def read(self, topic: str) -> TopicRecord | None:
        """The current record of a topic, which may be a tombstone; None if there never was such a topic.

        Raises `CorruptFile` if the record is damaged or older than one that was there before, and `DataMissing` if it
        is gone; both name its key. A deleted topic keeps its record, so a topic that is known here, or has any object
        on the store, has lost it.
        """
        try:
            record = await self._read(topic)
        except UnreadableObject as error:
            self._on_read(topic, error)
            raise
        self._on_read(topic, None)
        return record

    async def is_free(self, topic: str) -> bool:
        """Whether the store has nothing of that name, and nothing is known of it: it may be created."""
        return self._known.get(topic) is None and not await self._has_objects(topic)

    def saw(self, state: TopicState) -> None:
        """Record that another broker reports this record to be, or to have been, on the store."""
        self._known.add(state.topic, state.version)

    async def _read(self, topic: str) -> TopicRecord | None:
        # Read before the request: the record known by now was on the store before it.
        known = self._known.get(topic)
        fetched = await self._fetch(topic)
        if fetched is None:
            if known is None and not await self._has_objects(topic):
                return None
            # Its first objects may have come between the two looks.
            fetched = await self._fetch(topic)
            if fetched is None:
                raise _missing(topic)
        if known is None:
            fetched = await self._covering_all(topic, fetched)
        record, digest = fetched
        check_not_older(topic, record.state.version, digest, known)
        self._known.add(topic, record.state.version, digest)
        return record

    async def _fetch(self, topic: str) -> tuple[TopicRecord, str] | None:
        """The record as it stands, and the digest of its content."""
        key = keys.topic(topic)
        try:
            fetched = await self._store.get(key)
        except ObjectNotFound:
            return None
        content, digest = checked(fetched.data, key=key, first="format")
        state = TopicState.from_content(content, key=key)
        if state.topic != topic:
            raise CorruptFile(f"{key} is the record of another topic: {state.topic!r}", key=key)
        return TopicRecord(state, fetched.info.etag), digest

    async def _has_objects(self, topic: str) -> bool:
        async for _ in self._store.list(keys.topic_folder(topic), limit=1):
            return True
        return False

    async def _covering_all(self, topic: str, fetched: tuple[TopicRecord, str]) -> tuple[TopicRecord, str]:
        """The first record of a topic in this process's life, once it is certain that no newer one was there.

        The topic may change between the read and the listing, so the record is read again before it is called older.
        """
        state = fetched[0].state
        # A history file that has a segment from `next_segment` on begins at most so far before it.
        begin = keys.history_from(topic, max(0, state.next_segment + 1 - MOST_IN_ONE_RECORD))
        folders, histories, marks = await asyncio.gather(
            self._store.list_folders(keys.segments_folder(topic)),
            self._keys(keys.history_folder(topic), begin),
            self._marks_of(topic, state.version),
        )
        try:
            check_covers(state, folders, histories, marks)
        except CorruptFile:
            again = await self._fetch(topic)
            if again is None:
                raise _missing(topic) from None
            check_covers(again[0].state, folders, histories, marks)
            return again
        return fetched

    async def _marks_of(self, topic: str, version: int) -> list[str]:
        """All marks of newer versions, and perhaps others. If that is at most one, `mark` need not list them again."""
        folder = keys.version_marks_folder(topic)
        marks = await self._keys(folder, folder)
        if len(marks) <= 1:
            self._marked.setdefault(topic, max((keys.marked_version(each) or 0 for each in marks), default=0))
        # The newer ones may lie behind the end of the listing.
        return marks if len(marks) < MOST_IN_ONE_RECORD else await self._keys(folder, keys.version_mark(topic, version))

    async def _keys(self, folder: str, after: str) -> list[str]:
        return [info.key async for info in self._store.list(folder, after=after, limit=MOST_IN_ONE_RECORD)]

    async def mark(self, topic: str, version: int) -> None:
        """Leave a mark on the store that the record was of that version. After a restart, it exposes an older record.

        Call it only with a version that was on the store. Marks of lower versions go. Stopped before the mark is there,
        nothing shows an older record, as before; stopped after it, a lower mark stays, which says nothing wrong.
        """
        known = self._marked.get(topic)
        if known is not None and known >= version:
            return
        folder, key = keys.version_marks_folder(topic), keys.version_mark(topic, version)
        if known is None:
            found = await self._keys(folder, folder)
        else:
            found = [keys.version_mark(topic, known)] if known else []
        newest = max((keys.marked_version(each) or 0 for each in found), default=0)
        if newest < version:
            await self._create_mark(key)
        self._marked[topic] = max(newest, version)
        if lower := [each for each in found if (keys.marked_version(each) or 0) < max(newest, version)]:
            await self._store.delete(lower)

    async def _create_mark(self, key: str) -> None:
        """Try until the outcome is known: any mark of that name is the same. Raises `OutcomeUnknown` after `TRIES`."""
        backoff = Backoff(self._clock)
        for attempt in range(TRIES):
            try:
                await self._store.create(key, b"")
                return
            except ObjectExists:
                return
            except OutcomeUnknown:
                if attempt == TRIES - 1:
                    raise
            await backoff.pause()

    async def create(self, state: TopicState) -> Moment | None:
        """Write the first topic.json of a topic; the moment before that, or None if there is one already.

        The caller has looked before: there was nothing of that name. So a moment shows that no segment of the topic had
        a file then.

        Also returns None after an unknown outcome if topic.json exists then. So the caller reads it: an equal state is
        as good as its own.
        """
        _check(state)
        data, began = state.to_json(), moment(self._store.time, self._clock)
        try:
            await self._store.create(keys.topic(state.topic), data)
            self._known.add(state.topic, state.version)
            # A mark that came since the caller looked does no harm.
            self._marked.setdefault(state.topic, 0)
            return began
        except ObjectExists:
            return None
        except OutcomeUnknown:
            if await self.read(state.topic) is None:
                raise
            return None

    async def change(self, topic: str, decide: Callable[[TopicState], TopicState | None]) -> TopicState | None:
        """As `change_record`; returns the state alone."""
        record = await self.change_record(topic, decide)
        return None if record is None else record.state

    async def change_record(
        self, topic: str, decide: Callable[[TopicState], TopicState | None], *, known: TopicRecord | None = None
    ) -> TopicRecord | None:
        """Apply `decide` to the newest state until a compare-and-swap succeeds; returns the record after it.

        `decide` is pure and may run several times. If it returns None there is nothing to change (any more), and the
        record that was read is returned. Returns None if there is no such topic. `known` counts as the newest record
        until the store shows another one. It is safe to stop anywhere: the record changes in one step or not at all,
        and only from the state that `decide` was given. Raises `OutcomeUnknown` after `TRIES` tries.
        """
        backoff = Backoff(self._clock)
        for attempt in range(TRIES):
            try:
                record = known if known is not None else await self.read(topic)
                known = None
                if record is None:
                    return None
                wanted = decide(record.state)
                if wanted is None:
                    return TopicRecord(record.state, record.etag)
                wanted = wanted.model_copy(update={"version": record.state.version + 1})
                _check(wanted)
                etag = await self._store.replace(keys.topic(topic), wanted.to_json(), etag=record.etag)
                self._known.add(topic, wanted.version)
                return TopicRecord(wanted, etag, is_ours=True)
            except EtagMismatch:
                pass
            except OutcomeUnknown:
                # It may have taken effect. Then `decide` is given its own change, and returns None.
                if attempt == TRIES - 1:
                    raise
            await backoff.pause(jitter=True)
        raise OutcomeUnknown(f"topic {topic!r}: lost {TRIES} compare-and-swaps in a row; try again")

    async def read_history(self, topic: str, *, after: int, limit: int) -> list[Segment]:
        """The first segments with ids above `after` that have left topic.json, in ascending order of ids.

        Returns at least `limit`, if there are so many, and the others in the same files. Raises `CorruptFile`.
        """
        gate = asyncio.Semaphore(_CALLS_AT_ONCE)

        async def read(key: str) -> list[Segment]:
            async with gate:
                return read_lineage(key, (await self._store.get(key)).data)

        records = await asyncio.gather(*map(read, await self._history_keys(topic, after, limit)))
        segments = {segment.id: segment for lineage in records for segment in lineage if segment.id > after}
        return [segments[i] for i in sorted(segments)]

    async def _history_keys(self, topic: str, after: int, limit: int) -> list[str]:
        """The files with the first `limit` segments above `after`.

        A file has all ids from its first to its last.
        """
        found: list[str] = []
        reached, count, most = after, 0, limit + MOST_IN_ONE_RECORD
        # A file that begins before `after` may reach beyond it.
        begin = keys.history_from(topic, max(0, after + 2 - MOST_IN_ONE_RECORD))
        while True:
            listed = [i.key async for i in self._store.list(keys.history_folder(topic), after=begin, limit=most)]
            for key in listed:
                first, last = keys.history_bounds(key) or (0, -1)
                if last > reached and count < limit:
                    found.append(key)
                    count += last - max(reached, first - 1)
                    reached = last
            if count >= limit or len(listed) < most:
                return found
            begin = listed[-1]

    async def write_history(self, topic: str, leaving: Sequence[Segment]) -> None:
        """Record segments that are about to leave topic.json; repeating it changes nothing.

        Stopping here leaves a segment in both places, with the same facts.
        """
        gate = asyncio.Semaphore(_CALLS_AT_ONCE)

        async def write(run: Sequence[Segment]) -> None:
            data = with_check(orjson.dumps({"segments": [segment.model_dump(mode="json") for segment in run]}))
            async with gate:
                with contextlib.suppress(ObjectExists):
                    await self._store.create(keys.history(topic, run[0].id, run[-1].id), data)

        await asyncio.gather(*map(write, _runs(leaving)))


def _runs(segments: Iterable[Segment]) -> list[list[Segment]]:
    """The segments by id, cut wherever an id is missing or a file is full."""
    runs: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda segment: segment.id):
        if not runs or runs[-1][-1].id + 1 < segment.id or len(runs[-1]) == MOST_IN_ONE_RECORD:
            runs.append([])
        runs[-1].append(segment)
    return runs


def _missing(topic: str) -> DataMissing:
    key = keys.topic(topic)
    return DataMissing(
        f"{key} is gone, and other objects of the topic are known: put it back; until then nobody can change the "
        "topic, or create it again, since the names of its segments' files would be used twice",
        key=key,
    )


def read_lineage(key: str, data: bytes) -> list[Segment]:
    """The segments in a file of a topic's history. Raises `CorruptFile`."""
    try:
        segments = [Segment.model_validate(each) for each in checked(data, key=key, first="segments")[0]["segments"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{key} cannot be read: {error}", key=key) from error
    first, last = keys.history_bounds(key) or (0, -1)
    if [segment.id for segment in segments] != list(range(first, last + 1)):
        raise CorruptFile(f"{key} has other segments than its name says", key=key)
    return segments


def _check(state: TopicState) -> None:
    broken = broken_invariants(state)
    if broken:
        raise BrokenInvariant(f"topic {state.topic!r}: a change was refused because it breaks {', '.join(broken)}")
