"""A segment's load is counted as it is stored; its slots only while a split may come."""

from itertools import pairwise

import pyarrow as pa
import pytest

from filer.clock import ManualClock
from filer.format.schema import MessageSchema
from filer.slots import slot_of
from filer.topic.topic_config import MergeRule, Scaling, SplitRule, Target, TopicConfig
from filer.topic.topic_state import TopicState
from leader.traffic.traffic_averages import SegmentTraffic
from leader.traffic_reports import STALE_INTERVALS
from leader.transitions import SealedEnd, begin_replacement, begin_split, finished, new_topic
from mq.traffic.slot_counters import SlotCounters
from mq.traffic.topic_traffic import TopicTraffic
from mq.traffic.traffic_meter import LONGEST_PAUSE_SECONDS

CONFIG = TopicConfig(
    target=Target(messages=100, bytes=1e9),
    scaling=Scaling(split=(SplitRule(times_target=1, for_seconds=8),), merge=MergeRule(for_seconds=8)),
)


def stored(messages: int, key: str | None = "ann", value: str = "v") -> pa.Table:
    """A file of so many messages."""
    columns = {"key": [key and key.encode()] * messages, "value": [value.encode()] * messages}
    rest = {name: [None] * messages for name in ("event_time", "headers", "_ref")}
    numbers = {name: [0] * messages for name in ("_offset", "_timestamp")}
    return pa.table({**numbers, **columns, **rest}, schema=MessageSchema.of().log)


def done(state: TopicState, begun: TopicState | None) -> TopicState:
    assert begun is not None and begun.transition is not None
    after = finished(begun, begun.transition, dict.fromkeys(begun.transition.seal, SealedEnd(0)), now_us=2)
    assert after is not None
    return after.model_copy(update={"version": state.version + 2})


class World:
    """Broker b, which owns the only segment of a topic."""

    def __init__(self, config: TopicConfig = CONFIG) -> None:
        self.clock = ManualClock()
        self.state = new_topic("t", config, 1, lambda n: ("b",), now_us=1)
        self.pending_bytes = 0
        self.traffic = TopicTraffic(self.clock, "b", lambda segment: self.pending_bytes)
        self.traffic.apply(self.state)

    async def pass_seconds(self, seconds: int, *, rate: int, segment: int = 0, **message: str) -> None:
        for _ in range(seconds):
            table = stored(rate, **message)
            self.traffic.count(segment, table, table.select(["key", "value", "headers"]).nbytes)
            await self.clock.advance(1.0)
            self.traffic.tick()

    def roll(self) -> None:
        self.state = done(self.state, begin_replacement(self.state, [0], lambda n: ("b",), "roll", now_us=1))
        self.traffic.apply(self.state)


@pytest.fixture
def world() -> World:
    return World()


async def test_messages_and_bytes_a_second(world: World) -> None:
    assert world.traffic.recent(0) is None, "before the first tick nothing is known"
    await world.pass_seconds(3, rate=50, value="12345")
    load = world.traffic.recent(0)
    assert load is not None
    assert load.messages_per_second == pytest.approx(50)
    # Arrow has four bytes a value besides the value.
    assert 50 * 8 <= load.bytes_per_second <= 50 * 24
    assert load.times_target == pytest.approx(0.5)


async def test_what_is_read_and_what_waits_are_told_and_press_nothing(world: World) -> None:
    for _ in range(3):
        for _ in range(10):
            world.traffic.count_read(0, 20, 3000)
        world.traffic.count_read(7, 1, 1)
        await world.clock.advance(1.0)
        world.pending_bytes += 5
        (load,) = world.traffic.tick()
    assert (load.read_messages_per_second, load.read_bytes_per_second) == (pytest.approx(200), pytest.approx(30_000))
    assert (load.pending_bytes, load.messages_per_second, load.warmest, load.pressure) == (15, 0, 0, 0)
    recent = world.traffic.recent(0)
    assert recent is not None
    assert (recent.read_messages_per_second, recent.pending_bytes) == (load.read_messages_per_second, 15)
    await world.pass_seconds(8, rate=0)
    (idle,) = world.traffic.tick()
    assert idle.read_messages_per_second < 1, "idle ticks decay"


