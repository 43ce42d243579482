"""Leaders that are killed at each named step of a transition, as processes: the next one finishes it.

Three brokers that kill themselves when they pass a chosen step and keep every version of topic.json that they write, a
real ZooKeeper, and a load whose verdict comes at the end. The cluster is the same all the time: who has died is started
anew for the next step. `tests/unit/leader/test_killed_leaders.py` stops a leader at every call of its store.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from filer.topic.topic_state import Transition
from tests.cluster.checker.workload import Workload
from tests.cluster.faults.mixed_workload import demand_clean, light_load
from tests.support.broker.deadly_broker import LATE_STEP, TAKE_OVER_STEPS
from tests.support.cluster.deadly_cluster import DeadlyCluster, Death
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(300)

SESSION_TIMEOUT_SECONDS = 2.0
RECOVER_SECONDS = 60.0
POLL_SECONDS = 0.1
STORED, REPLICATED = "stored", "replicated"
SETTINGS = {
    STORED: {"segments": 3},
    REPLICATED: {"segments": 2, "acks": "replicated", "replicas": 3},
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DeadlyCluster]:
    store = SharedDirectory(tmp_path / "store")
    with DeadlyCluster(tmp_path, store, session_timeout_seconds=SESSION_TIMEOUT_SECONDS, arguments=()) as cluster:
        yield cluster


@dataclass
class Stage:
    """The cluster and the load on it."""

    cluster: DeadlyCluster
    load: Workload

    async def another_owner(self) -> str:
        """A broker that owns a segment of the stored topic and does not lead, as soon as there is one."""
        async with asyncio.timeout(RECOVER_SECONDS):
            while True:
                others = set(await self.cluster.owners(STORED)) - {await self.cluster.leader()}
                if others:
                    return min(others)
                await asyncio.sleep(POLL_SECONDS)

    def under_way(self) -> dict[str, Transition]:
        """The transitions that stand in topics' records."""
        states = {topic: self.cluster.store.topic_state(topic) for topic in SETTINGS}
        return {topic: state.transition for topic, state in states.items() if state.transition is not None}


async def dies_while_a_broker_drains(stage: Stage, step: str) -> Death:
    """The transitions are those that take a draining broker's segments off it, which only a leader begins."""
    cluster = stage.cluster
    drained = await stage.another_owner()
    cluster.kill_at(step, *(name for name in cluster.brokers if name != drained))
    async with asyncio.TaskGroup() as group:
        draining = group.create_task(cluster.drain(drained))
        death = await cluster.death()
        await check_left_behind(stage, step)
        await cluster.start(death.broker)
    assert draining.result() == 0, cluster.brokers[drained].process.log[-2000:]
    await cluster.start(drained)
    return death


async def dies_sealing_for_a_dead_owner(stage: Stage, step: str) -> Death:
    """Segments of the stored topic have no followers: nobody but a leader seals them in their owner's stead."""
    cluster = stage.cluster
    await cluster.wait_until_replicated(REPLICATED)
    owner = await stage.another_owner()
    cluster.kill_at(step, *(name for name in cluster.brokers if name != owner), topic=STORED)
    await cluster.kill(owner)
    return await both_come_back(stage, step, owner)


async def dies_taking_over(stage: Stage, step: str) -> Death:
    """A follower. The owner has died before it could store what it had acknowledged: only followers hold that.

    A segment that has just been opened, for a broker that came back say, is stored at once instead.
    """
    cluster = stage.cluster
    await cluster.wait_until_replicated(REPLICATED)
    await stage.load.each_acknowledged(5)
    cluster.kill_at(LATE_STEP, *cluster.brokers, topic=REPLICATED)
    owner = (await cluster.death()).broker
    cluster.kill_at(step, *(name for name in cluster.brokers if name != owner))
    return await both_come_back(stage, step, owner)


async def both_come_back(stage: Stage, step: str, owner: str) -> Death:
    death = await stage.cluster.death()
    await check_left_behind(stage, step)
    await asyncio.gather(stage.cluster.start(owner), stage.cluster.start(death.broker))
    return death


async def check_left_behind(stage: Stage, step: str) -> None:
    """Between its begin and its end a transition stands in the record; a follower may take over without one."""
    if step not in ("before begin", "finished", *TAKE_OVER_STEPS):
        assert await asyncio.to_thread(stage.under_way), f"no transition was under way at {step!r}"


Cause = Callable[[Stage, str], Awaitable[Death]]
CAUSES: dict[str, Cause] = {
    TAKE_OVER_STEPS[0]: dies_taking_over,
    "before begin": dies_while_a_broker_drains,
    "begun": dies_while_a_broker_drains,
    "before seal put": dies_sealing_for_a_dead_owner,
    "before finish": dies_while_a_broker_drains,
    "finished": dies_while_a_broker_drains,
    "seal put returned": dies_sealing_for_a_dead_owner,
    TAKE_OVER_STEPS[1]: dies_taking_over,
}


async def test_at_each_step_of_a_transition(cluster: DeadlyCluster, tmp_path: Path) -> None:
    for topic, settings in SETTINGS.items():
        await cluster.create_topic(topic, **settings)
    await cluster.wait_until_settled(*SETTINGS)
    load = light_load(cluster, list(SETTINGS), seed=0)
    async with load.running():
        await load.each_acknowledged(5)
        for step, cause in CAUSES.items():
            began = time.monotonic()
            with load.fault(f"killed: {step}"):
                death = await cause(Stage(cluster, load), step)
                assert death.led or step in TAKE_OVER_STEPS, f"{death.broker} did not lead"
                await cluster.wait_until_settled(*SETTINGS)
            await load.each_acknowledged(3, timeout_seconds=RECOVER_SECONDS)
            print(f"{step}: {death}, after {time.monotonic() - began:.1f} s all is well")
        print(await demand_clean(load, cluster, tmp_path))
