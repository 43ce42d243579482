"""A broker that is killed at any call of its store while it commits a load: another one, asked again, ends it."""

import asyncio
import contextlib
from collections import defaultdict
from functools import lru_cache

import pyarrow as pa

from filer import keys
from filer.bulk_load.load_check import FileClaim
from filer.bulk_load.load_files import LoadFile, load_files
from filer.bulk_load.load_segment import LoadSegment
from filer.format.requests import RequestId
from filer.keys import FileName
from filer.segment.next_file import Single
from filer.slots import SLOTS, slot_of
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import Fault, FaultKind
from filer.stores.memory_store import MemoryStore
from filer.topic.catalogue import Catalogue
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Load
from leader.membership.coordinator import BrokerInfo
from leader.transitions import new_topic
from mq.topic.topic_reader import TopicReader
from tests.support.broker.killed_leaders import TOPIC, Chronicle
from tests.support.broker.simulated_broker import SimulatedBroker
from tests.support.instant_clock import InstantClock

KEYS = [b"a", b"b", b"c", b"d"]
BEFORE, AFTER = RequestId("p", 1), RequestId("p", 2)


class Death:
    """Once it is `near`, the n-th call gets no answer, be it that it `takes_effect` or not, and no later one does."""

    def __init__(self, nth: int, *, takes_effect: bool) -> None:
        self.near, self.has_come, self.changes_something = False, asyncio.Event(), False
        self._left, self._takes_effect = nth, takes_effect

    def draw(self, operation: str, key: str) -> Fault | None:
        self._left -= self.near
        if self._left > 0:
            return None
        if self._left == 0:
            self.changes_something = operation in ("create", "replace")
        self.has_come.set()
        return Fault(FaultKind.HANG_ANSWER if self._takes_effect and self._left == 0 else FaultKind.HANG)


class World:
    """A topic of two segments of the first broker's, and clients that write what they are told to."""

    def __init__(self, death: Death) -> None:
        self.clock, self.alive = InstantClock(), dict[str, BrokerInfo]()
        self.memory = Chronicle(MemoryStore(clock=self.clock))
        self.death = death
        store = FailingStore(self.memory, death, clock=self.clock)
        self.first = SimulatedBroker("first", store, self.clock, self.alive)
        self.second = SimulatedBroker("second", self.memory, self.clock, self.alive)

    async def begin(self) -> "World":
        state = new_topic(TOPIC, TopicConfig(), 2, lambda index: ("first",), now_us=0)
        assert await Catalogue(self.memory, self.clock).create(state)
        await self.publish(self.first, BEFORE)
        return self

    async def publish(self, broker: SimulatedBroker, request: RequestId) -> list[tuple[int, int]]:
        runtime = await broker.topics.topic(TOPIC)
        values = [Single(key, b"%s %d" % (key, request.sequence), None, None) for key in KEYS]
        told = [
            await runtime.publisher.publish_single(value, 20, request._replace(producer=f"{value.key!r}"))
            for value in values
        ]
        return [(position.segment, position.offset) for position in told]

    async def reserve_and_write(self, broker: SimulatedBroker) -> tuple[Load, list[FileClaim]]:
        """As a client does; what is there already it leaves."""
        load, _ = await broker.loads.reserve(TOPIC, "x", 2)
        files = files_of(load)
        for file in files:
            key = keys.segment_file(TOPIC, file.segment, FileName(file.base_offset))
            if load.reserved and not [info async for info in self.memory.list(key)]:
                await self.memory.create(key, file.data)
        return load, [FileClaim(f.segment, f.base_offset, f.count, f.data.size) for f in files]

    async def read(self, broker: SimulatedBroker) -> dict[bytes, list[bytes]]:
        reader = TopicReader(await broker.topics.topic(TOPIC), broker.segment_reader)
        runs, _ = await reader.read(reader.earliest(), max_rows=1 << 20, max_bytes=1 << 30)
        read: dict[bytes, list[bytes]] = defaultdict(list)
        for run in runs:
            for key, value in zip(run.table["key"].to_pylist(), run.table["value"].to_pylist(), strict=True):
                read[key].append(value)
        return read


@lru_cache
def files_of(load: Load) -> list[LoadFile]:
    made: list[LoadFile] = []
    for segment, (start, stop) in load.ranges.items():
        mine = [key for key in KEYS if start <= slot_of(key) < stop]
        rows = pa.table({"key": mine * 2, "value": [b"%s loaded %d" % (key, n) for n in range(2) for key in mine]})
        made += load_files([rows], LoadSegment("x", segment, start, stop, load.reserved_us), file_bytes=100)
    return made


async def commit_until_death(world: World, claims: list[FileClaim]) -> Load | None:
    """The answer of the first broker; None where it has died before. It is no more then, in either case."""
    world.death.near = True
    committing = asyncio.create_task(world.first.loads.commit(TOPIC, "x", claims))
    dying = asyncio.create_task(world.death.has_come.wait())
    await asyncio.wait([committing, dying], return_when=asyncio.FIRST_COMPLETED)
    answer = None if world.death.has_come.is_set() else await committing
    for task in (committing, dying):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await world.first.close()
    return answer


async def run_again(world: World) -> Load:
    """By a client that was killed too, at the other broker: before it does, all of the load is there or nothing."""
    await world.second.repair(TOPIC)
    counts = {len(values) for values in (await world.read(world.second)).values()}
    assert counts in ({1}, {3}), "half of it is there"
    _, claims = await world.reserve_and_write(world.second)
    return await world.second.loads.commit(TOPIC, "x", claims)


async def check(world: World, answer: Load, told_before: list[tuple[int, int]]) -> None:
    """Each message is there once and in its key's order, whoever repeats what."""
    assert await world.second.loads.commit(TOPIC, "x", []) == answer
    await world.second.repair(TOPIC)
    assert await world.publish(world.second, BEFORE) == told_before
    await world.publish(world.second, AFTER)
    for key, values in (await world.read(world.second)).items():
        assert values == [b"%s 1" % key, *(b"%s loaded %d" % (key, n) for n in range(2)), b"%s 2" % key]
    world.memory.check()
    await world.second.close()


async def test_killed_at_every_call_and_run_again() -> None:
    assert len({slot_of(key) * 2 // SLOTS for key in KEYS}) == 2
    adopted_early, nth, takes_effect, answer = 0, 1, False, None
    while answer is None:
        world = await World(Death(nth, takes_effect=takes_effect)).begin()
        told_before = await world.publish(world.first, BEFORE)
        _, claims = await world.reserve_and_write(world.first)
        answer = await commit_until_death(world, claims)
        adopted_early += answer is None and (await world.second.loads.find(TOPIC, "x"))[1].version is not None
        await check(world, answer or await run_again(world), told_before)
        # What a call that only reads has come to nobody knows.
        takes_effect = world.death.changes_something and not takes_effect
        nth += not takes_effect
    # Adopted, and nobody was told: by the call that adopts, and at those that mark the version.
    assert nth > 15 and adopted_early == 4
