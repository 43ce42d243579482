"""What the chart installs, in real containers, and what may happen to these."""

import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from tests.kube.cluster.release import BROKERS, Release
from tests.kube.node.conftest import given
from tests.kube.node.images import BROKER, BROKER_AFTER
from tests.kube.node.node import CLI
from tests.kube.node.traffic import Traffic, connected
from tests.support.process.processes import until

# Brokers start within seconds, and drain for a minute at most: one after the other.
pytestmark = pytest.mark.timeout(600)
READY_SECONDS = 150.0
# Many processes, each smaller than a broker.
FILLING = """
import os, time
for _ in range(5):
    os.fork()
held = os.urandom(24 << 20)
time.sleep(60)
"""


def test_containers_have_no_rights(release: Release) -> None:
    for component, uid in (("broker", 10001), ("zookeeper", 1000)):
        for name in names(release, component):
            status = inside(release, name, "cat /proc/1/status").stdout
            assert f"\nUid:\t{uid}\t" in status and "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status, status
            assert "CapEff:\t0000000000000000" in status, status
            assert "Read-only file system" in inside(release, name, "touch /opt/it").stderr


def test_messages_are_published_claimed_acknowledged_and_read(
    release: Release, client_variables: Mapping[str, str]
) -> None:
    with connected(client_variables) as client:
        client.create_topic("first", segments=2)
        for number in range(20):
            client.publish("first", f"message {number}", key=str(number % 3))
        worked = []
        for delivery in client.worker("first", group="work", idle_seconds=3):
            with delivery:
                worked.append(delivery.value.decode())
        assert sorted(worked) == sorted(f"message {number}" for number in range(20))
        assert client.group("first", "work").describe().lag.messages == 0


def test_helm_test_passes(release: Release) -> None:
    """By a pod of the chart, which publishes, shares the work, and reads the files from the store."""
    release.test()


def test_an_upgrade_under_load_loses_nothing(release: Release, traffic: Traffic) -> None:
    old = set(release.pods())
    release.upgrade(*given(BROKER_AFTER))
    release.until_ready(3)
    assert not old & set(release.pods())
    release.upgrade(*given(BROKER))


def test_a_release_that_never_gets_ready_is_taken_back(release: Release, traffic: Traffic) -> None:
    """Its brokers do not reach their store: the first one is not ready, and the others stay."""
    before = set(release.ready())
    failing = ("--rollback-on-failure", "--wait", "--timeout", "25s")
    bad = (*given(BROKER), "store.endpoint=http://nothing.storage.svc:9000")
    assert release.try_upgrade(*bad, options=failing).returncode == 1
    assert set(release.ready()) == before


def test_a_killed_broker_is_started_again(release: Release, traffic: Traffic) -> None:
    name = names(release)[0]
    signal_container(release, name, "SIGKILL")
    until(lambda: restarts(release, name) == 1, timeout_seconds=READY_SECONDS)
    release.until_ready(3)


def test_an_evicted_broker_drains(release: Release, traffic: Traffic) -> None:
    uid, pod = next(iter(release.pods().items()))
    name = pod["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    answer = release.api.create(release.path("v1", "pods", f"{name}/eviction"), eviction)
    assert answer.is_success, answer.text
    until(lambda: not release.api.exists(release.path("v1", "pods", name)), timeout_seconds=READY_SECONDS)
    release.until_ready(3)
    assert uid not in release.pods()


def test_members_of_zookeeper_are_replaced_one_by_one(release: Release, traffic: Traffic) -> None:
    before = [restarts(release, each) for each in names(release)]
    for uid, pod in release.pods("zookeeper").items():
        release.api.delete(release.path("v1", "pods", pod["metadata"]["name"]))
        until(partial(is_gone, release, uid))
        until(lambda: len(release.ready("zookeeper")) == 3, timeout_seconds=READY_SECONDS)
        traffic.until_more(10)
    assert [restarts(release, each) for each in names(release)] == before


def test_a_broker_that_needs_more_memory_than_it_may_have_is_killed_alone(release: Release, traffic: Traffic) -> None:
    """Its container's memory runs full. The broker is the largest process there, so it goes."""
    name = names(release)[-1]
    before = restarts(release, name)
    release.kubectl("exec", name, "--", "python3", "-c", FILLING)
    until(lambda: restarts(release, name) > before, timeout_seconds=READY_SECONDS)
    (status,) = release.api.get(release.path("v1", "pods", name))["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["reason"] == "OOMKilled"
    release.until_ready(3)


def test_probes_take_a_hung_broker_out_and_start_it_again(release: Release, traffic: Traffic) -> None:
    name = names(release)[0]
    before = restarts(release, name)
    address = release.api.get(release.path("v1", "pods", name))["status"]["podIP"]
    assert address in serving(release)
    signal_container(release, name, "SIGSTOP")
    seconds = until_after(lambda: address not in serving(release))
    assert seconds < 20, "readiness: three probes, every two seconds"
    seconds = until_after(lambda: restarts(release, name) > before)
    assert 30 < seconds < 150, "liveness: six probes, every ten seconds, and the grace of the pod"
    release.until_ready(3)
    until(lambda: address in serving(release))


def names(release: Release, component: str = "broker") -> list[str]:
    return sorted(each["metadata"]["name"] for each in release.pods(component).values())


def inside(release: Release, name: str, command: str) -> "subprocess.CompletedProcess[str]":
    """A command in the only container of a pod."""
    return release.kubectl("exec", name, "--", *command.split())


def is_gone(release: Release, uid: str) -> bool:
    """Whether that pod of ZooKeeper is no more."""
    return uid not in release.pods("zookeeper")


def restarts(release: Release, name: str) -> int:
    """How often the pod's container has been started again."""
    (status,) = release.api.get(release.path("v1", "pods", name))["status"]["containerStatuses"]
    return int(status["restartCount"])


def signal_container(release: Release, name: str, signal: str) -> None:
    """From outside, as the kernel might: the first process of a container cannot kill itself."""
    (status,) = release.api.get(release.path("v1", "pods", name))["status"]["containerStatuses"]
    container = status["containerID"].removeprefix("containerd://")
    subprocess.run([*CLI, "tasks", "kill", "--all", "--signal", signal, container], check=True)


def serving(release: Release) -> set[str]:
    """The addresses that the service leads to."""
    slices = release.api.items(
        release.path("discovery.k8s.io/v1", "endpointslices"), labelSelector=f"kubernetes.io/service-name={BROKERS}"
    )
    ready = (each for found in slices for each in found["endpoints"] or () if each["conditions"]["ready"])
    return {address for each in ready for address in each["addresses"]}


def until_after(condition: Callable[[], bool]) -> float:
    """Wait until it holds, and return after how many seconds."""
    began = time.monotonic()
    until(condition, timeout_seconds=READY_SECONDS)
    return time.monotonic() - began
