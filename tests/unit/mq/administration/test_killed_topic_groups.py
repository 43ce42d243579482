"""A broker that is killed at any call of its store while it creates, extends or deletes a topic group.

Another one, asked again, ends it, and nothing that was acknowledged before is lost or seen by another topic.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pyarrow as pa
import pytest

from filer.format.schema import MessageSchema
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import Fault, FaultKind
from filer.stores.memory_store import MemoryStore
from leader.membership.coordinator import BrokerInfo
from mq.base.errors import Conflict, NotFound
from mq.topic.topic_reader import TopicReader
from tests.support.broker.simulated_broker import SimulatedBroker
from tests.support.instant_clock import InstantClock

GROUP, TOPICS = "shop", ["orders", "payments"]
Act = Callable[[SimulatedBroker], Awaitable[object]]


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
    """Two brokers on one store, of which the first dies."""

    def __init__(self, death: Death) -> None:
        clock, self.alive = InstantClock(), dict[str, BrokerInfo]()
        self.memory, self.death = MemoryStore(clock=clock), death
        self.first = SimulatedBroker("first", FailingStore(self.memory, death, clock=clock), clock, self.alive)
        self.second = SimulatedBroker("second", self.memory, clock, self.alive)

    async def until_death(self, act: Act) -> bool:
        """Whether the first broker did it before it died. It is no more then, in either case."""
        self.death.near = True
        acting = asyncio.ensure_future(act(self.first))
        dying = asyncio.create_task(self.death.has_come.wait())
        await asyncio.wait([acting, dying], return_when=asyncio.FIRST_COMPLETED)
        done = not self.death.has_come.is_set()
        if done:
            await acting
        for task in (acting, dying):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.first.close()
        return done


async def publish(broker: SimulatedBroker, topic: str, value: str) -> None:
    view = await broker.topics.view(topic)
    config = view.state.config
    rows = {"key": b"k", "value": value.encode()}
    batch = pa.RecordBatch.from_pylist([rows], MessageSchema.of(config.key_type, config.value_type).rows)
    await view.runtime.publisher.publish_rows(view.rows_of(batch), 20)


async def read(broker: SimulatedBroker, topic: str) -> list[str]:
    view = await broker.topics.view(topic)
    reader = TopicReader(view.runtime, broker.segment_reader, member=view.member)
    runs, _ = await reader.read(reader.earliest(), max_rows=1000, max_bytes=1 << 20)
    return [value.decode() for run in runs for value in run.table["value"].to_pylist()]


async def killed_everywhere(begin: Act, act: Act, check: Callable[[World, bool], Awaitable[None]]) -> int:
    """Kill the first broker at each call of `act`, before and after it takes effect; how many calls there are."""
    nth, takes_effect, done = 1, False, False
    while not done:
        world = World(Death(nth, takes_effect=takes_effect))
        await begin(world.first)
        done = await world.until_death(act)
        await check(world, done)
        await world.second.close()
        takes_effect = world.death.changes_something and not takes_effect
        nth += not takes_effect
    return nth


async def nothing(broker: SimulatedBroker) -> None:
    """There is no group yet."""


async def create(broker: SimulatedBroker) -> None:
    await broker.topic_groups.put(GROUP, {"topics": TOPICS})


async def create_and_publish(broker: SimulatedBroker) -> None:
    await create(broker)
    for topic in TOPICS:
        await publish(broker, topic, f"{topic} before")


async def extend(broker: SimulatedBroker) -> None:
    await broker.topic_groups.put(GROUP, {"topics": ["returns"]})


async def delete(broker: SimulatedBroker) -> None:
    await broker.topic_groups.delete(GROUP)


async def usable(broker: SimulatedBroker, expected: dict[str, list[str]]) -> None:
    """The topics have what is expected and nothing else, take messages, and none sees another's."""
    for topic, before in expected.items():
        await broker.repair((await broker.topics.view(topic)).runtime.topic)
        await publish(broker, topic, f"{topic} after")
        assert await read(broker, topic) == [*before, f"{topic} after"]


async def test_creation_goes_on_where_it_stopped() -> None:
    async def check(world: World, done: bool) -> None:
        for topic in TOPICS:
            # Before it is asked again: a member of the group, or no topic at all.
            with contextlib.suppress(NotFound):
                assert (await world.second.topics.view(topic)).member == topic
        runtime, put = await world.second.topic_groups.put(GROUP, {"topics": TOPICS})
        assert await world.second.topic_groups.pending(runtime) == [] and put.differs == {}
        assert not (done and put.created)
        await usable(world.second, {topic: [] for topic in TOPICS})

    assert await killed_everywhere(nothing, create, check) > 6


async def test_topics_join_a_group_or_not() -> None:
    async def check(world: World, done: bool) -> None:
        await world.second.repair(GROUP)
        assert [await read(world.second, topic) for topic in TOPICS] == [[f"{topic} before"] for topic in TOPICS]
        await extend(world.second)
        before = {topic: [f"{topic} before"] for topic in TOPICS}
        await usable(world.second, before | {"returns": []})

    assert await killed_everywhere(create_and_publish, extend, check) > 4


async def test_a_group_is_there_with_all_its_topics_or_gone_with_them() -> None:
    gone_early = 0

    async def check(world: World, done: bool) -> None:
        nonlocal gone_early
        try:
            # A deletion that has begun is finished by whoever finds it.
            await world.second.repair(GROUP)
            await world.second.topics.view(GROUP)
        except NotFound:
            gone_early += not done
            for topic in TOPICS:
                with pytest.raises(NotFound):
                    await world.second.topics.view(topic)
            # The names are free: for a topic, and for another group.
            await world.second.administration.put("orders", {})
            await world.second.topic_groups.put("bank", {"topics": ["payments"]})
            await usable(world.second, {topic: [] for topic in TOPICS})
            with pytest.raises(Conflict):
                await world.second.topic_groups.put(GROUP, {"topics": TOPICS})
            return
        assert not done
        assert [await read(world.second, topic) for topic in TOPICS] == [[f"{topic} before"] for topic in TOPICS]
        await delete(world.second)
        with pytest.raises(NotFound):
            await world.second.topics.view("orders")

    await killed_everywhere(create_and_publish, delete, check)
    assert gone_early > 0


async def test_a_stale_broker_sees_what_became_of_a_name() -> None:
    """It knows the group and its member; another broker deletes the group and makes a topic of the member's name."""
    world = World(Death(10**9, takes_effect=False))
    await create(world.first)
    await publish(world.first, "orders", "before")
    assert await read(world.second, "orders") == ["before"]
    await delete(world.first)
    runtime, _ = await world.first.administration.put("orders", {})
    brokers = {"first": world.first, "second": world.second}
    await publish(brokers[runtime.state.open_segments[0].owner], "orders", "anew")
    # It comes upon the sealed segments of the group, reads its record again, and then that of the name.
    await world.second.topics.refresh(GROUP)
    assert await read(world.second, "orders") == ["anew"]
    await world.second.close()
    await world.first.close()
