"""What a leader makes of reports, over a clock that is moved by hand."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from filer.clock import ManualClock, settle
from filer.errors import OutcomeUnknown
from filer.slots import SLOTS
from filer.topic.topic_config import MergeRule, Scaling, SplitRule, TopicConfig
from filer.topic.topic_state import Segment, TopicState
from leader import scaling_controller as scaling_controller
from leader.membership.coordinator import BrokerInfo, InProcessCoordinator
from leader.policy.cut_points import Cut, SlotTraffic
from leader.scaling_controller import HOLD_SECONDS, ScalingController
from leader.traffic.traffic_averages import RecentTraffic, SegmentTraffic
from leader.traffic.traffic_table import TrafficTable
from leader.traffic_reports import STALE_INTERVALS, TrafficReports
from leader.transitions import (
    SealedEnd,
    begin_deletion,
    begin_merge,
    begin_replacement,
    begin_split,
    finished,
    new_topic,
)

INTERVAL_SECONDS = 1.0
CONFIG = TopicConfig(
    scaling=Scaling(
        split=(SplitRule(times_target=1, for_seconds=2),), merge=MergeRule(for_seconds=4), cooldown_seconds=4
    )
)


def brokers_for(number: int) -> tuple[str, ...]:
    return ("b",)


def load(topic: str, segment: int, times_target: float, *, age_seconds: float = 10) -> SegmentTraffic:
    """As an owner would report it that has seen the same load for long."""
    return SegmentTraffic(topic, segment, 100, 1000, *[times_target] * 5, age_seconds)


class Coordinator(InProcessCoordinator):
    """One that may be told not to lead."""

    leader_loop = True
    members: tuple[BrokerInfo, ...] = ()

    def leads(self) -> bool:
        return self.leader_loop

    def brokers(self) -> tuple[BrokerInfo, ...]:
        return self.members or tuple(super().brokers())


@dataclass
class World:
    """A leader, its topics, and the actions that carry out its decisions."""

    clock: ManualClock = field(default_factory=ManualClock)
    coordinator: Coordinator = field(default_factory=Coordinator)
    states: dict[str, TopicState] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    looked: list[str] = field(default_factory=list)
    slots: dict[tuple[str, int], SlotTraffic | None] = field(default_factory=dict)
    deeds: list[tuple[str, dict[int, tuple[int, ...]], list[tuple[int, int]]]] = field(default_factory=list)
    newer: dict[str, TopicState] = field(default_factory=dict)
    table: TrafficTable = field(default_factory=TrafficTable)
    failing: bool = False
    hanging: bool = False

    def __post_init__(self) -> None:
        self.reports = TrafficReports(
            self.coordinator, self.clock, self, self.table, interval_seconds=INTERVAL_SECONDS, segments_per_broker=2.0
        )
        self.scaling_controller = ScalingController(
            self.coordinator, self.clock, self, self, self.table, self.reports, interval_seconds=INTERVAL_SECONDS
        )

    # As `LedTopics`.

    def is_free(self, topic: str) -> bool:
        return topic not in self.taken

    def request_read(self, topic: str) -> None:
        self.looked.append(topic)

    # As `ScalingActions`.

    async def slot_traffic(self, topic: str, segment: Segment) -> SlotTraffic | None:
        return self.slots.get((topic, segment.id))

    async def split_or_merge(
        self, topic: str, cuts: Mapping[int, Cut], pairs: Sequence[tuple[int, int]]
    ) -> TopicState | None:
        points = {segment: cut.points for segment, cut in cuts.items()}
        self.deeds.append((topic, points, list(pairs)))
        if self.failing:
            raise OutcomeUnknown("the store is away")
        if self.hanging:
            await asyncio.Future()
        # Others may have changed it since the leader has read it.
        state = self.states[topic] = self.newer.pop(topic, self.states[topic])
        begun = (
            begin_split(state, points, brokers_for, now_us=2)
            if cuts
            else begin_merge(state, pairs, brokers_for, now_us=2)
        )
        if begun is not None and begun.transition is not None:
            after = finished(begun, begun.transition, dict.fromkeys(begun.transition.seal, SealedEnd(0)), now_us=3)
            assert after is not None
            self.states[topic] = after.model_copy(update={"version": state.version + 2})
        return self.states[topic]

    # What happens.

    def create(self, topic: str, segments: int = 1, config: TopicConfig = CONFIG) -> None:
        self.states[topic] = new_topic(topic, config, segments, brokers_for, now_us=1)

    def count_slots(self, topic: str, segment: int, start: int, stop: int) -> None:
        """All load of a segment is in a few of its slots."""
        of = self.states[topic].segment(segment)
        assert of is not None
        seen = np.zeros(of.stop_slot - of.start_slot, np.float32)
        seen[start - of.start_slot : stop - of.start_slot] = 1000
        self.slots[topic, segment] = SlotTraffic(seen, seen, int(seen.sum()))

    def report(self, *loads: SegmentTraffic) -> bool:
        return self.reports.record("b", 7, loads)

    async def round(self) -> None:
        await self.clock.advance(INTERVAL_SECONDS)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.coordinator.join(BrokerInfo("b", "http://b", "", "1"))
    task = asyncio.create_task(world.scaling_controller.run())
    await settle()
    yield world
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_hot_segment_is_cut_where_its_load_is(world: World) -> None:
    world.create("t")
    world.count_slots("t", 0, 1000, 2000)
    world.report(load("t", 0, 2))
    await world.round()
    ((topic, cuts, pairs),) = world.deeds
    assert (topic, pairs) == ("t", [])
    assert cuts[0] == pytest.approx((1500,), abs=20)
    assert [s.id for s in world.states["t"].open_segments] == [1, 2]


async def test_the_load_that_presses_is_what_counts(world: World) -> None:
    """Many small messages in one place, few large ones in another: where bytes press, theirs is the load to share."""
    world.create("t")
    messages, size_bytes = np.zeros(SLOTS), np.zeros(SLOTS)
    messages[:100], size_bytes[60_000:61_000] = 10, 1e9
    world.slots["t", 0] = SlotTraffic(messages, size_bytes, 10_000)
    world.report(load("t", 0, 2))
    await world.round()
    assert world.deeds[0][1][0] == pytest.approx((60_500,), abs=50)


async def test_while_the_owner_cannot_tell_where_the_load_is_nothing_is_cut(world: World) -> None:
    world.create("t")
    for answer in (None, SlotTraffic(np.ones(3), np.ones(3), 3)):
        world.slots["t", 0] = answer
        world.report(load("t", 0, 2))
        await world.round()
        assert world.deeds == []
    world.count_slots("t", 0, 0, SLOTS)
    await world.round()
    assert len(world.deeds) == 1


async def test_a_minimum_that_was_raised_is_cut_to_at_equal_widths_where_the_load_is_unknown(world: World) -> None:
    world.create("t")
    world.create("u", config=CONFIG.model_copy(update={"min_segments": 4}))
    await world.round()
    assert world.deeds == [("u", {0: (16384, 32768, 49152)}, [])]


async def test_a_minimum_that_was_raised_is_cut_to_where_the_load_is(world: World) -> None:
    world.create("u", config=CONFIG.model_copy(update={"min_segments": 2}))
    world.count_slots("u", 0, 100, 200)
    await world.round()
    assert world.deeds[0][1][0] == pytest.approx((150,), abs=2)


async def test_a_minimum_that_was_raised_waits_for_no_round_and_everything_else_does(world: World) -> None:
    scaling = CONFIG.scaling.model_copy(update={"enabled": False})
    for topic in "tuv":
        world.create(topic)
        world.count_slots(topic, 0, 0, SLOTS)
    world.report(load("v", 0, 9))
    world.states["t"] = world.states["t"].model_copy(
        update={"config": CONFIG.model_copy(update={"min_segments": 2, "scaling": scaling}), "version": 2}
    )
    world.scaling_controller.topic_changed("v")
    await settle()
    assert world.deeds == []
    world.scaling_controller.topic_changed("t")
    await settle()
    assert [topic for topic, _, _ in world.deeds] == ["t"]
    world.scaling_controller.topic_changed("unknown")
    await world.round()
    assert [topic for topic, _, _ in world.deeds] == ["t", "v"]


async def test_a_minimum_that_was_raised_is_no_concern_of_who_does_not_lead(world: World) -> None:
    world.coordinator.leader_loop = False
    world.create("t", config=CONFIG.model_copy(update={"min_segments": 2}))
    world.scaling_controller.topic_changed("t")
    await settle()
    assert world.deeds == []


async def test_topics_that_change_are_known_before_the_next_round(world: World) -> None:
    world.create("t")
    world.scaling_controller.topic_changed("t")
    assert world.table.topic_number("t") is None, "one of all topics tells nothing about what brokers carry"
    await world.round()
    world.create("u", segments=3)
    world.scaling_controller.topic_changed("u")
    assert [world.table.row("u", segment) is not None for segment in range(4)] == [True, True, True, False]
    world.coordinator.leader_loop = False
    world.create("v")
    world.scaling_controller.topic_changed("v")
    assert world.table.topic_number("v") is None
    world.coordinator.leader_loop = True
    del world.states["u"]
    await world.round()
    assert (world.table.topic_number("u"), world.table.row("v", 0) is None) == (None, False)


async def test_cold_neighbours_merge_down_to_the_minimum(world: World) -> None:
    world.create("t", 4, CONFIG.model_copy(update={"min_segments": 2}))
    world.report(*(load("t", n, 0) for n in range(4)))
    for _ in range(5):
        world.report(*(load("t", s.id, 0) for s in world.states["t"].open_segments))
        await world.round()
    assert [s.range for s in world.states["t"].open_segments] == [(0, 32768), (32768, SLOTS)]
    assert len(world.deeds) == 1


async def test_what_has_not_been_reported_lately_is_neither_hot_nor_cold(world: World) -> None:
    world.create("t", 2)
    world.create("u")
    world.count_slots("u", 0, 0, SLOTS)
    world.report(load("t", 0, 0), load("u", 0, 9))
    world.taken |= {"t", "u"}
    await world.clock.advance(INTERVAL_SECONDS * (STALE_INTERVALS + 1))
    world.taken.clear()
    await world.clock.advance(INTERVAL_SECONDS * 10)
    assert world.deeds == []
    assert world.reports.traffic("u", 0) is None


async def test_one_hot_slot_is_shown_and_left_alone_for_a_while(world: World) -> None:
    world.create("t")
    world.count_slots("t", 0, 4711, 4712)
    for _ in range(int(HOLD_SECONDS)):
        world.report(load("t", 0, 4))
        await world.round()
        assert world.reports.hot_slot("t", 0) == 4711
    assert world.deeds == []
    for _ in range(STALE_INTERVALS + 1):
        world.report(load("t", 0, 0.5))
        await world.round()
    assert world.reports.hot_slot("t", 0) is None, "the load has gone"


async def test_a_segment_that_rolls_before_it_is_reported_again_is_as_hot_as_before(world: World) -> None:
    """Where reports and rolls take turns it would else be unknown in each round."""
    world.create("t")
    world.report(load("t", 0, 2))
    begun = begin_replacement(world.states["t"], [0], brokers_for, "roll", now_us=2)
    assert begun is not None and begun.transition is not None
    after = finished(begun, begun.transition, {0: SealedEnd(0)}, now_us=3)
    assert after is not None
    world.states["t"] = after.model_copy(update={"version": 3})
    world.count_slots("t", 1, 0, SLOTS)
    await world.round()
    assert [list(cuts) for _, cuts, _ in world.deeds] == [[1]]


async def test_a_hot_slot_that_gets_company_is_cut_off_after_the_hold(world: World) -> None:
    world.create("t")
    world.count_slots("t", 0, 4711, 4712)
    world.report(load("t", 0, 4))
    await world.round()
    world.count_slots("t", 0, 0, SLOTS)
    for _ in range(int(HOLD_SECONDS) + 1):
        world.report(load("t", 0, 4))
        await world.round()
    assert len(world.deeds) == 1


async def test_a_topic_that_is_worked_on_is_left_alone(world: World) -> None:
    world.create("t")
    world.count_slots("t", 0, 0, SLOTS)
    world.taken.add("t")
    world.report(load("t", 0, 2))
    await world.round()
    assert world.deeds == []
    world.taken.clear()
    world.hanging = True
    for _ in range(3):
        world.report(load("t", 0, 2))
        await world.round()
    assert len(world.deeds) == 1, "one at a time"


async def test_a_merge_whose_neighbour_somebody_has_just_split_is_left_out(world: World) -> None:
    """The leader knows an older state: the executor leaves the pair out, the next round decides on the newer one."""
    world.create("t", 3)
    for segment in range(3):
        world.report(load("t", segment, 0))
    old = world.states["t"]
    begun = begin_split(old, {1: (30_000,)}, brokers_for, now_us=2)
    assert begun is not None and begun.transition is not None
    newest = finished(begun, begun.transition, {1: SealedEnd(0)}, now_us=3)
    assert newest is not None
    world.newer["t"] = newest.model_copy(update={"version": old.version + 2})
    await world.round()
    assert world.deeds == [("t", {}, [(0, 1)])]
    assert [s.id for s in world.states["t"].open_segments] == [0, 3, 4, 2]
    await world.round()
    assert len(world.deeds) == 1, "the new ones have not been heard of"


async def test_what_fails_is_decided_anew_and_keeps_no_other_topic_from_anything(world: World) -> None:
    for topic in "tu":
        world.create(topic)
        world.count_slots(topic, 0, 0, SLOTS)
    world.failing = True
    world.report(load("t", 0, 2), load("u", 0, 3))
    await world.round()
    assert [topic for topic, _, _ in world.deeds] == ["u", "t"], "the most urgent first"
    world.failing = False
    await world.round()
    assert {topic for topic, _, _ in world.deeds[2:]} == {"t", "u"}
    assert all(len(state.open_segments) > 1 for state in world.states.values())


async def test_only_so_many_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling_controller, "MOST_AT_ONCE", 2)
    world.hanging = True
    for number in range(5):
        world.create(f"t{number}")
        world.count_slots(f"t{number}", 0, 0, SLOTS)
        world.report(load(f"t{number}", 0, 2 + number))
    await world.round()
    assert [topic for topic, _, _ in world.deeds] == ["t4", "t3"]


async def test_standing_down_forgets_everything_and_breaks_work_off(world: World) -> None:
    world.create("t")
    world.create("u")
    for topic in "tu":
        world.count_slots(topic, 0, 0, SLOTS)
    world.hanging = True
    world.report(load("t", 0, 2))
    await world.round()
    world.coordinator.leader_loop = False
    assert not world.report(load("u", 0, 2)), "whoever reports is told"
    await world.round()
    assert world.reports.brokers_wanted() == 0
    world.coordinator.leader_loop = True
    world.hanging = False
    await world.round()
    assert (world.reports.traffic("t", 0), world.reports.pending_bytes("b")) == (None, None)
    assert len(world.deeds) == 1, "what it knew is known no more"
    world.report(load("t", 0, 2))
    await world.round()
    assert len(world.deeds) == 2


async def test_a_report_of_what_is_not_known_has_its_topic_looked_at(world: World) -> None:
    world.create("t")
    assert world.report(load("t", 0, 1), load("t", 5, 1), load("x", 0, 1), load("x", 1, 1))
    assert sorted(world.looked) == ["t", "x"]
    assert world.reports.traffic("t", 0) == RecentTraffic(100, 1000, 1)
    assert world.reports.traffic("x", 0) is None


async def test_a_topic_that_is_deleted_is_forgotten(world: World) -> None:
    world.create("t", 2)
    world.report(load("t", 0, 0), load("t", 1, 0))
    begun = begin_deletion(world.states["t"], now_us=2)
    assert begun is not None and begun.transition is not None
    after = finished(begun, begun.transition, {0: SealedEnd(0), 1: SealedEnd(0)}, now_us=3)
    assert after is not None
    world.states["t"] = after.model_copy(update={"version": 3})
    await world.round()
    assert world.deeds == [] and world.reports.traffic("t", 0) is None
    del world.states["t"]
    await world.round()
    world.create("t")
    world.report(load("t", 0, 1))
    assert world.reports.traffic("t", 0) is not None, "created again"


async def test_a_round_that_fails_is_followed_by_the_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create("t")
    world.count_slots("t", 0, 0, SLOTS)
    world.report(load("t", 0, 2))
    with monkeypatch.context() as patch:
        patch.setattr(world, "is_free", None)
        await world.round()
    await world.round()
    assert len(world.deeds) == 1


async def test_brokers_wanted_go_by_the_load_and_their_capacity(world: World) -> None:
    world.create("t", 3)
    await world.round()
    assert world.reports.brokers_wanted() == 1, "as many as there are, while nothing is known"
    world.taken.add("t")
    world.report(*(load("t", n, 1.5) for n in range(3)))
    assert world.reports.brokers_wanted() == 3
    assert world.reports.pending_bytes("b") == 7


async def test_a_broker_that_drains_is_not_wanted_back(world: World) -> None:
    """Its segments are unknown for a moment, wherever they go."""
    world.create("t")
    brokers = [BrokerInfo(name, "", "", "") for name in "abc"]
    world.coordinator.members = tuple(brokers)
    await world.round()
    assert world.reports.brokers_wanted() == 3
    world.coordinator.members = (*brokers[:2], replace(brokers[2], draining=True))
    assert world.reports.brokers_wanted() == 2


async def test_what_is_known_of_brokers_that_are_gone_is_forgotten(world: World) -> None:
    world.reports.record("gone", 7, [])
    await world.round()
    assert world.reports.pending_bytes("gone") is None


async def test_a_topic_that_goes_right_after_its_first_report_is_forgotten(world: World) -> None:
    world.create("t")
    world.report(load("t", 0, 1))
    assert world.table.row("t", 0) is not None
    del world.states["t"]
    await world.round()
    assert world.table.row("t", 0) is None
