"""Brokers that come when there is more to do and go when there is less, by what they tell themselves."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidmq import Client
from tests.kube.cluster.api import Api
from tests.kube.cluster.metrics_adapter import MetricsAdapter
from tests.kube.cluster.release import Release
from tests.kube.node.brokers_wanted import BrokersWanted
from tests.kube.node.conftest import given
from tests.kube.node.images import BROKER
from tests.kube.node.s3 import BUCKET, store_secret
from tests.kube.node.traffic import Load, Pace, Traffic, client_variables, connected
from tests.support.net.authority import Authority
from tests.support.process.processes import until

pytestmark = pytest.mark.timeout(900)
FEWEST, MOST = 2, 4
# Long enough for another broker to lead: while nobody does, nobody says how many brokers are wanted.
SCALE_DOWN_SECONDS = 15
SCALED = (
    f"store.url=s3://{BUCKET}/scaled",
    "zookeeper.replicas=1",
    "config.segments_per_broker=1",
    "autoscaling.enabled=true",
    f"autoscaling.minReplicas={FEWEST}",
    f"autoscaling.maxReplicas={MOST}",
    f"autoscaling.scaleDownSeconds={SCALE_DOWN_SECONDS}",
)
# The machine decides how much a busy publisher gets through: it is many times the target. An idle one is far below.
TARGET_MESSAGES = 5
BUSY, IDLE = Pace(messages=50, pause_seconds=0.05), Pace(messages=1, pause_seconds=0.8)
SETTINGS = {
    # Enough for each broker to have some, wherever the brokers' own topics are.
    "max_segments": 2 * MOST,
    "target": {"messages": TARGET_MESSAGES, "bytes": 1e9},
    "scaling": {
        "split": [{"times_target": 1, "for_seconds": 3}],
        "merge": {"times_target": 0.5, "for_seconds": 10},
        "cooldown_seconds": 5,
    },
}
UP_SECONDS, DOWN_SECONDS = 180.0, 300.0


@pytest.fixture
def adapter(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokersWanted]:
    """What Kubernetes is told when it asks for the external metric."""
    wanted = BrokersWanted(api)
    with MetricsAdapter(Authority(tmp_path_factory.mktemp("adapter")), wanted) as serving:
        serving.register(api)
        yield wanted
        serving.unregister(api)


@pytest.fixture
def scaled(api: Api, kubeconfig: Path, store: None, adapter: BrokersWanted) -> Iterator[Release]:
    """Brokers that a HorizontalPodAutoscaler counts, one segment each."""
    made = Release(api, kubeconfig, "scaled")
    store_secret(api, made.namespace)
    made.install(*given(BROKER), *SCALED)
    yield made
    made.delete_namespace()


def test_brokers_come_and_go_with_the_load(scaled: Release, adapter: BrokersWanted, tmp_path: Path) -> None:
    """The topic splits over those that come, and merges before they go. The publisher goes on all the while."""
    variables, load = client_variables(scaled, tmp_path), Load(SETTINGS, keys=101, pace=IDLE)
    until_brokers(scaled, FEWEST, UP_SECONDS)
    with Traffic(variables, "scaled", tmp_path, load) as traffic, connected(variables) as client:
        traffic.until_more(20)
        assert len(scaled.pods()) == FEWEST, "so little needs no more"
        traffic.go_on(BUSY)
        up_seconds = until_brokers(scaled, MOST, UP_SECONDS)
        until(lambda: owners(client, traffic.topic) == MOST, timeout_seconds=UP_SECONDS)
        traffic.until_more(200)
        traffic.go_on(IDLE)
        down_seconds = until_brokers(scaled, FEWEST, DOWN_SECONDS)
        until(lambda: len(client.route(traffic.topic).segments) == 1, timeout_seconds=DOWN_SECONDS)
        traffic.check()
    told = [wanted for _, wanted in adapter.seen if wanted is not None]
    assert max(told) >= MOST and told[-1] <= FEWEST, told
    print(f"{MOST} brokers after {up_seconds:.0f} s of load, {FEWEST} after {down_seconds:.0f} s without; told: {told}")


def until_brokers(release: Release, count: int, timeout_seconds: float) -> float:
    """Until so many pods are there, all of them ready, and none is on its way out; returns after how many seconds."""
    began_seconds = time.monotonic()
    selector = "app.kubernetes.io/component=broker"
    pods = release.path("v1", "pods")
    until(
        lambda: len(release.ready()) == len(release.api.items(pods, labelSelector=selector)) == count,
        timeout_seconds=timeout_seconds,
    )
    return time.monotonic() - began_seconds


def owners(client: Client, topic: str) -> int:
    """How many brokers own open segments."""
    return len({each.owner.broker for each in client.route(topic).segments})
