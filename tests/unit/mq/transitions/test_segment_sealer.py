"""Who seals a segment: its owner, else a follower, else, once all of them are certainly gone, whoever asks."""

import asyncio
import math
from types import SimpleNamespace
from typing import cast

import pytest

from filer.clock import ManualClock, settle
from filer.errors import BraidError, OutcomeUnknown, SegmentMoved
from filer.segment.next_file import Accepted
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, recover_index
from filer.stores.memory_store import MemoryStore
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from leader.membership.coordinator import BrokerInfo, Coordinator
from leader.membership.missing_brokers import MARGIN_SHARE
from leader.transitions import SealedEnd, new_topic
from mq.base.errors import CopyRefused, PeerFailed, PeerUnreachable
from mq.limits.front_store import FrontStore
from mq.peers.peers import Peers
from mq.replication.replica_buffers import ReplicaBuffers
from mq.topic.topic_registry import TopicRegistry
from mq.transitions.segment_sealer import NEXT_FOLLOWER_SECONDS, OWNER_SEAL_SECONDS, SegmentSealer
from tests.support.broker.executors import FakeRegistry
from tests.support.segment.segment_owners import single

SESSION_SECONDS = 10.0
MARGIN_SECONDS = SESSION_SECONDS * MARGIN_SHARE
REF = SegmentRef("t", 0)
BROKERS = ("owner", "f1", "f2")


class FakePeers:
    """What each broker answers to a seal or a take-over, and who was asked."""

    def __init__(self) -> None:
        self.answers: dict[str | None, int | BraidError] = {}
        self.asked: list[str | None] = []
        self.paused: set[str | None] = set()
        self.resumed = asyncio.Event()
        self.given_up: list[str | None] = []
        self.slow_answers = 0.0
        self.clock: ManualClock | None = None

    async def seal(self, url: str | None, *arguments: object, timeout_seconds: float) -> SealedEnd | None:
        """An owner that is slow says so a few times, each time a while before the asker would give up."""
        if self.slow_answers > 0 and self.clock is not None:
            self.slow_answers -= 1
            self.asked.append(url)
            await self.clock.advance(timeout_seconds / 2)
            return None
        return self._answer(url)

    async def take_over(self, url: str | None, *arguments: object, timeout_seconds: float) -> SealedEnd:
        answer = self._answer(url)
        if url in self.paused:
            try:
                await self.resumed.wait()
            finally:
                self.given_up.append(url)
        return answer

    def _answer(self, url: str | None) -> SealedEnd:
        self.asked.append(url)
        answer = self.answers.get(url, PeerUnreachable())
        if isinstance(answer, BraidError):
            raise answer
        return SealedEnd(answer, answer, 10 * answer)


class World:
    """Broker `me`, which asks; everybody is announced unless a test says otherwise."""

    def __init__(self, me: str = "leader") -> None:
        self.clock, self.store = ManualClock(), MemoryStore()
        self.peers = FakePeers()
        self.peers.clock = self.clock
        self.live = set(BROKERS)
        self.in_touch = True
        self.coordinator = SimpleNamespace(
            in_touch=lambda: self.in_touch,
            session_timeout_seconds=SESSION_SECONDS,
            seen_seconds=math.inf,
            brokers=lambda: [BrokerInfo(broker, broker, "", "1") for broker in self.live],
        )
        self.copies = ReplicaBuffers(FrontStore(1 << 20))
        self.state = new_topic("t", TopicConfig(replicas=3), 1, lambda n: BROKERS, now_us=1)
        self.index: SegmentIndex | None = None
        self.runtime = SimpleNamespace(
            writers={},
            topic="t",
            state=self.state,
            ref=lambda n: REF,
            inherited=self._inherited,
            adopt_index=self._adopt,
        )
        self.sealer = SegmentSealer(
            broker=me,
            store=self.store,
            clock=self.clock,
            coordinator=cast(Coordinator, self.coordinator),
            peers=cast(Peers, self.peers),
            replicas=self.copies,
            topics=cast(TopicRegistry, FakeRegistry(lambda state: None, t=self.runtime)),
            last_url_of=lambda broker: broker,
            recorded_end=lambda topic, segment: 0,
            grace_seconds=3600.0,
        )

    async def _inherited(self, segment: Segment) -> ProducerWindows:
        return ProducerWindows()

    def _adopt(self, segment_id: int, index: SegmentIndex) -> None:
        self.index = index

    async def seal(self, state: TopicState | None = None) -> int:
        state = state or self.state
        return (await self.sealer.seal("t", state.segments[0], state)).end_offset

    async def refuses_to_seal(self) -> None:
        with pytest.raises(OutcomeUnknown):
            await self.seal()
        assert not (await recover_index(self.store, REF)).files

    def answers(self, **answers: int | BraidError) -> None:
        self.peers.answers = {**answers}


@pytest.fixture
def world() -> World:
    return World()


async def test_the_owner_comes_first(world: World) -> None:
    world.answers(owner=7, f1=6)
    assert await world.seal() == 7
    assert world.peers.asked == ["owner"]


@pytest.mark.parametrize("error", [PeerUnreachable(), PeerFailed(), SegmentMoved(), OutcomeUnknown()])
async def test_then_one_follower_after_the_other(world: World, error: BraidError) -> None:
    world.answers(owner=error, f1=error, f2=5)
    assert await world.seal() == 5
    assert world.peers.asked == ["owner", "f1", "f2"]
    assert not (await recover_index(world.store, REF)).files, "it is theirs to do"


