"""What a leader does and when, over a clock that is moved by hand."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from filer.clock import ManualClock, settle
from filer.errors import OutcomeUnknown
from filer.stores.decorators.failing_store import FailingStore
from filer.stores.decorators.faults import FaultKind, ScriptedFaults
from filer.stores.memory_store import MemoryStore
from filer.topic.catalogue import Catalogue, TopicRecord
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import TopicState
from leader.leader_loop import RETRY_SECONDS, SETTLE_SECONDS, SWEEP_SECONDS, LeaderLoop
from leader.membership.coordinator import BrokerInfo
from leader.membership.missing_brokers import MARGIN_SHARE
from leader.membership.refusing_brokers import RefusingBrokers
from leader.policy.placement import owned, replacements
from leader.traffic.traffic_table import TrafficTable
from leader.transitions import SealedEnd, begin_deletion, begin_replacement, begin_split, finished, new_topic

SESSION_SECONDS = 40.0
MARGIN_SECONDS = SESSION_SECONDS * MARGIN_SHARE
PATIENCE_SECONDS = 1.0


class FakeCoordinator:
    """Says what the test says."""

    session_timeout_seconds = SESSION_SECONDS
    touches = 1
    seen_seconds = math.inf

    def __init__(self) -> None:
        self.members: dict[str, BrokerInfo] = {}
        self.leader_loop = True

    async def look(self) -> Sequence[BrokerInfo]:
        return self.brokers()

    async def join(self, broker: BrokerInfo) -> None:
        self.members[broker.id] = broker

    def resign(self) -> None:
        return

    async def leave(self) -> None:
        return

    def by_age(self) -> Sequence[BrokerInfo]:
        return self.brokers()

    def brokers(self) -> Sequence[BrokerInfo]:
        return tuple(sorted(self.members.values(), key=lambda each: each.id))

    def leader(self) -> str | None:
        return None

    def leads(self) -> bool:
        return self.leader_loop

    def in_touch(self) -> bool:
        return True

    def on_change(self, call: Callable[[], None]) -> None:
        return

    def on_topic_change(self, call: Callable[[str], None]) -> None:
        return

    def follow(self, topic: str) -> None:
        return

    def announce(self, topic: str) -> None:
        return


@dataclass
class Deed:
    topic: str
    segments: list[int]
    reason: str
    owners: dict[int, str]
    seconds: float


@dataclass
class FakeActions:
    """Carries transitions out as a broker does, sealing at offset 0; fails, hangs or does nothing for some topics."""

    catalogue: Catalogue
    coordinator: FakeCoordinator
    clock: ManualClock
    refusing: RefusingBrokers
    deeds: list[Deed] = field(default_factory=list)
    finishes: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    hanging: set[str] = field(default_factory=set)
    idle: set[str] = field(default_factory=set)

    async def finish_transition(self, topic: str) -> TopicState | None:
        self.finishes.append(topic)
        if topic in self.failing:
            raise OutcomeUnknown("no answer")
        if topic in self.hanging:
            await asyncio.Future()
        return await self._finish(topic)

    async def give_successors(
        self, topic: str, segments: Sequence[int], reason: str, owners: Mapping[int, str]
    ) -> TopicState | None:
        self.deeds.append(Deed(topic, list(segments), reason, dict(owners), self.clock.monotonic_seconds()))
        if topic not in self.idle:
            await self.catalogue.change(topic, lambda state: self._replaced(state, segments, owners))
        return await self._finish(topic)

    def _replaced(self, state: TopicState, segments: Sequence[int], owners: Mapping[int, str]) -> TopicState | None:
        sealing = [s for s in state.open_segments if s.id in segments]
        fit = [each for each in self.coordinator.brokers() if each.id not in self.refusing.unfit]
        placed = replacements(state, sealing, fit, owned([state]), {}, owners=owners)
        return begin_replacement(state, segments, lambda n: placed[sealing[n].id], "move", now_us=2)

    async def _finish(self, topic: str) -> TopicState | None:
        def end(state: TopicState) -> TopicState | None:
            record = state.transition
            return record and finished(state, record, dict.fromkeys(record.seal, SealedEnd(0)), now_us=3)

        return await self.catalogue.change(topic, end)


class World:
    """A leader and what it sees."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.faults = ScriptedFaults()
        self.memory = MemoryStore(clock=self.clock)
        self.catalogue = Catalogue(FailingStore(self.memory, self.faults, clock=self.clock), self.clock)
        self.coordinator = FakeCoordinator()
        self.refusing = RefusingBrokers(PATIENCE_SECONDS)
        self.actions = FakeActions(self.catalogue, self.coordinator, self.clock, self.refusing)
        self.settled: list[str] = []
        self.table = TrafficTable()
        self.leader_loop = LeaderLoop(
            self.coordinator,
            self.catalogue,
            self.clock,
            self.actions,
            self.table,
            self.refusing,
            on_settled=self.settled.append,
        )
        self.task: asyncio.Task[None] | None = None

    def join(self, *names: str, draining: bool = False) -> None:
        for name in names:
            self.coordinator.members[name] = BrokerInfo(name, f"http://{name}", "", "1", draining)
        self.leader_loop.wake()

    def leave(self, name: str) -> None:
        del self.coordinator.members[name]
        self.leader_loop.wake()

    async def create(self, name: str, *placed: tuple[str, ...], replicas: int = 1) -> None:
        config = TopicConfig(replicas=replicas)
        assert await self.catalogue.create(new_topic(name, config, len(placed), lambda n: placed[n], now_us=1))
        self.leader_loop.request_read(name)

    async def begin_split(self, name: str, owners: str = "aa") -> None:
        """Somebody else does, of the first segment, and tells nobody."""
        begun = await self.catalogue.change(
            name, lambda s: begin_split(s, {0: [100]}, lambda n: (owners[n],), now_us=2)
        )
        assert begun is not None

    async def begin(self) -> None:
        self.task = asyncio.create_task(self.leader_loop.run())
        await settle()

    async def pass_seconds(self, seconds: float) -> None:
        for _ in range(20):
            await self.clock.advance(seconds / 20)

    async def owners(self, name: str) -> list[str]:
        record = await self.catalogue.read(name)
        assert record is not None
        return [segment.owner for segment in record.state.open_segments]

    def reasons(self) -> list[str]:
        return [deed.reason for deed in self.actions.deeds]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    if made.task is not None:
        made.task.cancel()
        await asyncio.gather(made.task, return_exceptions=True)
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("settle")] == []


