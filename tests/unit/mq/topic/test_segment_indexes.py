"""Indexes that keep up with other writers: asked once for many, never older than what is known already."""

import asyncio

import pytest

from filer.clock import ManualClock, settle
from filer.errors import ObjectNotFound, OutcomeUnknown
from filer.keys import FileName
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, recover_index
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Fetched, Store
from filer.topic.topic_state import Segment
from filer.upkeep.rollup import roll_up
from mq.topic.segment_indexes import CHECK_AGAIN_SECONDS, LOOK_AGAIN_SECONDS, SegmentIndexes
from tests.support.inline_executor import InlineExecutor
from tests.support.topic.segment_files import append

REF = SegmentRef("t", 0)
SEGMENT = Segment(id=0, start_slot=0, stop_slot=65536, brokers=("b",), opened_us=1, reason="create")


class CountingStore(ForwardingStore):
    """Counts what is read; that something is missing it says once `gate` is open."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.gets = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        self.gets += 1
        try:
            return await self.inner.get(key, start=start, stop=stop)
        except ObjectNotFound:
            await self.gate.wait()
            raise


class World:
    """A segment that somebody else writes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(clock=self.clock)
        self.faults = ScriptedFaults()
        self.counting = CountingStore(self.memory)
        self.failing = FailingStore(self.counting, self.faults, clock=self.clock)
        self.indexes = SegmentIndexes(self.failing, self.clock, lambda segment_id: REF)
        self.written = SegmentIndex()

    async def write(self, count: int = 1, *, sealed: bool = False) -> None:
        await append(self.memory, REF, self.written, count, sealed=sealed)

    async def end(self, longest_seconds: float = 0.0, segment: Segment = SEGMENT) -> int:
        return (await self.indexes.get(segment, longest_seconds=longest_seconds)).end


@pytest.fixture
def world() -> World:
    return World()


async def test_is_as_old_as_one_bears(world: World) -> None:
    await world.write()
    assert await world.end(2.0) == 1
    await world.write()
    assert await world.end(2.0) == 1
    await world.clock.advance(2.1)
    assert await world.end(2.0) == 2
    await world.write()
    assert await world.end() == 3


async def test_reads_only_what_is_new(world: World) -> None:
    for _ in range(20):
        await world.write()
    assert await world.end() == 20
    gets = world.counting.gets
    await world.write()
    assert await world.end() == 21
    assert world.counting.gets - gets <= 3


async def test_many_ask_the_store_once(world: World) -> None:
    await world.write()
    assert set(await asyncio.gather(*(world.end(2.0) for _ in range(50)))) == {1}
    assert world.counting.gets <= 3


async def test_a_fresh_look_begins_after_it_was_asked_for(world: World) -> None:
    """One under way may have looked past what has come since."""
    await world.write()
    assert await world.end() == 1
    world.counting.gate.clear()
    early = asyncio.create_task(world.end())
    await settle()
    await world.write()
    late = [asyncio.create_task(world.end()) for _ in range(5)]
    await settle()
    gets = world.counting.gets
    world.counting.gate.set()
    assert await early == 1
    assert await asyncio.gather(*late) == [2] * 5
    assert world.counting.gets - gets <= 3, "one look for all of them"


async def test_it_is_as_old_as_the_beginning_of_the_look(world: World) -> None:
    await world.write()
    assert await world.end() == 1
    await world.clock.advance(3)
    world.counting.gate.clear()
    looking = asyncio.create_task(world.end(2.0))
    await settle()
    await world.write()
    await world.clock.advance(1.5)
    world.counting.gate.set()
    assert await looking == 1
    await world.clock.advance(0.6)
    assert await world.end(2.0) == 2


async def test_whoever_gives_up_leaves_the_others_their_answer(world: World) -> None:
    await world.write()
    world.faults.add("list", FaultKind.HANG)
    first, second = asyncio.create_task(world.end()), asyncio.create_task(world.end(2.0))
    await settle()
    first.cancel()
    await settle()
    world.failing.release()
    assert await second == 1


async def test_a_failure_is_told_and_the_next_look_is_another(world: World) -> None:
    await world.write()
    world.faults.add("get", FaultKind.UNAVAILABLE)
    with pytest.raises(OutcomeUnknown):
        await world.end()
    assert await world.end() == 1


async def test_a_sealed_one_is_never_looked_at_again(world: World) -> None:
    await world.write(3)
    await world.write(0, sealed=True)
    assert await world.end() == 3
    gets = world.counting.gets
    assert await world.end() == 3 and world.counting.gets == gets


