from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from ulid import ULID

from filer.clock import SystemClock
from leader.membership.coordinator import BrokerInfo
from leader.membership.zookeeper_coordinator import ZooKeeperCoordinator
from tests.support.cluster.zookeeper_server import SESSION_SECONDS, ZooKeeperServer

Coordinators = Callable[..., ZooKeeperCoordinator]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that the tests share, in clusters of their own. Who stops it has it running again at the end."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def cluster() -> str:
    return f"c-{ULID()}"


@pytest.fixture
async def coordinators(zookeeper: ZooKeeperServer, cluster: str) -> AsyncIterator[Coordinators]:
    """Makes coordinators of one cluster, which leave at the end."""
    made: list[ZooKeeperCoordinator] = []

    def make(*, hosts: str | None = None, session_seconds: float = SESSION_SECONDS) -> ZooKeeperCoordinator:
        clock = SystemClock()
        made.append(
            ZooKeeperCoordinator(hosts or zookeeper.hosts, cluster, clock, session_timeout_seconds=session_seconds)
        )
        return made[-1]

    yield make
    for each in made:
        await each.leave()


def broker(broker_id: str, *, draining: bool = False) -> BrokerInfo:
    return BrokerInfo(broker_id, f"http://{broker_id}:8080", "zone", "1.0", draining)