async def test_changed_windows_keep_what_is_known_of_reads(world: World) -> None:
    world.traffic.count_read(0, 100, 1000)
    await world.clock.advance(1.0)
    (before,) = world.traffic.tick()
    scaling = Scaling(split=(SplitRule(times_target=1, for_seconds=80),), merge=MergeRule(for_seconds=80))
    world.traffic.apply(world.state.model_copy(update={"config": CONFIG.model_copy(update={"scaling": scaling})}))
    (after,) = world.traffic.tick()
    assert after.read_messages_per_second == pytest.approx(before.read_messages_per_second)


async def test_two_ticks_at_once_are_one(world: World) -> None:
    await world.pass_seconds(1, rate=50)
    (before,) = world.traffic.tick()
    world.traffic.count(0, stored(10), 10)
    assert world.traffic.tick() == [before]
    await world.clock.advance(0.1)
    (after,) = world.traffic.tick()
    assert after.messages_per_second > before.messages_per_second, "what came in between is not lost"


async def test_slots_are_counted_only_near_the_target(world: World) -> None:
    await world.pass_seconds(2, rate=40)
    assert world.traffic.slot_traffic(0) is None
    await world.pass_seconds(3, rate=80)
    seen = world.traffic.slot_traffic(0)
    assert seen is not None and seen.messages.argmax() == slot_of(b"ann")
    await world.pass_seconds(3, rate=40)
    assert world.traffic.slot_traffic(0) is not None, "not while it may come back"
    await world.pass_seconds(10, rate=0)
    assert world.traffic.slot_traffic(0) is None


async def test_slots_fade_by_changed_windows_at_once(world: World) -> None:
    await world.pass_seconds(8, rate=80)
    scaling = Scaling(split=(SplitRule(times_target=1, for_seconds=1),), merge=MergeRule(for_seconds=1))
    config = CONFIG.model_copy(update={"scaling": scaling})
    world.traffic.apply(world.state.model_copy(update={"config": config, "version": 2}))
    await world.pass_seconds(4, rate=80, key="ben")
    seen = world.traffic.slot_traffic(0)
    assert seen is not None
    assert seen.messages[slot_of(b"ann")] < 0.5 * seen.messages[slot_of(b"ben")]


async def test_what_was_counted_for_less_than_an_interval_says_nothing(world: World) -> None:
    await world.pass_seconds(9, rate=10)
    (load,) = world.traffic.tick()
    assert load.pressure < 1
    await world.pass_seconds(1, rate=1000)
    (load,) = world.traffic.tick()
    world.traffic.count(0, stored(1), 10)
    assert load.pressure > 1 and world.traffic.slot_traffic(0) is None, "hot at once, and nobody knows where"
    await world.clock.advance(LONGEST_PAUSE_SECONDS)
    await world.pass_seconds(1, rate=1000, key="ben")
    seen = world.traffic.slot_traffic(0)
    assert seen is not None and seen.messages.argmax() == slot_of(b"ben")


async def test_a_split_rule_far_below_the_target_has_slots_counted_below_it() -> None:
    scaling = Scaling(
        split=(SplitRule(times_target=0.1, for_seconds=8),), merge=MergeRule(times_target=0.05, for_seconds=8)
    )
    world = World(CONFIG.model_copy(update={"scaling": scaling}))
    await world.pass_seconds(2, rate=8)
    assert world.traffic.slot_traffic(0) is not None