async def test_one_that_reaches_the_known_end_is_whole(world: World) -> None:
    await world.write(3)
    assert await world.end() == 3
    gets = world.counting.gets
    sealed = SEGMENT.model_copy(update={"state": "sealed", "end_offset": 3})
    assert await world.end(segment=sealed) == 3 and world.counting.gets == gets


async def test_one_put_meanwhile_stays(world: World) -> None:
    """It is newer than what a look that began before comes back with: readers never go back in time."""
    await world.write()
    world.faults.add("get", FaultKind.HANG_ANSWER)
    early = asyncio.create_task(world.end())
    await settle()
    await world.write(5)
    newer = await recover_index(world.memory, REF)
    world.indexes.put(0, newer)
    world.failing.release()
    await early
    assert world.indexes.known[0] is newer


async def test_one_forgotten_meanwhile_stays_forgotten(world: World) -> None:
    """Somebody found that it names a file which is gone."""
    await world.write()
    assert await world.end() == 1
    world.faults.add("list", FaultKind.HANG)
    early = asyncio.create_task(world.end())
    await settle()
    world.indexes.forget(0)
    world.failing.release()
    assert await early == 1
    assert 0 not in world.indexes.known
    assert await world.end(2.0) == 1


async def test_retention_makes_it_anew(world: World) -> None:
    await world.write(2)
    await world.write(2)
    assert await world.end() == 4
    await world.memory.delete([REF.key(FileName(0))])
    index = await world.indexes.get(SEGMENT.model_copy(update={"start_offset": 2}), longest_seconds=0)
    assert (index.start_offset, index.end) == (2, 4)
    assert [facts.start for facts in index.files] == [2]


async def test_closing_leaves_nothing_running(world: World) -> None:
    world.faults.add("get", FaultKind.HANG)
    asking = asyncio.create_task(world.end())
    await settle()
    await world.indexes.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_file_that_is_put_back_as_if_unchanged_is_found(world: World) -> None:
    """On a directory a file that is copied back with its old time has the ETag of the damaged one."""
    await world.write(2)
    index = await world.indexes.get(SEGMENT, longest_seconds=60)
    [facts] = index.files
    await world.indexes.lose(0, index, facts, damaged=True)
    await world.clock.advance(CHECK_AGAIN_SECONDS - 1)
    await world.indexes.look_again(0, index)
    assert len(index.holes) == 1
    await world.clock.advance(LOOK_AGAIN_SECONDS)
    await world.indexes.look_again(0, index)
    assert (index.files, index.holes) == ([facts], [])


@pytest.mark.parametrize("sealed", [False, True])
async def test_what_others_could_read_and_have_rolled_up_is_found_in_the_roll_up(world: World, sealed: bool) -> None:
    """The roll-up reaches beyond the hole, and what it replaced is gone: so nothing within the hole is ever found."""
    await world.write(2)
    await world.write(2, sealed=sealed)
    index = await world.indexes.get(SEGMENT, longest_seconds=60)
    first, *others = [facts for facts in index.files if facts.count]
    await world.indexes.lose(0, index, first, damaged=True)
    await roll_up(world.memory, world.clock, REF, [first, *others], broker="b", executor=InlineExecutor())
    await world.memory.delete([REF.key(facts.name) for facts in (first, *others) if not facts.sealed])
    await world.clock.advance(CHECK_AGAIN_SECONDS)
    found = await world.indexes.get(SEGMENT, longest_seconds=60)
    assert found.holes == []
    assert found.readable(0)[0].name.rolled
    # It is asked now and then, while something is lost.
    assert await world.indexes.get(SEGMENT, longest_seconds=60) is found


async def test_one_that_is_damaged_still_is_read_now_and_then_and_stays_lost(world: World) -> None:
    await world.write(2)
    index = await world.indexes.get(SEGMENT, longest_seconds=60)
    [facts] = index.files
    key = REF.key(facts.name)
    data = bytearray((await world.memory.get(key)).data)
    data[10] ^= 1
    await world.memory.delete([key])
    await world.memory.create(key, bytes(data))
    await world.indexes.lose(0, index, facts, damaged=True)
    world.counting.gets = 0
    for _ in range(6):
        await world.clock.advance(LOOK_AGAIN_SECONDS)
        await world.indexes.look_again(0, index)
    assert [hole.name for hole in index.holes] == [facts.name]
    assert 0 < world.counting.gets < 6
