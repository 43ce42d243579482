"""Values that change between one release and the next."""

import pytest

from tests.kube.cluster.release import ZOOKEEPER, Release
from tests.support.kube.chart import CASES

pytestmark = pytest.mark.timeout(300)
AT_ONCE = "patches.deployment.spec.minReadySeconds=0"
PERSISTENT = "zookeeper.persistence.enabled=true"
REFUSED = {
    "replica=2": "additional properties 'replica' not allowed",
    "patches.deployment.spec.replcas=2": "replcas",
    "patches.service.spec.type=Port": "Unsupported value",
}
CASE = {each.stem.removesuffix("-values"): each for each in CASES}


def test_one_example_becomes_another(release: Release) -> None:
    """Whatever Kubernetes would not change in place does not change."""
    order = ["minimal", "defaults", "external-zookeeper", "keda", "tls-oidc", "defaults", "minimal"]
    release.install(AT_ONCE, values=CASE[order[0]])
    for each in order[1:]:
        release.upgrade(AT_ONCE, values=CASE[each])
    assert release.status() == f"{len(order)} deployed"
    release.until_ready(1)


def test_volumes_of_zookeeper_come_with_a_new_stateful_set(release: Release) -> None:
    """Kubernetes does not change the claims of a StatefulSet: the chart says so, and how it is done."""
    release.install(AT_ONCE)
    members = release.pods("zookeeper")
    refused = release.try_upgrade(AT_ONCE, PERSISTENT)
    command = f"kubectl --namespace {release.namespace} delete statefulset {ZOOKEEPER}"
    assert refused.returncode == 1 and command in refused.stderr, refused.stderr
    assert release.pods("zookeeper").keys() == members.keys()

    assert release.kubectl(*command.split()[3:]).returncode == 0
    release.upgrade(AT_ONCE, PERSISTENT)
    release.until_ready(3, "zookeeper")
    assert not release.pods("zookeeper").keys() & members.keys()
    claims = release.api.items(release.path("v1", "persistentvolumeclaims"))
    assert [each["status"]["phase"] for each in claims] == ["Bound"] * 3
    release.upgrade(AT_ONCE, PERSISTENT, "service.annotations.told=so")


def test_a_bad_value_changes_nothing(release: Release) -> None:
    """Whoever refuses it: the chart's schema, or the API server after some of the resources."""
    release.install(AT_ONCE)
    before, manifest = _state(release), release.manifest()
    for given, words in REFUSED.items():
        done = release.try_upgrade(AT_ONCE, given, options=("--rollback-on-failure", "--timeout", "20s"))
        assert done.returncode == 1 and words in done.stderr, done.stderr
        assert (_state(release), release.manifest()) == (before, manifest), given
    release.upgrade(AT_ONCE)
    assert _state(release) == before


def test_an_image_that_is_not_there_leaves_what_runs_alone(release: Release) -> None:
    release.install(AT_ONCE)
    before, manifest = _state(release), release.manifest()
    image = ("image.repository=registry.example.org/nothing", "image.tag=here")
    failing = ("--rollback-on-failure", "--wait", "--timeout", "8s")
    done = release.try_upgrade(AT_ONCE, *image, options=failing)
    assert done.returncode == 1, done.stdout
    assert (_state(release), release.manifest()) == (before, manifest)
    assert release.status() == "3 deployed", "2 has failed, and 3 is 1 again"


def test_a_patch_that_is_no_setting_rolls_what_it_changes_alone(release: Release) -> None:
    release.install(AT_ONCE)
    brokers, members = release.pods(), release.pods("zookeeper")
    release.upgrade(AT_ONCE, "zookeeper.heapMebibytes=160")
    release.until_ready(3, "zookeeper")
    assert release.pods().keys() == brokers.keys() and not release.pods("zookeeper").keys() & members.keys()


def _state(release: Release) -> tuple[set[str], str]:
    """The pods that are ready, and the ReplicaSet that has replicas."""
    sets = release.api.items(release.path("apps/v1", "replicasets"))
    (running,) = (each["metadata"]["name"] for each in sets if each["spec"]["replicas"])
    return set(release.ready()), running
