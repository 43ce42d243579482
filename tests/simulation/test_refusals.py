"""Whole brokers whose addresses refuse connections at random, in virtual time, under the load of the cluster tests.

Whoever is failed over may live, and nothing that was acknowledged is lost, doubled or out of order.

Brokers refuse some of the others or all of them, with their own calls heard or not; their puts stand still and land
late; one is killed, maybe the leader, and its session ends much later. No second one is killed: that could lose
`replicated` messages, as it may.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import pytest

from mq.transitions.segment_sealer import SegmentSealer
from tests.cluster.checker.consumers import Consumer
from tests.cluster.checker.producers import Producer
from tests.cluster.checker.verdict import judge
from tests.cluster.checker.workload import Workload
from tests.support.virtual.virtual_cluster import SESSION_SECONDS, VirtualCluster
from tests.support.virtual.virtual_time import run_in_virtual_time

# One that finds out, and a short one.
TELLING_SEED, SHORT_SEED = 25, 9
SEEDS = (TELLING_SEED, *range(int(os.environ.get("BRAIDMQ_TEST_SEEDS", "60")) // 30))
BROKERS = ("a", "b", "c", "d")
STEPS = 40
TOPICS: dict[str, dict[str, Any]] = {
    "stored": {"segments": 3},
    "replicated": {"segments": 4, "acks": "replicated", "replicas": 2},
}
ACTIONS = {
    "pause": 30,
    "refuse": 12,
    "refuse_all": 6,
    "refuse_both": 8,
    "answer": 12,
    "hold": 6,
    "release": 6,
    "kill": 2,
}
FINISH_SECONDS = 120.0


class VirtualWorkload(Workload):
    """Its clock is the event loop's."""

    def now(self) -> float:
        """As `Workload.now`."""
        return asyncio.get_running_loop().time()


class Simulation:
    """One run. `early` are the brokers that were failed over before their sessions ended."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = VirtualCluster(seed=seed)
        self.load = VirtualWorkload(
            self.cluster.urls,
            producers=[producer for topic in TOPICS for producer in _producers(topic)],
            consumers=[
                Consumer(f"{topic}-pages", topic, "browse", rewinds=True, pause_seconds=1.0) for topic in TOPICS
            ],
            seed=seed,
            transport=self.cluster.transport,
            finish_seconds=FINISH_SECONDS,
        )
        self.killed: str | None = None
        self.early: set[str] = set()
        self.history: list[str] = []

    async def run(self) -> list[str]:
        """What is wrong in the end."""
        async with self.cluster as cluster:
            await cluster.start(*BROKERS, report_interval=5.0)
            for topic, config in TOPICS.items():
                await cluster.create(topic, **config)
            async with self.load.running():
                actions: dict[str, Callable[[], Awaitable[None]]] = {
                    name: getattr(self, f"_{name}") for name in ACTIONS
                }
                for name in self.chance.choices(list(ACTIONS), list(ACTIONS.values()), k=STEPS):
                    await actions[name]()
                    await cluster.clock.sleep(self.chance.uniform(0.0, 0.2))
                    self._look()
                await self._heal()
                await self.load.each_acknowledged(2, timeout_seconds=FINISH_SECONDS)
                await self.load.read_to_the_end()
        return judge(self.load.history)

    def _note(self, what: str) -> None:
        self.history.append(f"{self.load.now():.6f} {what}")

    def _look(self) -> None:
        for broker in self.cluster.brokers.values():
            self.early |= broker._refusing.gone

    def _some(self) -> str:
        return self.chance.choice(self.cluster.living)

    async def _pause(self) -> None:
        await self.cluster.clock.sleep(self.chance.choice([0.1, 0.5, 1.5, 3.0]))

    async def _refuse(self) -> None:
        name, viewers = self._some(), self.chance.sample(BROKERS, self.chance.randint(1, 3))
        self._note(f"{name} refuses {viewers}")
        self.cluster.refuse(name, *viewers)

    async def _refuse_all(self) -> None:
        name = self._some()
        self._note(f"{name} refuses all and says nothing")
        self.cluster.mute(name)
        self.cluster.refuse(name, *BROKERS)

    async def _refuse_both(self) -> None:
        """An owner, then its follower, refuse everybody but each other, and hold what the store does not have."""
        owner, follower = self.chance.choice(await self.cluster.brokers_of("replicated"))
        if {owner, follower} <= set(self.cluster.living):
            self._note(f"{owner}, then {follower} refuse all others and say nothing")
            for name in (owner, follower):
                self.cluster.stores[name].hold()
                self.cluster.mute(name)
            for name, other in ((owner, follower), (follower, owner)):
                await self.cluster.clock.sleep(self.chance.uniform(0.0, 2.5))
                self.cluster.refuse(name, *(each for each in BROKERS if each != other))

    async def _answer(self) -> None:
        name = self._some()
        self._note(f"{name} answers")
        self.cluster.answer(name)

    async def _hold(self) -> None:
        name = self._some()
        self._note(f"puts of {name} stand still")
        self.cluster.stores[name].hold()

    async def _release(self) -> None:
        name = self.chance.choice(BROKERS)
        self._note(f"puts of {name} go on")
        self.cluster.stores[name].release()

    async def _kill(self) -> None:
        if self.killed is None:
            self.killed = self._some()
            self._note(f"{self.killed} is killed")
            self.cluster.kill(self.killed)

    async def _heal(self) -> None:
        for name in BROKERS:
            self.cluster.answer(name)
            self.cluster.stores[name].release()
        if self.killed is not None:
            await self.cluster.clock.sleep(self.chance.uniform(0, SESSION_SECONDS))
            self.cluster.expire(self.killed)
        await self.cluster.settled(*TOPICS)


def _producers(topic: str) -> list[Producer]:
    return [
        Producer(f"{topic}-raw", topic, "raw", identified=True, pause_seconds=0.3, repeat_every=5),
        Producer(f"{topic}-json", topic, "json", keys=7, pause_seconds=0.3),
    ]


def simulated(seed: int) -> tuple[Simulation, list[str]]:
    simulation = Simulation(seed)
    return simulation, run_in_virtual_time(simulation.run())


@pytest.mark.parametrize("seed", SEEDS)
def test_any_schedule(seed: int) -> None:
    simulation, complaints = simulated(seed)
    assert complaints == [], simulation.history
    assert simulation.early


def test_it_finds_out_that_the_store_seals_before_the_sessions_have_ended() -> None:
    with mock.patch.object(SegmentSealer, "_is_gone", lambda *_: True):
        _, complaints = simulated(TELLING_SEED)
    assert any(": lost: " in complaint for complaint in complaints)


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (simulated(SHORT_SEED)[0] for _ in range(2))
    assert (first.history, first.load.history.requests) == (second.history, second.load.history.requests)
