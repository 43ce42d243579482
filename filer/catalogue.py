"""The topic catalogue: reading topic.json and changing it by compare-and-swap."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from filer import keys
from filer.clock import Clock
from filer.errors import BraidError, CorruptFile, EtagMismatch, ObjectExists, ObjectNotFound, OutcomeUnknown
from filer.segment_log import RETRY_FIRST_SECONDS, RETRY_LONGEST_SECONDS
from filer.store import Store
from filer.topic_state import Segment, TopicState, broken_invariants

TRIES = 12
_READS_AT_ONCE = 16


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

        As many as `limit` objects hold, so at least that many where there are. Raises `CorruptFile`.
        """
        listed = self._store.list(keys.history_folder(topic), after=keys.history_after(topic, after), limit=limit)
        found = [info.key async for info in listed]
        turns = asyncio.Semaphore(_READS_AT_ONCE)

        async def read(key: str) -> list[Segment]:
            async with turns:
                return _lineage(key, (await self._store.get(key)).data)

        return [segment for lineage in await asyncio.gather(*map(read, found)) for segment in lineage]

    async def write_history(self, topic: str, lineage: list[dict[str, Any]]) -> None:
        """Keep the lineage of segments that are about to leave topic.json; repeating it changes nothing."""
        first, last = lineage[0]["id"], lineage[-1]["id"]
        try:
            await self._store.create(keys.history(topic, first, last), orjson.dumps({"segments": lineage}))
        except ObjectExists:
            return


def _lineage(key: str, data: bytes) -> list[Segment]:
    try:
        return [Segment.model_validate(each) for each in orjson.loads(data)["segments"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{key} cannot be read: {error}") from error


def _check(state: TopicState) -> None:
    broken = broken_invariants(state)
    if broken:
        raise BrokenInvariant(f"topic {state.topic!r}: refused a state that breaks {', '.join(broken)}")