async def test_fails_over_only_after_the_margin(world: World) -> None:
    world.join("a", "b")
    await world.create("t", ("a",), ("b",))
    await world.begin()
    await world.pass_seconds(10)
    assert world.actions.deeds == []
    world.leave("a")
    left_seconds = world.clock.monotonic_seconds()
    await world.pass_seconds(MARGIN_SECONDS - 0.1)
    assert world.actions.deeds == [], "nor is the load spread while somebody is missed"
    await world.pass_seconds(2 * RETRY_SECONDS)
    [deed] = world.actions.deeds
    assert (deed.topic, deed.segments, deed.reason) == ("t", [0], "failover")
    assert deed.seconds - left_seconds >= MARGIN_SECONDS
    assert await world.owners("t") == ["b", "b"]


async def test_it_says_when_a_topic_that_has_changed_needs_nothing_more(world: World) -> None:
    world.join("a", "b")
    await world.create("t", ("a",))
    await world.create("u", ("gone",))
    await world.begin()
    assert sorted(world.settled) == ["t", "u"]
    world.settled.clear()
    world.leader_loop.request_read("t")
    await settle()
    assert world.settled == ["t"]
    await world.pass_seconds(MARGIN_SECONDS + 1)
    assert world.reasons() == ["failover"] and world.settled == ["t", "u"]


async def test_who_is_back_within_the_margin_keeps_everything(world: World) -> None:
    world.join("a", "b")
    await world.create("t", ("a",), ("b",))
    await world.begin()
    for _ in range(3):
        world.leave("a")
        await world.pass_seconds(MARGIN_SECONDS * 0.8)
        world.join("a")
        await world.pass_seconds(1)
    assert world.actions.deeds == []


