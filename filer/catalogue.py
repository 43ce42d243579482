"""The topic catalogue: reading topic.json and changing it by compare-and-swap."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import orjson

from filer import keys
from filer.clock import Clock
from filer.errors import BraidError, CorruptFile, EtagMismatch, ObjectExists, ObjectNotFound, OutcomeUnknown
from filer.segment_log import RETRY_FIRST_SECONDS, RETRY_LONGEST_SECONDS
from filer.store import Store
from filer.topic_state import Segment, TopicState, broken_invariants

TRIES = 12
MOST_IN_ONE_RECORD = 1000
"""Segments in one file of a topic's history."""
_CALLS_AT_ONCE = 16


class BrokenInvariant(BraidError):
    """A change would have left the topic in an impossible shape."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic's state with the ETag it was read under."""

    state: TopicState
    etag: str


class Catalogue:
    """All topics of one store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def names(self, *, after: str | None = None) -> list[str]:
        """Names of all topics ever created here, deleted ones included, sorted."""
        names = await self._store.list_folders(keys.TOPICS)
        return [name for name in names if after is None or name > after]

    async def read(self, topic: str) -> TopicRecord | None:
        """The topic as it stands (a tombstone is a state too); None where there never was one."""
        try:
            fetched = await self._store.get(keys.topic(topic))
        except ObjectNotFound:
            return None
        return TopicRecord(TopicState.from_json(fetched.data), fetched.info.etag)

    async def create(self, state: TopicState) -> bool:
        """Write the first topic.json of a name; False where there is one already.

        An unknown outcome reads as False as well when the object is found afterwards: who asked looks at what
        stands there, and an equal state is as good as its own.
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
        """As `change_record`, for the state alone."""
        record = await self.change_record(topic, decide)
        return None if record is None else record.state

    async def change_record(
        self, topic: str, decide: Callable[[TopicState], TopicState | None], *, known: TopicRecord | None = None
    ) -> TopicRecord | None:
        """Apply `decide` to the newest state until a compare-and-swap holds; the record that stands then.

        `decide` is pure and may run several times; None from it means nothing is to be changed (any more), and the
        record read is returned. None is returned where there is no such topic. What is `known` is taken for the newest
        until the store says otherwise. Safe to stop anywhere: the record changes in one step or not at all, and never
        from another state than `decide` has seen. Raises `OutcomeUnknown` when the store does not answer for long.
        """
        pause = RETRY_FIRST_SECONDS
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
                # It may have taken effect; `decide` then sees its own change and says so by returning None.
                if attempt == TRIES - 1:
                    raise
            await self._clock.sleep(pause * (1 + self._clock.entropy(1)[0] / 255))
            pause = min(pause * 2, RETRY_LONGEST_SECONDS)
        raise OutcomeUnknown(f"topic {topic!r}: lost {TRIES} compare-and-swaps in a row; try again")

    async def read_history(self, topic: str, *, after: int, limit: int) -> list[Segment]:
        """Segments that have left topic.json, in ascending order of their ids from behind `after` on.

        At least `limit` where there are so many, and no more than are in the files that have these. Raises
        `CorruptFile`.
        """
        gate = asyncio.Semaphore(_CALLS_AT_ONCE)

        async def read(key: str) -> list[Segment]:
            async with gate:
                return _lineage(key, (await self._store.get(key)).data)

        records = await asyncio.gather(*map(read, await self._history_keys(topic, after, limit)))
        segments = {segment.id: segment for lineage in records for segment in lineage if segment.id > after}
        return [segments[i] for i in sorted(segments)]

    async def _history_keys(self, topic: str, after: int, limit: int) -> list[str]:
        """The files with the first `limit` segments behind `after`.

        A file has all the ids from its first to its last, so what one further on has is never missing before it.
        """
        found: list[str] = []
        reached, count, most = after, 0, limit + MOST_IN_ONE_RECORD
        # One that begins before `after` may go on behind it.
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
        """Keep what is known of segments that are about to leave topic.json; repeating it changes nothing.

        Stopping here leaves a segment in both, which say the same of it.
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
        raise BrokenInvariant(f"topic {state.topic!r}: refused a state that breaks {', '.join(broken)}")
