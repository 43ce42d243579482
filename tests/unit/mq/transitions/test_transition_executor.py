"""Splits and merges by a broker: where successors go, what is counted, whom it asks for a segment's load."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from filer.clock import ManualClock
from filer.errors import InvalidInput
from filer.stores.memory_store import MemoryStore
from filer.topic.catalogue import Catalogue
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import TopicState
from leader.membership.coordinator import BrokerInfo
from leader.policy.cut_points import Cut, SlotTraffic
from leader.traffic.broker_traffic import carried
from leader.traffic.traffic_averages import SegmentTraffic
from leader.traffic.traffic_table import TrafficTable
from leader.transitions import begin_split, new_topic
from mq.base.errors import Draining, PeerUnreachable
from mq.metrics.metrics import Metrics
from mq.metrics.topic_families import TRANSITIONS
from tests.support.broker.executors import FakeRegistry, executor_of


def load(topic: str, segment: int, work: float) -> SegmentTraffic:
    """An old segment that costs its owner so many default targets."""
    return SegmentTraffic(topic, segment, work * TopicConfig().target.messages, 0, *[0.5] * 5, 1e6)


LOADS = SlotTraffic(np.ones(4), np.ones(4), 4)


class Runtime:
    """A topic whose every segment is sealed at once, empty."""

    def __init__(self, state: TopicState) -> None:
        self.state = state
        self.topic = state.topic
        self.traffic = SimpleNamespace(slot_traffic=lambda segment: LOADS if segment == 0 else None)

    @property
    def writers(self) -> dict[int, SimpleNamespace]:
        async def seal() -> int:
            return 0

        index = SimpleNamespace(seal_offset=None, stored_bytes=0)
        return {segment.id: SimpleNamespace(seal=seal, index=index) for segment in self.state.open_segments}

    def last_word(self, segment: int) -> None:
        return None


class World:
    """Broker `a` of three; all segments are its own."""

    def __init__(self, segments: int = 1, **settings: int) -> None:
        self.metrics = Metrics()
        self.leads, self.table = True, TrafficTable()
        store = MemoryStore()
        self.catalogue = Catalogue(store, ManualClock())
        self.state = new_topic("t", TopicConfig(**settings), segments, lambda n: ("a",), now_us=1)
        self.runtime = Runtime(self.state)
        self.peers = SimpleNamespace(slot_traffic=self._answer)
        self.answers: dict[str, SlotTraffic] = {}
        brokers = [BrokerInfo(name, f"http://{name}", "", "1") for name in "abc"]
        self.draining = asyncio.Event()
        self.unfinished: list[str] = []
        self.executor, self.placement = executor_of(
            "a",
            store=store,
            clock=ManualClock(),
            coordinator=SimpleNamespace(brokers=lambda: brokers, leads=lambda: self.leads, session_timeout_seconds=0.0),
            topics=FakeRegistry(self._apply, t=self.runtime),
            peers=self.peers,
            metrics=self.metrics,
            table=self.table,
            draining=self.draining,
            on_unfinished=self.unfinished.append,
        )

    async def create(self) -> None:
        assert await self.catalogue.create(self.state)

    def _apply(self, state: TopicState) -> None:
        self.runtime.state = state

    async def _answer(self, url: str, topic: str, segment: int) -> SlotTraffic:
        if url not in self.answers:
            raise PeerUnreachable(url)
        return self.answers[url]

    def counted(self, reason: str) -> float:
        return self.metrics.topics.value(TRANSITIONS, "t", reason)


async def test_the_parts_of_one_split_go_to_different_brokers() -> None:
    world = World(segments=2)
    await world.create()
    state = await world.executor.split_or_merge("t", {0: Cut((100, 200))}, [])
    assert state is not None
    assert [s.range for s in state.open_segments][:3] == [(0, 100), (100, 200), (200, 32768)]
    assert {s.owner for s in state.open_segments if s.reason == "split"} == {"a", "b", "c"}
    assert (world.counted("split"), world.counted("merge")) == (1, 0)


async def test_parts_go_by_the_load_that_the_cut_says_they_will_have() -> None:
    """Two of them to whoever has next to nothing, though it owns as many segments as the others."""
    world = World(segments=1)
    await world.create()
    others = new_topic("u", TopicConfig(), 3, lambda n: ("abc"[n],), now_us=1)
    for state in (world.state, others):
        world.table.apply(state)
    world.table.record([load("t", 0, 2.0), load("u", 0, 1.0), load("u", 1, 0.0), load("u", 2, 1.0)], now_seconds=1)
    state = await world.executor.split_or_merge("t", {0: Cut((10, 20, 30), shares=(0.1, 0.5, 0.3, 0.1))}, [])
    assert state is not None
    assert [s.owner for s in state.open_segments] != ["a", "b", "c", "a"]
    owner_of = {s.range: s.owner for s in state.open_segments}
    assert owner_of[10, 20] == "b"
    assert carried(world.table) == pytest.approx({"a": 1.3, "b": 1.2, "c": 1.5}, abs=0.4)
    assert world.table.opening == [], "it has been seen"


async def test_what_a_split_seals_makes_room_at_its_owner() -> None:
    world = World(segments=1)
    await world.create()
    for state in (world.state, new_topic("u", TopicConfig(), 2, lambda n: ("bc"[n],), now_us=1)):
        world.table.apply(state)
    world.table.record([load("t", 0, 2.0), load("u", 0, 1.5), load("u", 1, 1.4)], now_seconds=1)
    state = await world.executor.split_or_merge("t", {0: Cut((10,), shares=(0.5, 0.5))}, [])
    assert state is not None
    assert [s.owner for s in state.open_segments] == ["a", "a"]


async def test_parts_whose_shares_nobody_knows_are_taken_for_equal() -> None:
    world = World(segments=2)
    await world.create()
    for state in (world.state, new_topic("u", TopicConfig(), 2, lambda n: ("bc"[n],), now_us=1)):
        world.table.apply(state)
    world.table.record([load("t", 0, 1.0), load("t", 1, 1.0), load("u", 0, 0.2), load("u", 1, 0.4)], now_seconds=1)
    state = await world.executor.split_or_merge("t", {0: Cut((10,)), 1: Cut((40_000,), shares=(0.9, 0.1))}, [])
    assert state is not None
    assert {s.range: s.owner for s in state.open_segments}[32768, 40_000] == "a", "the heaviest goes where least is"


async def test_a_merged_segment_weighs_what_both_had() -> None:
    world = World(segments=4, min_segments=2)
    await world.create()
    for state in (world.state, new_topic("u", TopicConfig(), 2, lambda n: ("bc"[n],), now_us=1)):
        world.table.apply(state)
    works = {("t", 0): 1.0, ("t", 1): 1.0, ("t", 2): 1.0, ("t", 3): 0.1, ("u", 0): 0.3, ("u", 1): 0.6}
    world.table.record([load(topic, segment, work) for (topic, segment), work in works.items()], now_seconds=1)
    state = await world.executor.split_or_merge("t", {}, [(0, 1), (2, 3)])
    assert state is not None
    assert [s.owner for s in state.open_segments] == ["a", "b"], "the heavier one first, to whoever has least"


async def test_what_is_being_opened_counts_for_whoever_places_next() -> None:
    world = World(segments=2)
    await world.create()
    other = new_topic("u", TopicConfig(), 1, lambda n: ("c",), now_us=1)
    for state in (world.state, other):
        world.table.apply(state)
    world.table.record([load("t", 0, 1.0), load("t", 1, 1.0), load("u", 0, 0.1)], now_seconds=1)
    begun = begin_split(world.state, {0: (100,)}, lambda n: ("b",), now_us=2)
    assert begun is not None
    world.table.expect(begun)
    assert world.placement.brokers_for("v", TopicConfig(), 1)(0) == ("c",)
    world.table.release("t")
    assert world.placement.brokers_for("v", TopicConfig(), 1)(0) == ("b",)


async def test_who_does_not_lead_counts_segments() -> None:
    world = World(segments=2)
    await world.create()
    world.table.apply(world.state)
    world.leads = False
    assert world.placement.brokers_for("v", TopicConfig(), 2)(0)[0] in "bc"
    state = await world.executor.split_or_merge("t", {0: Cut((100,))}, [])
    assert state is not None and world.table.opening == []
    assert world.table.row("t", 2) is None, "what it knows is no news to whoever leads"


async def test_what_is_sealed_is_no_load_any_more() -> None:
    """A broker that loses its only segment has as little as the others that have none."""
    world = World(segments=1)
    await world.create()
    state = await world.executor.split_or_merge("t", {0: Cut((100, 200, 300))}, [])
    assert state is not None
    assert sorted(Counter(s.owner for s in state.open_segments).values()) == [1, 1, 2]


async def test_a_merge_is_as_good_as_a_split() -> None:
    world = World(segments=4, min_segments=3)
    await world.create()
    state = await world.executor.split_or_merge("t", {}, [(0, 1), (2, 3)])
    assert state is not None
    assert [s.range for s in state.open_segments] == [(0, 32768), (32768, 49152), (49152, 65536)], "three are to stay"
    assert world.counted("merge") == 1


async def test_what_was_decided_before_a_neighbour_was_split_is_left_out() -> None:
    """The leader may act on old news: by its old ids nothing is merged, nor cut once more; the rest is."""
    world = World(segments=4)
    await world.create()
    first = await world.executor.split_or_merge("t", {1: Cut((20_000,))}, [])
    assert first is not None
    after = await world.executor.split_or_merge("t", {}, [(0, 1), (2, 3)])
    assert after is not None
    assert [s.range for s in after.open_segments] == [(0, 16384), (16384, 20_000), (20_000, 32768), (32768, 65536)]
    assert [s.id for s in after.open_segments if s.reason == "split"] == [4, 5]
    assert await world.executor.split_or_merge("t", {1: Cut((30_000,))}, []) == after
    assert await world.executor.split_or_merge("t", {}, [(0, 1)]) == after


async def test_what_cannot_begin_changes_and_counts_nothing() -> None:
    world = World(segments=2, min_segments=2)
    await world.create()
    for cuts, pairs in (({7: Cut((100,))}, []), ({}, [(0, 1)]), ({}, [])):
        state = await world.executor.split_or_merge("t", cuts, pairs)
        assert state is not None and state.open_segments == world.state.open_segments
    with pytest.raises(InvalidInput):
        await world.executor.split_or_merge("t", {0: Cut((40_000,))}, [])
    assert (world.counted("split"), world.counted("merge")) == (0, 0)
    assert await world.executor.split_or_merge("unknown", {0: Cut((100,))}, []) is None


async def test_a_broker_that_drains_begins_nothing() -> None:
    world = World()
    await world.create()
    world.draining.set()
    with pytest.raises(Draining):
        await world.executor.split_or_merge("t", {0: Cut((100,))}, [])


async def test_the_owner_is_asked_how_the_load_lies() -> None:
    world = World(segments=2)
    mine, other = world.state.segments[0], world.state.segments[1].model_copy(update={"brokers": ("b",)})
    assert await world.executor.slot_traffic("t", mine) is LOADS
    assert await world.executor.slot_traffic("unknown", mine) is None
    assert await world.executor.slot_traffic("t", other) is None, "it does not answer"
    world.answers["http://b"] = LOADS
    assert await world.executor.slot_traffic("t", other) is LOADS
