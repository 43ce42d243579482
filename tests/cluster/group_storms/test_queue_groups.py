"""Queue groups while brokers, coordinators among them, are killed, paused and cut off, and segments split and merged.

A few faults for each order here; `python -m tests.cluster.group_storms.storm` goes on for as long as you like.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.group_storms.storm import SESSION_TIMEOUT_SECONDS, Weather, blow, queue_loads
from tests.cluster.group_storms.terms import Terms
from tests.cluster.group_storms.worker_load import WorkerLoad
from tests.support.cluster.steered_cluster import SteeredCluster
from tests.support.store.shared_store import SharedDirectory

pytestmark = [pytest.mark.xdist_group("queue-groups"), pytest.mark.timeout(300)]

KINDS = ("kill-owner", "pause-owner", "split", "merge", "split-and-kill-owner")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteeredCluster]:
    folder = tmp_path_factory.mktemp("groups")
    store = SharedDirectory(folder / "store")
    with SteeredCluster(
        folder, store, brokers=3, peer_lines=True, session_timeout_seconds=SESSION_TIMEOUT_SECONDS
    ) as made:
        yield made


@pytest.mark.parametrize(("order", "seed"), [("none", 7), ("key", 3)])
async def test_faults_under_a_queue_group(cluster: SteeredCluster, order: str, seed: int, rounds: int) -> None:
    load = queue_loads(cluster, f"work-{order}", order=order, seed=seed)
    print(await blow(cluster, load, Weather(seed, seconds=120, most_faults=rounds, kinds=KINDS)))


@pytest.mark.parametrize(
    ("order", "terms"),
    [
        ("none", Terms(lease_seconds=1, max_deliveries=1, max_in_flight=5)),
        ("none", Terms(lease_seconds=600, max_deliveries=2, most=(1, 2), pause_seconds=0.2)),
        ("key", Terms(lease_seconds=600, max_deliveries=1, most=(1, 2), pause_seconds=0.2)),
    ],
    ids=["short", "long", "long-key"],
)
async def test_the_death_of_all_brokers(cluster: SteeredCluster, order: str, terms: Terms, rounds: int) -> None:
    """It makes no dead letters, withholds nothing that was with nobody, and nobody gets more than the limit."""
    load = queue_loads(cluster, f"dead-{order}-{terms.max_deliveries}", order=order, seed=5, terms=terms)
    print(await blow(cluster, load, Weather(5, seconds=120, most_faults=rounds, kinds=("kill-all",))))


async def test_each_keys_handlers_run_in_order_and_never_at_once(cluster: SteeredCluster, tmp_path: Path) -> None:
    load = WorkerLoad(lambda: cluster.urls, "keys", tmp_path, seed=4)
    kinds = ("split-and-kill-owner",)
    print(await blow(cluster, load, Weather(4, seconds=60, most_faults=1, kinds=kinds)))
