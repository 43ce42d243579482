"""What brokers ask of a segment's followers, over real HTTP: only those that are answer, and they keep nothing long."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from filer.clock import SystemClock
from filer.errors import SegmentMoved
from filer.segment.next_file import Accepted, rows_of_payloads
from filer.segment.segment_log import SegmentRef
from filer.stores.memory_store import MemoryStore
from filer.topic.topic_state import Segment
from mq.base.errors import CopyRefused
from mq.peers.part_batch import Part
from mq.peers.peers import Peers
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.cluster.shared_coordinator import Membership, SharedCoordinator
from tests.support.segment.segment_owners import single

PATIENCE_SECONDS = 20.0
REF = SegmentRef("t", 0)


class Cluster:
    """Three brokers and a topic of one segment, which one of them follows and another does not."""

    def __init__(self, brokers: dict[str, HttpBroker], segment: Segment, version: int) -> None:
        self.brokers, self.segment, self.version = brokers, segment, version
        self.owner, self.follower = (brokers[each] for each in segment.brokers)
        [self.stranger] = [each for name, each in brokers.items() if name not in segment.brokers]

    @property
    def peers(self) -> Peers:
        return self.owner.broker.peers

    async def replicate(self, to: HttpBroker, *, base: int, stored_end: int) -> int:
        rows = rows_of_payloads(REF, [single(b"x")])
        return await self.peers.replicate(
            to.url, "t", 0, self.version, rows, [Part(1, 1)], base=base, stored_end=stored_end
        )

    async def publish(self, **parameters: Any) -> None:
        answer = await self.stranger.client.post("/v1/topics/t/messages", params=parameters, content=b"x")
        answer.raise_for_status()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with contextlib.AsyncExitStack() as stack:
        store, membership, clock = MemoryStore(), Membership(), SystemClock()
        started = [
            await stack.enter_async_context(
                http_broker(store, clock=clock, coordinator=SharedCoordinator(membership), broker=name)
            )
            for name in "abc"
        ]
        (await started[0].client.put("/v1/topics/t", json={"replicas": 2})).raise_for_status()
        state = (await started[0].broker.topics.topic("t")).state
        yield Cluster({each.broker.id: each for each in started}, state.segments[0], state.version)


async def test_only_a_follower_seals_in_an_owners_stead(cluster: Cluster) -> None:
    """A broker started anew at a follower's address holds nothing: its seal would cut off what others hold."""
    for other in (cluster.stranger, cluster.owner):
        with pytest.raises(SegmentMoved):
            await cluster.peers.take_over(other.url, "t", 0, cluster.version, timeout_seconds=5)
    await cluster.publish(acks="replicated")
    await cluster.publish(acks="stored")
    assert await cluster.owner.end_offsets("t") == {0: 2}
    assert (
        await cluster.peers.take_over(cluster.follower.url, "t", 0, cluster.version, timeout_seconds=5)
    ).end_offset == 2


async def test_only_a_follower_takes_a_copy(cluster: Cluster) -> None:
    """The others do not say that the segment is sealed: its owner would stop for nothing."""
    for other in (cluster.stranger, cluster.owner):
        with pytest.raises(SegmentMoved):
            await cluster.replicate(other, base=0, stored_end=0)
    assert await cluster.replicate(cluster.follower, base=0, stored_end=0) == 1


async def test_a_follower_that_is_full_of_what_is_stored_makes_room(cluster: Cluster) -> None:
    broker = cluster.follower.broker
    free_bytes = broker.front_store.limit_bytes - broker.front_store.pending_bytes
    large = Accepted(single(b"x"), 0, 1, 0, 0)
    large.size_bytes = free_bytes - large.held_bytes
    broker.replica_buffers.take("t", 0, [large], 0)
    assert broker.front_store.pending_bytes == broker.front_store.limit_bytes
    assert await cluster.replicate(cluster.follower, base=1, stored_end=1) == 2
    assert broker.front_store.pending_bytes < broker.front_store.limit_bytes // 2


async def test_a_sealed_segment_is_copied_no_more_and_answers_its_end(cluster: Cluster) -> None:
    await cluster.publish(acks="replicated")
    await cluster.owner.broker.executor.give_successors("t", [0], "roll")
    version = (await cluster.owner.broker.topics.topic("t")).state.version
    for other in (cluster.follower, cluster.stranger):
        assert (await cluster.peers.take_over(other.url, "t", 0, version, timeout_seconds=5)).end_offset == 1
    with pytest.raises(CopyRefused):
        await cluster.replicate(cluster.follower, base=1, stored_end=1)


@pytest.mark.parametrize("end", ["delete", "roll", "idle"])
async def test_followers_give_all_room_back(cluster: Cluster, end: str) -> None:
    for _ in range(5):
        await cluster.publish(acks="replicated")
    if end == "delete":
        (await cluster.owner.client.delete("/v1/topics/t")).raise_for_status()
    elif end == "roll":
        await cluster.owner.broker.executor.give_successors("t", [0], "roll")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(each.broker.front_store.pending_bytes for each in cluster.brokers.values()):
            await asyncio.sleep(0.01)
