"""The topic catalogue: reading topic.json and changing it by compare-and-swap."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import orjson

from filer import keys
from filer.backoff import Backoff
from filer.clock import Clock
from filer.errors import BraidError, CorruptFile, EtagMismatch, ObjectExists, ObjectNotFound, OutcomeUnknown
from filer.stores.store import Store
from filer.topic.topic_state import Segment, TopicState, broken_invariants

TRIES = 12
MOST_IN_ONE_RECORD = 1000
"""The most segments in one file of a topic's history."""
_CALLS_AT_ONCE = 16


class BrokenInvariant(BraidError):
    """A change would have left the topic in an impossible state."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic's state with the ETag it was read under."""

    state: TopicState
    etag: str


class Catalogue:
    """All topics of one store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def stamp_us(self) -> int:
        """The time to note in a record: this machine's, unless the store has told a later one.

        What is kept for some time from then on is kept for at least as long, whatever the clock here shows.
        """
        return max(self._clock.now_us(), self._store.time.latest_us)

    async def names(self, *, after: str | None = None) -> list[str]:
        """The sorted names of all topics ever created here, including deleted ones; those `after` a name, if given."""
        names = await self._store.list_folders(keys.TOPICS)
        return [name for name in names if after is None or name > after]

    async def read(self, topic: str) -> TopicRecord | None:
        """The current record of a topic, which may be a tombstone; None if there never was such a topic."""
        try:
            fetched = await self._store.get(keys.topic(topic))
        except ObjectNotFound:
            return None
        return TopicRecord(TopicState.from_json(fetched.data), fetched.info.etag)

    async def create(self, state: TopicState) -> bool:
        """Write the first topic.json of a topic; False if there is one already.

        Also False after an unknown outcome if topic.json exists then. So the caller reads it: an equal state is as
        good as its own.
        """
        _check(state)
        try:
            await self._store.create(keys.topic(state.topic), state.to_json())
            return True
        except ObjectExists:
            return False
        except OutcomeUnknown:
            if await self.read(state.topic) is None:
                raise
            return False

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
        until the store says otherwise. It is safe to stop anywhere: the record changes in one step or not at all, and
        only from the state that `decide` was given. Raises `OutcomeUnknown` after `TRIES` tries.
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
                    return record
                wanted = wanted.model_copy(update={"version": record.state.version + 1})
                _check(wanted)
                etag = await self._store.replace(keys.topic(topic), wanted.to_json(), etag=record.etag)
                return TopicRecord(wanted, etag)
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

        At least `limit`, if there are so many, and all others in the files that have these. Raises `CorruptFile`.
        """
        gate = asyncio.Semaphore(_CALLS_AT_ONCE)

        async def read(key: str) -> list[Segment]:
            async with gate:
                return _lineage(key, (await self._store.get(key)).data)

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
            data = orjson.dumps({"segments": [segment.model_dump(mode="json") for segment in run]})
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


def _lineage(key: str, data: bytes) -> list[Segment]:
    try:
        return [Segment.model_validate(each) for each in orjson.loads(data)["segments"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{key} cannot be read: {error}") from error


def _check(state: TopicState) -> None:
    broken = broken_invariants(state)
    if broken:
        raise BrokenInvariant(f"topic {state.topic!r}: a change was refused because it breaks {', '.join(broken)}")