async def test_a_paused_follower_keeps_the_next_waiting_for_a_moment_only(world: World) -> None:
    world.peers.paused = {"f1"}
    world.answers(f1=6, f2=5)
    sealing = asyncio.create_task(world.seal())
    await settle()
    assert world.peers.asked == ["owner", "f1"], "one that is not paused is left to do it alone"
    await world.clock.advance(NEXT_FOLLOWER_SECONDS)
    assert await sealing == 5
    assert world.peers.given_up == ["f1"]


async def test_a_follower_that_is_slow_is_still_listened_to_when_the_next_cannot(world: World) -> None:
    world.peers.paused = {"f1"}
    world.answers(f1=6)
    sealing = asyncio.create_task(world.seal())
    await settle()
    await world.clock.advance(NEXT_FOLLOWER_SECONDS)
    assert world.peers.asked == ["owner", "f1", "f2"]
    assert not sealing.done()
    world.peers.resumed.set()
    assert await sealing == 6


async def test_an_owner_that_is_at_it_is_waited_for(world: World) -> None:
    """The store is slow for everybody."""
    world.peers.slow_answers = 1.0
    world.answers(owner=7, f1=6)
    assert await world.seal() == 7
    assert world.peers.asked == ["owner"] * 2


async def test_but_not_for_longer_than_a_silent_one(world: World) -> None:
    """The store is away for the owner alone."""
    world.peers.slow_answers = math.inf
    world.answers(owner=7, f1=6)
    began_seconds = world.clock.monotonic_seconds()
    assert await world.seal() == 6
    assert world.clock.monotonic_seconds() - began_seconds <= SESSION_SECONDS + OWNER_SEAL_SECONDS
    assert world.peers.asked[-2:] == ["owner", "f1"]


async def test_nobody_seals_while_one_of_them_may_live(world: World) -> None:
    for live in (set(BROKERS), {"owner"}, {"f1"}, {"f2"}):
        world.live = live
        for _ in range(2):
            await world.refuses_to_seal()
            await world.clock.advance(SESSION_SECONDS * 10)
    world.answers(f1=CopyRefused())
    await world.refuses_to_seal()


async def test_a_margin_after_all_are_gone_it_is_sealed_at_its_end(world: World) -> None:
    world.live = set()
    await world.refuses_to_seal()
    await world.clock.advance(MARGIN_SECONDS - 0.1)
    await world.refuses_to_seal()
    await world.clock.advance(0.2)
    assert await world.seal() == 0
    assert world.index is not None and world.index.sealed
    assert world.peers.asked[-3:] == list(BROKERS), "each is asked once more"


async def test_nobody_is_missed_from_a_segment_that_is_sealed(world: World) -> None:
    world.live = set()
    await world.refuses_to_seal()
    assert len(world.sealer._missed_since_seconds) == len(BROKERS)
    sealed = world.state.segments[0].model_copy(update={"state": "sealed", "end_offset": 0, "sealed_us": 2})
    world.runtime.state = world.state.model_copy(update={"segments": (sealed,)})
    world.answers(f1=0)
    await world.seal()
    assert world.sealer._missed_since_seconds == {}


async def test_who_was_back_meanwhile_is_gone_a_margin_after_that(world: World) -> None:
    world.live = set()
    await world.refuses_to_seal()
    world.live = {"f2"}
    await world.clock.advance(MARGIN_SECONDS)
    await world.refuses_to_seal()
    world.live = set()
    await world.refuses_to_seal()
    await world.clock.advance(MARGIN_SECONDS + 0.1)
    assert await world.seal() == 0


async def test_who_was_missed_is_gone_once_it_is_seen_to_be_missing_still(world: World) -> None:
    """What the asker has heard may be older than the transition, and the brokers be back since."""
    world.live = set()
    world.coordinator.seen_seconds = world.clock.monotonic_seconds()
    for _ in range(2):
        await world.refuses_to_seal()
        await world.clock.advance(MARGIN_SECONDS * 2)
    world.coordinator.seen_seconds = world.clock.monotonic_seconds()
    assert await world.seal() == 0


async def test_who_is_cut_off_calls_nobody_gone(world: World) -> None:
    """It may never have heard of the brokers that own and follow the segment by now."""
    world.live, world.in_touch = set(), False
    for _ in range(3):
        await world.refuses_to_seal()
        await world.clock.advance(SESSION_SECONDS * 10)
    world.in_touch = True
    await world.refuses_to_seal()


async def test_a_segment_without_followers_is_sealed_by_the_store(world: World) -> None:
    alone = new_topic("t", TopicConfig(), 1, lambda n: ("owner",), now_us=1)
    world.in_touch = False
    assert await world.seal(alone) == 0
    assert world.peers.asked == ["owner"]


async def test_a_follower_asks_itself_without_a_call() -> None:
    world = World(me="f1")
    world.copies.take("t", 0, [Accepted(single(b"x"), 0, 1, 1, 1)], 0)
    assert await world.seal() == 1
    assert world.peers.asked == ["owner"]
    with pytest.raises(CopyRefused):
        world.copies.take("t", 0, [], 1)


async def test_a_follower_that_misses_what_is_stored_leaves_it_to_the_others() -> None:
    world = World(me="f1")
    world.copies.take("t", 0, [Accepted(single(b"x"), 5, 1, 1, 1)], 5)
    world.answers(f2=6)
    assert await world.seal() == 6
