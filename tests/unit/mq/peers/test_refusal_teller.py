"""Who tells the leader of a refused connection, and how often."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from filer.clock import ManualClock, settle
from leader.membership.coordinator import BrokerInfo, Coordinator
from mq.base.errors import NotFound, PeerUnreachable
from mq.http.problems import problem_of
from mq.peers.peers import Peers
from mq.peers.refusal_teller import MOST_AT_ONCE, OLDER_LEADER_SECONDS, PAUSE_SECONDS, RefusalTeller
from mq.peers.transport import PeerAnswer

TAKEN = PeerAnswer(200, {}, b'{"taken": true}')


def older_leader() -> PeerAnswer:
    problem = problem_of(NotFound("path", "there is no such path"))
    return PeerAnswer(problem.status, {}, problem.body())


@dataclass
class Leader:
    """What is sent to it; it may be silent, old or away."""

    answer: PeerAnswer | Exception = TAKEN
    is_silent: bool = False
    sent: list[tuple[str, bytes]] = field(default_factory=list)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        self.sent.append((url, bytes(body)))
        if self.is_silent:
            await asyncio.Future()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        """Nothing to close."""


class FakeCoordinator:
    """Brokers `b0`, `b1`, …; the first one leads."""

    def __init__(self, brokers: int) -> None:
        self.infos = [BrokerInfo(f"b{n}.01", f"http://b{n}/", "", "1") for n in range(brokers)]

    def brokers(self) -> list[BrokerInfo]:
        return self.infos

    def leader(self) -> str:
        return self.infos[0].id


class World:
    """One broker, and the leader."""

    def __init__(self, *, me: int = 1, brokers: int = 4) -> None:
        self.clock, self.leader, self.told = ManualClock(), Leader(), list[str]()
        coordinator = cast(Coordinator, FakeCoordinator(brokers))
        self.teller = RefusalTeller(Peers(self.leader), coordinator, self.clock, self.told.append, broker=f"b{me}.01")

    async def refused(self, *brokers: int) -> list[bytes]:
        """Somebody was refused there; what the leader was sent about it."""
        before = len(self.leader.sent)
        for broker in brokers:
            self.teller.refused(f"http://b{broker}")
        await settle()
        return [body for _, body in self.leader.sent[before:]]


async def test_the_leader_is_told_at_once() -> None:
    world = World()
    assert await world.refused(2) == [b"b2.01"]
    assert world.leader.sent == [("http://b0/internal/v1/refused", b"b2.01")]


async def test_it_is_told_now_and_then_only_however_many_requests_are_refused() -> None:
    world = World()
    assert await world.refused(*[2] * 1000, 3) == [b"b2.01", b"b3.01"]
    await world.clock.advance(PAUSE_SECONDS - 0.01)
    assert await world.refused(2) == []
    await world.clock.advance(0.01)
    assert await world.refused(2, 2) == [b"b2.01"]


async def test_a_leader_tells_itself() -> None:
    world = World(me=0)
    assert await world.refused(2, 2) == []
    assert world.told == ["b2.01"]


@pytest.mark.parametrize("broker", [0, 9], ids=["the leader itself", "nobody that is announced"])
async def test_nobody_is_told_of(broker: int) -> None:
    """Who leads instead is for ZooKeeper to say."""
    world = World()
    assert await world.refused(broker) == []
    assert world.told == []


async def test_an_older_leader_is_left_alone_for_a_while() -> None:
    world = World()
    world.leader.answer = older_leader()
    assert await world.refused(2) == [b"b2.01"]
    await world.clock.advance(OLDER_LEADER_SECONDS - 1)
    assert await world.refused(2, 3) == []
    await world.clock.advance(1)
    assert await world.refused(2) == [b"b2.01"]


async def test_a_leader_that_is_away_is_told_again() -> None:
    world = World()
    world.leader.answer = PeerUnreachable("away")
    await world.refused(2)
    await world.clock.advance(PAUSE_SECONDS)
    assert await world.refused(2) == [b"b2.01"]


async def test_so_many_at_a_time_and_no_more() -> None:
    world = World(brokers=100)
    world.leader.is_silent = True
    assert len(await world.refused(*range(2, 100))) == MOST_AT_ONCE
    await world.teller.close()
    world.leader.is_silent = False
    await world.clock.advance(PAUSE_SECONDS)
    assert len(await world.refused(50)) == 1