async def test_a_thin_segment_whose_owner_is_missed_waits_for_the_margin_too(world: World) -> None:
    assert MARGIN_SECONDS > SETTLE_SECONDS + 1
    world.join("b", "c")
    await world.create("t", ("a",), replicas=2)
    await world.begin()
    await world.pass_seconds(MARGIN_SECONDS - 0.1)
    assert world.actions.deeds == []
    await world.pass_seconds(1)
    assert world.reasons() == ["failover"]


async def test_a_follower_that_is_gone_is_replaced(world: World) -> None:
    world.join("a", "c")
    await world.create("t", ("a", "b"), replicas=2)
    await world.begin()
    await world.pass_seconds(MARGIN_SECONDS + 1)
    record = await world.catalogue.read("t")
    assert record is not None and record.state.open_segments[0].brokers == ("a", "c")
    assert world.reasons() == ["failover"]


async def test_drains_at_once_unless_all_drain(world: World) -> None:
    world.join("a", "b")
    await world.create("t", ("a",), ("b",))
    await world.begin()
    world.join("a", draining=True)
    await settle()
    assert world.reasons() == ["drain"] and await world.owners("t") == ["b", "b"]
    world.join("b", draining=True)
    await world.pass_seconds(20)
    assert world.reasons() == ["drain"]


async def test_spreads_only_when_membership_has_been_quiet(world: World) -> None:
    world.join("a")
    await world.create("t", *[("a",)] * 4)
    await world.begin()
    for name in ("b", "c", "d"):
        world.join(name)
        await world.pass_seconds(SETTLE_SECONDS * 0.9)
        assert world.actions.deeds == []
    await world.pass_seconds(2)
    assert world.reasons() == ["move"] and sorted(await world.owners("t")) == ["a", "b", "c", "d"]
    await world.pass_seconds(100)
    assert world.reasons() == ["move"]


async def test_a_transition_that_takes_long_keeps_no_other_topic_from_being_spread(world: World) -> None:
    world.join("a", "b")
    await world.create("u", ("a",))
    await world.create("t", ("a",), ("a",), ("a",))
    await world.begin_split("u", "ab")
    world.actions.hanging.add("u")
    await world.begin()
    await world.pass_seconds(SETTLE_SECONDS + 10)
    assert world.actions.finishes.count("u") == 1
    assert sorted(await world.owners("t")) == ["a", "a", "b"], "what the split is about to open is counted"


async def test_what_the_arm_has_told_of_before_it_was_read_keeps_no_other_topic_from_being_spread(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.join("a", "b")
    await world.create("t", *[("a",)] * 4)
    world.table.apply(new_topic("u", TopicConfig(), 2, lambda n: ("a",), now_us=1))
    await world.begin()
    await world.pass_seconds(SETTLE_SECONDS + 1)
    assert {deed.topic for deed in world.actions.deeds} == {"t"} and caplog.messages == []


async def test_nothing_is_spread_while_anything_changes_hands(world: World) -> None:
    world.join("a", "b")
    for name in ("t", "u"):
        await world.create(name, ("a",), ("a",), ("a",))
    world.actions.hanging.add("t")
    await world.begin()
    await world.pass_seconds(SETTLE_SECONDS + 1)
    moved = [deed.topic for deed in world.actions.deeds]
    await world.pass_seconds(60)
    assert world.actions.finishes.count("t") == 1 and [deed.topic for deed in world.actions.deeds] == moved


async def test_gives_segments_the_replicas_they_lack(world: World) -> None:
    world.join("a")
    await world.create("t", ("a",), replicas=2)
    await world.begin()
    await world.pass_seconds(10)
    assert world.actions.deeds == []
    world.join("b")
    await world.pass_seconds(SETTLE_SECONDS + 1)
    record = await world.catalogue.read("t")
    assert record is not None and record.state.open_segments[0].brokers == ("a", "b")
    assert world.reasons() == ["move"]


async def test_finishes_what_is_under_way(world: World) -> None:
    world.join("a")
    await world.create("t", ("a",))
    await world.catalogue.change("t", lambda s: begin_deletion(s, now_us=2))
    await world.begin()
    record = await world.catalogue.read("t")
    assert record is not None and record.state.deleted and world.actions.deeds == []
    await world.pass_seconds(100)
    assert world.actions.finishes == ["t"]


async def test_stands_down_and_cuts_its_work_off(world: World) -> None:
    world.join("b")
    await world.create("t", ("a",))
    world.actions.hanging.add("t")
    await world.begin()
    await world.pass_seconds(MARGIN_SECONDS + 1)
    assert world.actions.finishes == ["t"]
    world.coordinator.leader_loop = False
    world.leader_loop.wake()
    await settle()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "settle t"] == []
    world.actions.hanging.clear()
    await world.pass_seconds(60)
    assert world.actions.finishes == ["t"] and world.actions.deeds == []
    world.coordinator.leader_loop = True
    world.leader_loop.wake()
    await world.pass_seconds(MARGIN_SECONDS - 0.1)
    assert world.actions.deeds == [], "what it knew before is forgotten: the margin begins anew"
    await world.pass_seconds(1)
    assert world.reasons() == ["failover"]


