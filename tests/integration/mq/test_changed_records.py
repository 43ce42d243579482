"""A broker that learns of a changed record reads it a moment later, when publishers no longer wait for puts."""

from collections.abc import AsyncIterator

import pytest

from filer.clock import ManualClock, settle
from filer.stores.memory_store import MemoryStore
from filer.topic.catalogue import Catalogue, TopicRecord
from filer.topic.cluster_record import open_cluster
from filer.topic.topic_config import TopicConfig
from leader.transitions import new_topic
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.topic.topic_registry import REREAD_SECONDS
from tests.support.cluster.shared_coordinator import Membership, SharedCoordinator

TOPIC = "events"


class Follower:
    """A broker that follows another broker's topic. `reads` are the topics whose record it has read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.store = store = MemoryStore(clock=self.clock)
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
        """Change the record as another broker would, and announce it to all."""
        config = TopicConfig(max_segments=max_segments)
        await self.catalogue.change(TOPIC, lambda state: state.model_copy(update={"config": config}))
        self.coordinator.announce(TOPIC)
        await settle()

    @property
    def known(self) -> int:
        return self.broker.topics[TOPIC].state.config.max_segments


@pytest.fixture
async def follower(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Follower]:
    made = Follower(monkeypatch)
    await open_cluster(made.store, made.clock, BrokerSettings().cluster, grace_seconds=BrokerSettings().grace)
    assert await made.catalogue.create(new_topic(TOPIC, TopicConfig(), 1, lambda n: ("another",), now_us=1))
    await made.broker.start("http://here")
    await made.broker.topics.topic(TOPIC)
    made.reads.clear()
    yield made
    await made.broker.close()


async def test_changes_announced_within_a_moment_are_one_read_at_its_end(follower: Follower) -> None:
    for changes in (7, 8, 9):
        await follower.change(changes)
    assert follower.reads == [] and follower.known == TopicConfig().max_segments
    await follower.clock.advance(REREAD_SECONDS)
    assert follower.reads == [TOPIC] and follower.known == 9


async def test_a_change_announced_after_that_is_read_as_well(follower: Follower) -> None:
    for changes in (7, 8):
        await follower.change(changes)
        await follower.clock.advance(REREAD_SECONDS)
    assert follower.reads == [TOPIC] * 2 and follower.known == 8
