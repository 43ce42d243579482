"""Each example of the chart's values, from its installation to its end."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kube.cluster.release import BROKERS, ZOOKEEPER, Release
from tests.support.kube.chart import CASES, NAMESPACE, rendered
from tests.support.process.processes import until

pytestmark = pytest.mark.timeout(300)
by_case = pytest.mark.parametrize("values", CASES, ids=[each.stem.removesuffix("-values") for each in CASES])
# How long a broker has to be ready before the next one is replaced.
AT_ONCE = "patches.deployment.spec.minReadySeconds=0"
# KEDA would make a HorizontalPodAutoscaler of what is there. It is not here itself.
BY_KEDA = "keda-values"
# Its volume is the user's.
BY_CLAIM = "claim-values"
BROKERS_OF = {"minimal-values": 1, BY_KEDA: 1}


@by_case
def test_the_api_server_takes_it_without_a_warning(values: Path, release: Release) -> None:
    """Fields that it does not know are errors, and so are pods that a restricted namespace would not take."""
    text = rendered(values=values).stdout.replace(f"namespace: {NAMESPACE}\n", f"namespace: {release.namespace}\n")
    done = release.kubectl(
        "create", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "--filename", "-", given=text
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@by_case
def test_it_is_installed_changed_rolled_back_and_uninstalled(values: Path, release: Release) -> None:
    if values.stem == BY_CLAIM:
        release.claim("messages")
    release.install(AT_ONCE, values=values)
    release.until_ready(BROKERS_OF.get(values.stem, 3))
    first, members, secrets = _uids(release), _uids(release, "zookeeper"), release.secrets()
    release.test()

    release.upgrade(AT_ONCE, "service.annotations.told=so", "service.port=8443", values=values)
    assert _uids(release) == first, "what is no setting of brokers does not roll them"

    release.upgrade(AT_ONCE, "config.grace=2h", values=values)
    release.until_ready(len(first))
    assert not set(release.pods()) & set(first), "a setting rolls them, all of them"

    release.roll_back(1)
    release.until_ready(len(first))
    assert 'grace = "2h"' not in release.manifest()
    assert _uids(release, "zookeeper") == members, "and ZooKeeper has nothing to do with it"
    assert release.secrets() == secrets, "what was made once is kept"

    release.uninstall()
    of_zookeeper = {f"data-{ZOOKEEPER}-{number}" for number in range(3)}
    kept = {"production-values": of_zookeeper, BY_CLAIM: {"messages"}}.get(values.stem, set())
    assert release.left() == {("persistentvolumeclaims", each) for each in kept}


def test_a_job_runs(release: Release) -> None:
    (production,) = (each for each in CASES if each.stem == "production-values")
    release.install(AT_ONCE, values=production)
    done = release.kubectl("create", "job", "now", f"--from=cronjob/{BROKERS}-compact-orders", "--output", "name")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    until(lambda: release.api.get(release.path("batch/v1", "jobs", "now"))["status"].get("succeeded") == 1)


def test_an_installation_is_spread_over_zones_and_nodes(release: Release) -> None:
    release.install(AT_ONCE, "replicas=6", "zookeeper.replicas=5")
    node_zones = {
        each["metadata"]["name"]: each["metadata"]["labels"]["topology.kubernetes.io/zone"]
        for each in release.api.items("/api/v1/nodes")
    }
    for component, a_zone in (("broker", [2, 2, 2]), ("zookeeper", [1, 2, 2])):
        nodes = [each["spec"]["nodeName"] for each in release.pods(component).values()]
        assert len(set(nodes)) == len(nodes), f"each {component} has a node of its own"
        assert sorted(_counts([node_zones[each] for each in nodes]).values()) == a_zone, component


def _uids(release: Release, component: str = "broker") -> list[str]:
    return sorted(release.pods(component))


def _counts(words: list[str]) -> Mapping[str, int]:
    return {each: words.count(each) for each in words}