async def test_a_topic_is_free_for_scaling_while_it_needs_nothing_else(world: World) -> None:
    world.join("a", "b")
    await world.create("t", ("a",), ("b",))
    await world.create("u", ("b",))
    await world.begin()
    await world.pass_seconds(5)
    assert set(world.leader_loop.states) == {"t", "u"}
    assert (
        world.leader_loop.is_free("t") and world.leader_loop.is_free("u") and not world.leader_loop.is_free("unknown")
    )
    world.leave("a")
    await settle()
    assert not world.leader_loop.is_free("t") and world.leader_loop.is_free("u"), "it is about to be failed over"
    world.actions.hanging.add("t")
    await world.pass_seconds(MARGIN_SECONDS + 1)
    assert world.actions.finishes == ["t"] and not world.leader_loop.is_free("t")
    world.leader_loop.request_read("u")
    assert not world.leader_loop.is_free("u"), "what it needs is not known yet"
    await settle()
    assert world.leader_loop.is_free("u")


@pytest.mark.parametrize("trouble", ["failing", "hanging"])
async def test_a_topic_in_trouble_starves_no_other(world: World, trouble: str) -> None:
    world.join("b")
    for name in ("t", "u", "v"):
        await world.create(name, ("a",))
    getattr(world.actions, trouble).add("u")
    await world.begin()
    await world.pass_seconds(MARGIN_SECONDS + 1)
    assert await world.owners("t") == await world.owners("v") == ["b"]
    assert await world.owners("u") == ["a"]
    if trouble == "failing":
        world.actions.failing.clear()
        await world.pass_seconds(2)
        assert await world.owners("u") == ["b"]


@pytest.mark.parametrize("trouble", ["failing", "idle"])
async def test_no_busy_loop_over_what_cannot_be_settled(world: World, trouble: str) -> None:
    world.join("b")
    await world.create("t", ("a",))
    getattr(world.actions, trouble).add("t")
    await world.begin()
    await world.pass_seconds(MARGIN_SECONDS + 1)
    tries = len(world.actions.finishes)
    await world.pass_seconds(10 * RETRY_SECONDS)
    assert 5 <= len(world.actions.finishes) - tries <= 11


async def test_no_busy_loop_over_a_topic_whose_record_is_gone(world: World) -> None:
    world.join("b")
    await world.create("t", ("a",))
    await world.begin()
    await world.pass_seconds(1)
    await world.memory.delete(["topics/t/topic.json"])
    await world.pass_seconds(MARGIN_SECONDS + SWEEP_SECONDS)
    finishes = len(world.actions.finishes)
    await world.pass_seconds(SWEEP_SECONDS * 3)
    assert len(world.actions.finishes) == finishes <= 2 * MARGIN_SECONDS / RETRY_SECONDS


async def test_a_round_that_fails_is_not_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.join("b")
    await world.create("t", ("a",))
    names = world.catalogue.names

    async def broken() -> list[str]:
        monkeypatch.setattr(world.catalogue, "names", names)
        raise ValueError("a defect")

    monkeypatch.setattr(world.catalogue, "names", broken)
    await world.begin()
    await world.pass_seconds(MARGIN_SECONDS + 2)
    assert world.reasons() == ["failover"]


