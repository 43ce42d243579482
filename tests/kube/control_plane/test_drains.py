"""Nodes that are emptied, as an upgrade of Kubernetes itself does with each of them."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.kube.cluster.api import Api
from tests.kube.cluster.release import BROKERS, ZOOKEEPER, Release
from tests.kube.control_plane.world import add_node, in_pool
from tests.support.process.processes import until

pytestmark = pytest.mark.timeout(300)
AT_ONCE = "patches.deployment.spec.minReadySeconds=0"


@pytest.fixture
def nodes(api: Api, release: Release) -> Iterator[list[str]]:
    """Three of the test's own, each in a zone."""
    names = [f"{release.namespace}-{zone}" for zone in "abc"]
    for name in names:
        add_node(api, name, name[-1], pool=release.namespace)
    yield names
    for name in names:
        api.delete(f"/api/v1/nodes/{name}")


@pytest.mark.parametrize(
    ("component", "budget", "more", "count"),
    [("broker", BROKERS, "replicas=6", 6), ("zookeeper", ZOOKEEPER, "zookeeper.replicas=5", 5)],
)
def test_a_drain_takes_one_at_a_time(
    component: str, budget: str, more: str, count: int, nodes: list[str], release: Release
) -> None:
    """Two pods are on the node, and there is no place for others: one goes, the other stays until there is."""
    release.install(AT_ONCE, *in_pool(release.namespace), more)
    counts = _nodes_of(release, component)
    drained = max(nodes, key=counts.count)
    assert counts.count(drained) == 2
    for each in nodes:
        assert release.kubectl("cordon", each).returncode == 0
    blocked = _drain(release, drained, component, "3s")
    assert blocked.returncode == 1
    assert "would violate the pod's disruption budget" in blocked.stderr, blocked.stderr
    assert len(release.ready(component)) == count - 1
    status = release.api.get(release.path("policy/v1", "poddisruptionbudgets", budget))["status"]
    assert (status["disruptionsAllowed"], status["currentHealthy"], status["desiredHealthy"]) == (
        0,
        count - 1,
        count - 1,
    )

    for each in nodes:
        if each != drained:
            assert release.kubectl("uncordon", each).returncode == 0
    done = _drain(release, drained, component, "60s")
    assert done.returncode == 0, done.stderr
    release.until_ready(count, component)
    assert drained not in _nodes_of(release, component)


def test_a_broker_that_is_not_ready_holds_up_no_drain(nodes: list[str], release: Release) -> None:
    """Its eviction takes nothing from anybody, even where the budget is spent."""
    release.install(AT_ONCE, *in_pool(release.namespace))
    uid, broken = next(iter(release.pods().items()))
    until(lambda: "podIP" in release.pods()[uid]["status"])
    unready = {"conditions": [{"type": "Ready", "status": "False"}]}
    release.api.merge(release.path("v1", "pods", f"{broken['metadata']['name']}/status"), {"status": unready})
    until(lambda: len(release.ready()) == 2)
    for each in nodes:
        assert release.kubectl("cordon", each).returncode == 0
    name = broken["metadata"]["name"]
    answer = release.api.create(
        release.path("v1", "pods", f"{name}/eviction"),
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": release.namespace}},
    )
    assert answer.is_success, answer.text


def _drain(release: Release, node: str, component: str, timeout: str) -> "subprocess.CompletedProcess[str]":
    chosen = f"app.kubernetes.io/component={component}"
    return release.kubectl("drain", node, "--delete-emptydir-data", "--pod-selector", chosen, "--timeout", timeout)


def _nodes_of(release: Release, component: str) -> list[str]:
    return [each["spec"].get("nodeName", "") for each in release.pods(component).values()]
