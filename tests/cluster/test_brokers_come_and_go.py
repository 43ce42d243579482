"""1 to 6 brokers, added, drained and killed for good at random while a load runs; what they own is spread."""

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.faults.faults import (
    FEWEST_BROKERS,
    MOST_BROKERS,
    add_broker,
    kill_broker_for_good,
    remove_broker,
)
from tests.cluster.faults.mixed_workload import demand_clean, light_load
from tests.cluster.faults.scene import Scene
from tests.support.cluster.cluster import Cluster
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(300)

SESSION_TIMEOUT_SECONDS = 2.0
RECOVER_SECONDS = 60.0
FIRST_BROKERS = 3
LONGEST_STRIDE = 3
BUSY = {
    "stored": {"segments": 4},
    "replicated": {"segments": 3, "acks": "replicated", "replicas": 3},
}
IDLE = {f"idle-{number}": {"segments": 1} for number in range(4)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(
        tmp_path,
        SharedDirectory(tmp_path / "store"),
        brokers=FIRST_BROKERS,
        session_timeout_seconds=SESSION_TIMEOUT_SECONDS,
        arguments=(),
    ) as cluster:
        yield cluster


def walk(chance: random.Random) -> list[int]:
    """How many brokers there are one after the other: from the first few to both ends, and away from there."""
    numbers = [FIRST_BROKERS]
    ends = chance.sample([FEWEST_BROKERS, MOST_BROKERS], 2)
    for target in (*ends, chance.randint(FEWEST_BROKERS + 1, MOST_BROKERS - 1)):
        while (left := target - numbers[-1]) != 0:
            stride = min(abs(left), chance.randint(1, LONGEST_STRIDE))
            numbers.append(numbers[-1] + (stride if left > 0 else -stride))
    return numbers[1:]


async def go_to(number: int, scene: Scene) -> None:
    """Brokers come all at once, and go one after the other."""
    coming = number - len(scene.cluster.brokers)
    await asyncio.gather(*(add_broker(scene) for _ in range(coming)))
    for _ in range(-coming):
        await scene.chance.choice([remove_broker, kill_broker_for_good])(scene)
        await scene.cluster.wait_until_settled(*scene.topics)
    await scene.cluster.wait_until_settled(*scene.topics)


async def check_spread(cluster: Cluster) -> None:
    """It must not take longer than `wait_until_spread` waits."""
    began = time.monotonic()
    await cluster.wait_until_spread()
    print(f"{len(cluster.brokers)} brokers: spread after {time.monotonic() - began:.1f} s")


@pytest.mark.parametrize("seed", [0])
async def test_willy_nilly(cluster: Cluster, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for topic, settings in (BUSY | IDLE).items():
        await cluster.create_topic(topic, **settings)
    load = light_load(cluster, list(BUSY), seed=seed)
    scene = Scene(cluster, load, (*BUSY, *IDLE), chance, away_seconds=SESSION_TIMEOUT_SECONDS)
    numbers = walk(chance)
    async with load.running():
        await load.each_acknowledged(5)
        for number in numbers:
            with load.fault(f"{number} brokers"):
                await go_to(number, scene)
            await load.each_acknowledged(3, timeout_seconds=RECOVER_SECONDS)
            if number in (MOST_BROKERS, numbers[-1]):
                await check_spread(cluster)
        print(await demand_clean(load, cluster, tmp_path))