async def test_a_topic_that_cannot_be_read_is_looked_at_again(world: World) -> None:
    world.join("b")
    await world.create("t", ("a",))
    await world.create("u", ("a",))
    world.faults.add("get", *[FaultKind.UNAVAILABLE] * 3, key_part="topics/t/")
    await world.begin()
    await world.pass_seconds(MARGIN_SECONDS + SWEEP_SECONDS + 10)
    assert await world.owners("t") == await world.owners("u") == ["b"]


async def test_a_topic_that_a_sweep_could_not_read_does_not_wait_for_the_next_sweep(world: World) -> None:
    world.join("b")
    assert await world.catalogue.create(new_topic("t", TopicConfig(), 1, lambda n: ("a",), now_us=1))
    world.faults.add("get", *[FaultKind.UNAVAILABLE] * 3, key_part="topics/t/")
    await world.begin()
    await world.pass_seconds(MARGIN_SECONDS + 5)
    assert await world.owners("t") == ["b"]


async def test_a_damaged_topic_is_read_once_a_sweep(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.join("b")
    await world.memory.create("topics/t/topic.json", b"{}")
    await world.begin()
    await world.pass_seconds(2.5 * SWEEP_SECONDS)
    assert len([record for record in caplog.records if "topic_unreadable" in record.message]) == 3


async def test_news_that_could_not_be_read_are_read_again_at_once(world: World) -> None:
    """Nor is the topic taken for settled, or moved, by what was known of it before."""
    world.join("a", "b")
    await world.create("t", ("a",), ("a",), ("a",))
    await world.begin()
    world.settled.clear()
    await world.begin_split("t", "ab")
    world.faults.add("get", *[FaultKind.UNAVAILABLE] * 8, key_part="topics/t/")
    world.leader_loop.request_read("t")
    await world.pass_seconds(SETTLE_SECONDS + 1)
    assert (world.settled, world.actions.finishes, world.actions.deeds) == ([], [], [])
    await world.pass_seconds(4 * RETRY_SECONDS)
    assert "t" in world.actions.finishes and "t" in world.settled


@pytest.fixture
async def quiet(world: World) -> World:
    """Broker a leads and owns topic t, which needs nothing."""
    world.join("a")
    await world.create("t", ("a",))
    await world.begin()
    world.settled.clear()
    return world


async def test_what_is_heard_of_a_topic_while_it_is_read_is_read_too(
    quiet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = quiet.catalogue.read

    async def overtaken(topic: str) -> TopicRecord | None:
        found = await read(topic)
        monkeypatch.setattr(quiet.catalogue, "read", read)
        await quiet.begin_split(topic)
        quiet.leader_loop.request_read(topic)
        return found

    monkeypatch.setattr(quiet.catalogue, "read", overtaken)
    quiet.leader_loop.request_read("t")
    await quiet.pass_seconds(1)
    assert quiet.actions.finishes == ["t"] and quiet.settled == ["t"]


async def test_news_of_what_a_sweep_does_not_find_listed_are_read_too(
    quiet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none_yet() -> list[str]:
        return []

    monkeypatch.setattr(quiet.catalogue, "names", none_yet)
    await quiet.begin_split("t")
    quiet.leader_loop.request_read("t")
    quiet.join("b")
    await settle()
    assert quiet.actions.finishes == ["t"]


async def test_a_read_that_is_answered_late_brings_nothing_old_back(
    quiet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await quiet.catalogue.read("t")
    await quiet.begin_split("t")
    quiet.leader_loop.request_read("t")
    await quiet.pass_seconds(1)
    newest = quiet.leader_loop.states["t"]
    assert len(newest.open_segments) == 2

    async def late(topic: str) -> TopicRecord | None:
        return old

    monkeypatch.setattr(quiet.catalogue, "read", late)
    quiet.leader_loop.request_read("t")
    await settle()
    assert quiet.leader_loop.states["t"] == newest


async def test_a_transition_nobody_told_of_is_found_when_brokers_come_and_go(world: World) -> None:
    world.join("a")
    await world.create("u", ("a",))
    await world.begin()
    world.settled.clear()
    assert await world.catalogue.create(new_topic("t", TopicConfig(), 1, lambda n: ("a",), now_us=1))
    await world.begin_split("t")
    world.join("b")
    await settle()
    assert world.actions.finishes == ["t"] and set(world.settled) <= {"t"}, "nothing has happened to the other one"


async def test_a_topic_nobody_told_of_is_found_by_the_sweep(world: World) -> None:
    world.join("b")
    await world.begin()
    await world.pass_seconds(1)
    config = TopicConfig()
    assert await world.catalogue.create(new_topic("t", config, 1, lambda n: ("a",), now_us=1))
    await world.pass_seconds(SWEEP_SECONDS + 5 + MARGIN_SECONDS)
    assert await world.owners("t") == ["b"]


async def find_gone(world: World, *brokers: str) -> None:
    """As the watch does when brokers refuse."""
    for seconds in (0.0, PATIENCE_SECONDS):
        await world.pass_seconds(seconds)
        now_seconds = world.clock.monotonic_seconds()
        for broker in brokers:
            world.refusing.suspect(world.coordinator.members[broker], now_seconds=now_seconds)
            world.refusing.looked(
                broker, "refused", alone=False, now_seconds=now_seconds, session_seconds=SESSION_SECONDS
            )
    world.leader_loop.wake()
    await settle()


def answer_again(world: World, broker: str) -> None:
    now_seconds = world.clock.monotonic_seconds()
    world.refusing.looked(broker, "answered", alone=False, now_seconds=now_seconds, session_seconds=SESSION_SECONDS)
    world.leader_loop.wake()


async def test_a_broker_that_refuses_is_failed_over_while_its_session_goes_on(world: World) -> None:
    world.join("a", "b")
    await world.create("t", ("a",), ("b",))
    await world.begin()
    await find_gone(world, "a")
    assert [(deed.segments, deed.reason) for deed in world.actions.deeds] == [([0], "failover")]


async def test_a_segment_that_only_refusing_brokers_hold_waits_for_their_sessions(world: World) -> None:
    world.join("a", "b", "c")
    await world.create("t", ("a", "b"), ("a",), replicas=2)
    await world.begin()
    await find_gone(world, "a", "b")
    assert [deed.segments for deed in world.actions.deeds] == [[1]]
    world.leave("b")
    world.leave("a")
    await world.pass_seconds(MARGIN_SECONDS - 1)
    assert len(world.actions.deeds) == 1
    await world.pass_seconds(2)
    assert [deed.segments for deed in world.actions.deeds] == [[1], [0]]


async def test_nothing_is_rebalanced_to_or_around_a_broker_that_is_gone(world: World) -> None:
    world.join("a", "b")
    await world.create("t", ("b",), ("b",), ("b",), ("b",))
    await world.begin()
    await find_gone(world, "a")
    await world.pass_seconds(30)
    assert world.actions.deeds == []
    assert world.leader_loop.is_free("t")


async def test_one_that_is_back_gets_its_share_once_it_has_answered_for_a_session(world: World) -> None:
    world.join("a", "b")
    await world.create("t", ("b",), ("b",), ("b",), ("b",))
    await world.begin()
    await find_gone(world, "a")
    answer_again(world, "a")
    await world.pass_seconds(SESSION_SECONDS - 1)
    assert world.actions.deeds == []
    await world.pass_seconds(1)
    answer_again(world, "a")
    await world.pass_seconds(SETTLE_SECONDS + RETRY_SECONDS + 1)
    assert world.reasons() == ["move"]


async def test_topics_of_a_broker_that_is_gone_are_not_split(world: World) -> None:
    world.join("a", "b", "c")
    await world.create("t", ("a", "b"), ("c",), replicas=2)
    world.actions.idle.add("t")
    await world.begin()
    assert world.leader_loop.is_free("t")
    await find_gone(world, "a")
    assert not world.leader_loop.is_free("t")


async def test_all_that_are_fit_may_drain(world: World) -> None:
    """Nobody is left to take over: their segments stay with them."""
    world.join("a", "b")
    await world.create("t", ("b",))
    await world.begin()
    await find_gone(world, "a")
    world.join("b", draining=True)
    await world.pass_seconds(10)
    assert world.actions.deeds == []
