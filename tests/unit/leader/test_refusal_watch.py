"""When the leader looks at a broker, whom it asks, and what it makes of the answers, over a clock moved by hand."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from filer.clock import ManualClock, settle
from leader.membership.coordinator import BrokerInfo, Coordinator
from leader.membership.refusing_brokers import RefusingBrokers, Sight
from leader.refusal_watch import LONGEST_PAUSE_SECONDS, MOST_WITNESSES, RefusalWatch

SESSION_SECONDS = 10.0


class FakeCoordinator:
    """Says what the test says."""

    session_timeout_seconds = SESSION_SECONDS

    def __init__(self) -> None:
        self.leading = True
        self.members: list[BrokerInfo] = []

    def brokers(self) -> list[BrokerInfo]:
        return self.members

    def leads(self) -> bool:
        return self.leading


@dataclass
class FakeEyes:
    """By viewer and broker what is seen: answers, unless the test says otherwise."""

    sights: dict[tuple[str, str], Sight] = field(default_factory=dict)
    heard_seconds: dict[str, float] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)

    async def look(self, broker: BrokerInfo, *, heard_within_seconds: float) -> Sight:
        self.looks.append(broker.id)
        heard_seconds = self.heard_seconds.get(broker.id)
        if heard_seconds is not None and heard_seconds < heard_within_seconds:
            return "answered"
        return self.sights.get(("leader", broker.id), "answered")

    async def ask(self, witness: BrokerInfo, broker: BrokerInfo, *, heard_within_seconds: float) -> Sight:
        self.asked.append(witness.id)
        return self.sights.get((witness.id, broker.id), "answered")

    def refuse(self, broker: str, *viewers: str) -> None:
        self.sights |= {(viewer, broker): "refused" for viewer in viewers}


class World:
    """A leader and the others."""

    def __init__(self, patience_seconds: float = 1.0) -> None:
        self.clock, self.coordinator, self.eyes = ManualClock(), FakeCoordinator(), FakeEyes()
        self.refusing = RefusingBrokers(patience_seconds)
        self.changes = 0
        self.watch = RefusalWatch(
            cast(Coordinator, self.coordinator),
            self.clock,
            self.eyes,
            self.refusing,
            broker="leader",
            on_change=self.changed,
        )
        self.task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        self.changes += 1

    def join(self, *names: str) -> None:
        self.coordinator.members = [BrokerInfo(name, f"http://{name}", "", "1") for name in ("leader", *names)]

    async def begin(self) -> None:
        self.task = asyncio.create_task(self.watch.run())
        await settle()

    async def pass_seconds(self, seconds: float) -> None:
        for _ in range(int(seconds / 0.05)):
            await self.clock.advance(0.05)

    async def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.join("a", "b")
    yield made
    await made.end()


async def test_nobody_is_looked_at_without_a_reason(world: World) -> None:
    world.eyes.refuse("a", "leader", "b")
    await world.begin()
    await world.pass_seconds(60)
    assert world.eyes.looks == [] and world.refusing.gone == set()


async def test_a_broker_that_refuses_two_others_is_gone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.eyes.refuse("a", "leader", "b")
    await world.begin()
    assert world.watch.told("a")
    await world.pass_seconds(0.95)
    assert world.refusing.gone == set()
    with caplog.at_level(logging.WARNING):
        await world.pass_seconds(0.2)
    assert world.refusing.gone == {"a"} and world.changes == 1
    assert "broker_refuses broker=a url=http://a seen_by=leader,b" in caplog.text


@pytest.mark.parametrize(("viewer", "sight"), [("b", "answered"), ("b", "unclear"), ("leader", "unclear")])
async def test_one_view_is_not_enough(world: World, viewer: str, sight: Sight) -> None:
    world.eyes.refuse("a", "leader", "b")
    world.eyes.sights[viewer, "a"] = sight
    await world.begin()
    world.watch.told("a")
    await world.pass_seconds(5)
    assert world.refusing.gone == set()


async def test_one_that_calls_is_there_whatever_its_address_says(world: World) -> None:
    world.eyes.refuse("a", "leader", "b")
    world.eyes.heard_seconds["a"] = 0.5
    await world.begin()
    for _ in range(10):
        world.watch.told("a")
        await world.pass_seconds(0.9)
    assert world.refusing.gone == set()


async def test_only_other_suspects_are_no_witnesses(world: World) -> None:
    """If all others refuse, it may be the leader whose calls get nowhere."""
    for broker in ("a", "b"):
        world.eyes.refuse(broker, "leader", "a", "b")
    await world.begin()
    world.watch.told("a")
    world.watch.told("b")
    await world.pass_seconds(20)
    assert world.eyes.asked == [] and world.refusing.gone == set()


async def test_with_two_brokers_the_leader_decides_alone_after_twice_as_long(world: World) -> None:
    world.join("a")
    world.eyes.refuse("a", "leader")
    await world.begin()
    world.watch.told("a")
    await world.pass_seconds(1.9)
    assert world.refusing.gone == set()
    await world.pass_seconds(0.3)
    assert world.refusing.gone == {"a"}


async def test_a_few_are_asked_and_in_time_all_of_them(world: World) -> None:
    names = [f"w{n}" for n in range(20)]
    world.join("a", *names)
    world.eyes.refuse("a", "leader")
    world.eyes.sights |= {(name, "a"): "unclear" for name in names}
    await world.begin()
    world.watch.told("a")
    await settle()
    assert len(world.eyes.asked) == MOST_WITNESSES
    await world.pass_seconds(8)
    assert set(world.eyes.asked) == set(names)


async def test_it_goes_on_looking_and_tells_when_it_is_back(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.eyes.refuse("a", "leader", "b")
    await world.begin()
    world.watch.told("a")
    await world.pass_seconds(3)
    world.eyes.sights.clear()
    await world.pass_seconds(LONGEST_PAUSE_SECONDS)
    assert (world.refusing.gone, world.refusing.unfit, world.changes) == (set(), {"a"}, 2)
    assert "broker_answers_again broker=a url=http://a" in caplog.text
    await world.pass_seconds(SESSION_SECONDS + 1)
    assert (world.refusing.unfit, world.changes) == (set(), 3)


async def test_who_does_not_lead_knows_nothing(world: World) -> None:
    world.eyes.refuse("a", "leader", "b")
    await world.begin()
    world.watch.told("a")
    await world.pass_seconds(2)
    world.coordinator.leading = False
    await world.pass_seconds(1)
    assert (world.refusing.gone, world.changes) == (set(), 2)
    assert not world.watch.told("a")
    await world.pass_seconds(2)
    assert world.refusing.watched == []


@pytest.mark.parametrize("broker", ["leader", "nobody"])
async def test_itself_and_who_is_not_announced_are_not_looked_at(world: World, broker: str) -> None:
    await world.begin()
    world.watch.told(broker)
    await world.pass_seconds(2)
    assert world.eyes.looks == []


async def test_one_whose_session_ends_meanwhile_is_forgotten(world: World) -> None:
    world.eyes.refuse("a", "leader", "b")
    await world.begin()
    world.watch.told("a")
    await world.pass_seconds(2)
    world.join("b")
    await world.pass_seconds(1)
    assert (world.refusing.gone, world.refusing.watched) == (set(), [])


async def test_a_patience_of_zero_waits_for_every_session() -> None:
    world = World(patience_seconds=0)
    world.join("a", "b")
    world.eyes.refuse("a", "leader", "b")
    await world.begin()
    assert not world.watch.told("a")
    await world.pass_seconds(5)
    assert world.eyes.looks == [] and world.refusing.gone == set()
    await world.end()
