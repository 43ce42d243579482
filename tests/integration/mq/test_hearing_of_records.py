"""A broker that hears of a newer record reads it a moment later: the news bring it, while publishers wait for puts."""

from collections.abc import AsyncIterator

import pytest

from filer.catalogue import Catalogue, TopicRecord
from filer.clock import ManualClock, settle
from filer.memory_store import MemoryStore
from filer.topic_config import TopicConfig
from leader.transitions import new_topic
from mq.broker import HEAR_SECONDS, Broker
from mq.settings import BrokerSettings
from tests.support.shared_coordinator import Membership, SharedCoordinator

TOPIC = "events"


class Hearer:
    """A broker that follows somebody else's topic, and what it `reads`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        store = MemoryStore(clock=self.clock)
        membership = Membership()
        membership.leaders = set()
        self.coordinator = SharedCoordinator(membership)
        self.broker = Broker(store, self.clock, self.coordinator, BrokerSettings(maintenance_interval=3600))
        self.catalogue = Catalogue(store, self.clock)
        self.reads: list[str] = []
        read = self.broker.catalogue.read

        async def noted(topic: str) -> TopicRecord | None:
            self.reads.append(topic)
            return await read(topic)

        monkeypatch.setattr(self.broker.catalogue, "read", noted)

    async def change(self, max_segments: int) -> None:
        """Somebody does, and everybody hears that there is news."""
        config = TopicConfig(max_segments=max_segments)
        await self.catalogue.change(TOPIC, lambda state: state.model_copy(update={"config": config}))
        self.coordinator.announce(TOPIC)
        await settle()

    @property
    def known(self) -> int:
        return self.broker.topics[TOPIC].state.config.max_segments


@pytest.fixture
async def hearer(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hearer]:
    made = Hearer(monkeypatch)
    assert await made.catalogue.create(new_topic(TOPIC, TopicConfig(), 1, lambda n: ("another",), now_us=1))
    await made.broker.start("http://here")
    await made.broker.topic(TOPIC)
    made.reads.clear()
    yield made
    await made.broker.close()


async def test_all_that_is_heard_within_a_moment_is_one_read_at_its_end(hearer: Hearer) -> None:
    for changes in (7, 8, 9):
        await hearer.change(changes)
    assert hearer.reads == [] and hearer.known == TopicConfig().max_segments
    await hearer.clock.advance(HEAR_SECONDS)
    assert hearer.reads == [TOPIC] and hearer.known == 9


async def test_what_is_heard_after_that_is_read_as_well(hearer: Hearer) -> None:
    for changes in (7, 8):
        await hearer.change(changes)
        await hearer.clock.advance(HEAR_SECONDS)
    assert hearer.reads == [TOPIC] * 2 and hearer.known == 8
