"""Brokers by what the leader says is wanted, through a HorizontalPodAutoscaler."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster.api import Api
from tests.kube.cluster.release import BROKERS, Release
from tests.kube.control_plane.metrics_adapter import MetricsAdapter
from tests.support.net.authority import Authority
from tests.support.process.processes import until

# One adapter serves the whole cluster, so one worker has all that use it.
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("scaling")]
AT_ONCE = "patches.deployment.spec.minReadySeconds=0"
SCALED = ("autoscaling.enabled=true", "autoscaling.maxReplicas=5", "autoscaling.scaleDownSeconds=0", AT_ONCE)
PATIENCE_SECONDS = 60.0


@pytest.fixture
def adapter(api: Api, tmp_path: Path) -> Iterator[MetricsAdapter]:
    with MetricsAdapter(Authority(tmp_path)) as serving:
        serving.register(api)
        yield serving
        serving.unregister(api)


def test_brokers_follow_what_is_wanted(adapter: MetricsAdapter, release: Release) -> None:
    adapter.values[release.namespace] = 4
    release.install(*SCALED)
    release.until_ready(4)
    assert adapter.asked[release.namespace] == {
        f"braidmq_brokers_wanted{{namespace={release.namespace},service={BROKERS}}}"
    }
    adapter.values[release.namespace] = 20
    release.until_ready(5)
    adapter.values[release.namespace] = 1
    release.until_ready(3)


def test_an_upgrade_leaves_the_number_alone(adapter: MetricsAdapter, release: Release) -> None:
    adapter.values[release.namespace] = 4
    release.install(*SCALED)
    release.until_ready(4)
    before = _generation(release)
    release.upgrade(*SCALED, "service.annotations.told=so")
    assert _generation(release) == before, "nobody has changed the Deployment, not even for a moment"
    release.upgrade(*SCALED, "config.grace=2h")
    assert _replicas(release) == 4
    release.roll_back(1)
    assert _replicas(release) == 4


def test_brokers_stay_when_something_begins_to_scale_them(adapter: MetricsAdapter, release: Release) -> None:
    """And afterwards: a field that Helm does not set any more would fall back to 1."""
    adapter.values[release.namespace] = 4
    release.install("replicas=4", AT_ONCE)
    brokers = release.pods()
    release.upgrade(*SCALED)
    until(lambda: _is_scaled(release), timeout_seconds=PATIENCE_SECONDS)
    release.upgrade(*SCALED, "service.annotations.told=so")
    assert release.pods().keys() == brokers.keys()
    adapter.values[release.namespace] = 5
    release.until_ready(5)
    release.upgrade(*SCALED, "service.annotations.told=again")
    assert release.pods().keys() > brokers.keys()


def test_who_scales_by_hand_again_has_to_say_so(adapter: MetricsAdapter, release: Release) -> None:
    """The number belongs to the HorizontalPodAutoscaler by then."""
    adapter.values[release.namespace] = 5
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