@pytest.mark.parametrize(("window_seconds", "looks"), [(1, 19), (24, 9), (120, 4)])
async def test_files_are_looked_into_now_and_then(
    window_seconds: float, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a second of a file each 10 ms."""
    looked: list[pa.Table] = []
    monkeypatch.setattr(SlotCounters, "count", lambda self, table: looked.append(table))
    scaling = Scaling(
        split=(SplitRule(times_target=1, for_seconds=window_seconds),), merge=MergeRule(for_seconds=window_seconds)
    )
    world = World(CONFIG.model_copy(update={"scaling": scaling}))
    await world.pass_seconds(1, rate=1000)
    for _ in range(100):
        world.traffic.count(0, stored(10), 100)
        await world.clock.advance(0.01)
    assert looks <= len(looked) <= looks + 1


async def test_without_split_rules_the_load_is_counted_all_the_same() -> None:
    world = World(CONFIG.model_copy(update={"scaling": Scaling(split=(), merge=MergeRule(for_seconds=8))}))
    await world.pass_seconds(2, rate=80)
    assert world.traffic.slot_traffic(0) is not None


async def test_a_roll_changes_nothing(world: World) -> None:
    await world.pass_seconds(5, rate=80)
    before = world.traffic.recent(0)
    world.roll()
    assert world.traffic.recent(1) == before is not None
    await world.pass_seconds(1, rate=80, segment=1)
    (load,) = world.traffic.tick()
    assert (load.segment, load.age_seconds) == (1, 6)
    assert load.merge_average == pytest.approx(0.8)
    assert world.traffic.slot_traffic(1) is not None and world.traffic.recent(0) is None


async def test_children_of_a_split_know_nothing(world: World) -> None:
    await world.pass_seconds(5, rate=80)
    world.state = done(world.state, begin_split(world.state, {0: [30_000]}, lambda n: ("b", "c")[n : n + 1], now_us=1))
    world.traffic.apply(world.state)
    world.traffic.count(2, stored(1), 10)
    world.traffic.count(0, stored(1), 10)
    await world.clock.advance(1.0)
    (ours,) = world.traffic.tick()
    assert (ours.segment, ours.age_seconds, ours.recent) == (1, 1, 0), "the other is not ours"


async def test_a_changed_target_holds_at_once(world: World) -> None:
    await world.pass_seconds(2, rate=50)
    config = CONFIG.model_copy(update={"target": Target(messages=10, bytes=1e9)})
    world.traffic.apply(world.state.model_copy(update={"config": config, "version": 2}))
    await world.clock.advance(0.001)
    assert world.traffic.tick()[0].recent > 4


async def reported(world: World, seconds: int) -> list[list[SegmentTraffic]]:
    """What is reported each second, if it is asked for whenever the topic does not rest."""
    reports = []
    for _ in range(seconds):
        await world.clock.advance(1.0)
        rests = world.traffic.rests(world.clock.monotonic_seconds())
        repeated = None if rests else world.traffic.repeat(1.0)
        reports.append([] if rests else world.traffic.report(1.0) if repeated is None else repeated)
    return reports


async def test_an_idle_topic_is_reported_before_it_would_be_stale_and_computed_seldom(world: World) -> None:
    await world.pass_seconds(1, rate=1)
    await reported(world, 200)
    reports = await reported(world, 120)
    told = [index for index, report in enumerate(reports) if report]
    assert max(after - before for before, after in pairwise(told)) < STALE_INTERVALS
    assert len(told) <= 40
    assert len({id(report[0]) for report in reports if report}) <= 3


async def test_a_burst_after_a_rest_counts_as_if_there_had_been_no_rest(world: World) -> None:
    watched = World()
    for each in (world, watched):
        await each.pass_seconds(1, rate=1)
    await reported(world, 130)
    await watched.pass_seconds(130, rate=0)
    for each in (world, watched):
        each.traffic.count(0, stored(5000), 5000)
    (report,) = (await reported(world, 1))[0]
    await watched.clock.advance(1.0)
    (expected,) = watched.traffic.tick()
    assert report.recent == pytest.approx(expected.recent) and report.recent > 10
    assert report.warmest == pytest.approx(expected.warmest)
    assert report.age_seconds == expected.age_seconds


@pytest.mark.parametrize("happens", ["stored", "read", "reconfigured"])
async def test_what_happens_ends_a_rest_at_once(world: World, happens: str) -> None:
    await world.pass_seconds(1, rate=1)
    await reported(world, 130)
    while not world.traffic.rests(world.clock.monotonic_seconds() + 1):
        await reported(world, 1)
    if happens == "stored":
        world.traffic.count(0, stored(1), 1)
    elif happens == "read":
        world.traffic.count_read(0, 1, 1)
    else:
        world.traffic.apply(world.state)
    assert (await reported(world, 1))[0]
