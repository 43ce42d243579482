"""Brokers by what the leader says is wanted, through a HorizontalPodAutoscaler."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster.api import Api
from tests.kube.cluster.metrics_adapter import MetricsAdapter
from tests.kube.cluster.release import BROKERS, Release
from tests.support.net.authority import Authority
from tests.support.process.processes import until

# One adapter serves the whole cluster, so one worker has all that use it.
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("scaling")]
AT_ONCE = "patches.deployment.spec.minReadySeconds=0"
SCALED = ("autoscaling.enabled=true", "autoscaling.maxReplicas=5", "autoscaling.scaleDownSeconds=0", AT_ONCE)
PATIENCE_SECONDS = 60.0


@pytest.fixture
def wanted() -> dict[str, int]:
    """How many brokers are wanted in each namespace: where the metric comes from, whoever asks for it."""
    return {}


@pytest.fixture(autouse=True)
def adapter(api: Api, tmp_path: Path, wanted: dict[str, int]) -> Iterator[MetricsAdapter]:
    with MetricsAdapter(Authority(tmp_path), lambda labels: wanted.get(labels["namespace"])) as serving:
        serving.register(api)
        yield serving
        serving.unregister(api)


def test_brokers_follow_what_is_wanted(adapter: MetricsAdapter, wanted: dict[str, int], release: Release) -> None:
    wanted[release.namespace] = 4
    release.install(*SCALED)
    release.until_ready(4)
    assert adapter.asked[release.namespace] == {
        f"braidmq_brokers_wanted{{namespace={release.namespace},service={BROKERS}}}"
    }
    wanted[release.namespace] = 20
    release.until_ready(5)
    wanted[release.namespace] = 1
    release.until_ready(3)


def test_an_upgrade_leaves_the_number_alone(wanted: dict[str, int], release: Release) -> None:
    wanted[release.namespace] = 4
    release.install(*SCALED)
    release.until_ready(4)
    before = _generation(release)
    release.upgrade(*SCALED, "service.annotations.told=so")
    assert _generation(release) == before, "nobody has changed the Deployment, not even for a moment"
    release.upgrade(*SCALED, "config.grace=2h")
    assert _replicas(release) == 4
    release.roll_back(1)
    assert _replicas(release) == 4


def test_brokers_stay_when_something_begins_to_scale_them(wanted: dict[str, int], release: Release) -> None:
    """And afterwards: a field that Helm does not set any more would fall back to 1."""
    wanted[release.namespace] = 4
    release.install("replicas=4", AT_ONCE)
    brokers = release.pods()
    release.upgrade(*SCALED)
    until(lambda: _is_scaled(release), timeout_seconds=PATIENCE_SECONDS)
    release.upgrade(*SCALED, "service.annotations.told=so")
    assert release.pods().keys() == brokers.keys()
    wanted[release.namespace] = 5
    release.until_ready(5)
    release.upgrade(*SCALED, "service.annotations.told=again")
    assert release.pods().keys() > brokers.keys()


def test_who_scales_by_hand_again_has_to_say_so(wanted: dict[str, int], release: Release) -> None:
    """The number belongs to the HorizontalPodAutoscaler by then."""
    wanted[release.namespace] = 5
    release.install("replicas=4", AT_ONCE)
    release.upgrade(*SCALED)
    release.until_ready(5)
    by_hand = ("replicas=3", AT_ONCE)
    refused = release.try_upgrade(*by_hand)
    assert refused.returncode == 1 and ".spec.replicas" in refused.stderr
    assert _replicas(release) == 5
    assert release.try_upgrade(*by_hand, options=("--wait", "--force-conflicts")).returncode == 0
    release.until_ready(3)


def _generation(release: Release) -> int:
    """How often the Deployment was changed."""
    return int(release.api.get(release.path("apps/v1", "deployments", BROKERS))["metadata"]["generation"])


def _replicas(release: Release) -> int:
    return int(release.api.get(release.path("apps/v1", "deployments", BROKERS))["spec"]["replicas"])


def _is_scaled(release: Release) -> bool:
    status = release.api.get(release.path("autoscaling/v2", "horizontalpodautoscalers", BROKERS)).get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    return conditions.get("ScalingActive") == "True"
