"""A broker whose store fails for a while repairs its topics by itself, without a restart."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from filer.clock import ManualClock
from filer.errors import BraidError, OutcomeUnknown, SegmentMoved
from filer.segment.next_file import Single
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, MakeData
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker

TOPIC = "events"


# An owner asks a store that refuses again and again. Any other error stops it.
UNFORESEEN = BraidError("unforeseen")


class FailingWritesStore(ForwardingStore):
    """Fails every write of a key that `refuses`, with `error`."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryStore(clock=clock))
        self.error: BraidError = OutcomeUnknown("503")
        self.refuses: Callable[[str], bool] = lambda key: False

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        self._meet(key)
        await self.inner.create(key, data, metadata=metadata)

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        self._meet(key)
        return await self.inner.replace(key, data, etag=etag)

    def _meet(self, key: str) -> None:
        if self.refuses(key):
            raise self.error


class Setting:
    """A broker with one topic, on a store whose writes can fail."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = FailingWritesStore(self.clock)
        settings = BrokerSettings(maintenance_interval=3600)
        self.broker = Broker(self.store, self.clock, InProcessCoordinator(), settings)

    async def publish(self, value: bytes) -> int:
        position = await self.broker.topics[TOPIC].publisher.publish_single(Single(b"k", value, None, None), len(value))
        return position.segment

    async def while_time_passes(self, work: Awaitable[object]) -> None:
        """Wait for real work (threads included) under a clock that moves on."""
        task = asyncio.ensure_future(work)
        async with asyncio.timeout(20):
            while not task.done():
                await self.clock.advance(0.5)
                await asyncio.sleep(0.001)

    async def values(self) -> list[bytes]:
        reader = await self.broker.reader(TOPIC)
        runs, _ = await reader.read(reader.earliest(), max_rows=1000, max_bytes=1 << 20)
        return [value for run in runs for value in run.table["value"].to_pylist()]

    async def served_again(self) -> None:
        """Publishes, refused at first, are taken again."""
        for _ in range(1000):
            try:
                await self.publish(b"after")
                return
            except SegmentMoved:
                await asyncio.sleep(0.001)
        raise AssertionError("the topic stays without an owner")


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    made = Setting()
    await made.broker.start("http://here")
    await made.broker.administration.put(TOPIC, {})
    yield made
    await made.broker.close()


async def test_a_topic_is_served_again_after_a_put_stopped_its_owner(setting: Setting) -> None:
    assert await setting.publish(b"before") == 0
    setting.store.error = UNFORESEEN
    setting.store.refuses = lambda key: "/segments/" in key
    with pytest.raises(BraidError, match="unforeseen"):
        await setting.publish(b"refused")
    # It is tried again for as long as it takes.
    await setting.while_time_passes(setting.clock.sleep(60))
    waiting = asyncio.create_task(setting.publish(b"meanwhile"))
    setting.store.refuses = lambda key: False
    await setting.while_time_passes(waiting)
    assert await setting.values() == [b"before", b"meanwhile"]
    assert [s.id for s in setting.broker.topics[TOPIC].state.open_segments] == [1]


@pytest.mark.parametrize("nth", [0, 1], ids=["begin", "finish"])
async def test_a_topic_is_served_again_after_a_transition_broke_off(setting: Setting, nth: int) -> None:
    """The store stopped answering before, or after, the transition was recorded."""
    await setting.publish(b"before")
    passed = 0

    def refuses(key: str) -> bool:
        nonlocal passed
        passed += key.endswith("/topic.json")
        return key.endswith("/topic.json") and passed > nth

    setting.store.refuses = refuses
    rolling = asyncio.create_task(setting.broker.executor.give_successors(TOPIC, [0], "roll"))
    await setting.while_time_passes(asyncio.wait([rolling]))
    assert isinstance(rolling.exception(), OutcomeUnknown)
    setting.store.refuses = lambda key: False
    await setting.while_time_passes(setting.served_again())
    assert await setting.values() == [b"before", b"after"]
    assert setting.broker.topics[TOPIC].state.transition is None


async def test_the_repair_of_a_topic_that_does_not_exist_ends(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader may know the topic from before the store failed."""

    async def away(topic: str) -> None:
        raise OutcomeUnknown("503")

    with monkeypatch.context() as patch:
        patch.setattr(setting.broker.catalogue, "read", away)
        finishing = asyncio.create_task(setting.broker.executor.finish_transition("none"))
        await setting.while_time_passes(asyncio.wait([finishing]))
        assert isinstance(finishing.exception(), OutcomeUnknown)
    (repairing,) = (task for task in asyncio.all_tasks() if task.get_name() == "repair none")
    await setting.while_time_passes(repairing)
    assert repairing.exception() is None


async def test_close_ends_repairs(setting: Setting) -> None:
    setting.store.error = UNFORESEEN
    setting.store.refuses = lambda key: "/segments/" in key
    with pytest.raises(BraidError, match="unforeseen"):
        await setting.publish(b"refused")
    await setting.broker.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("repair ")]
