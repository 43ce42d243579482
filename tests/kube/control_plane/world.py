"""What there is in the cluster before the tests: nodes in zones, definitions of others' resources, volumes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kube.cluster.api import Api
from tests.support.process.processes import until

ZONES = ("a", "b", "c")
NODES_A_ZONE = 2
VOLUMES = 16
POOL = "tests.braidmq/pool"
"""The label, and the taint, of nodes that a test has for itself."""
_CAPACITY = {"cpu": "32", "memory": "128Gi", "pods": "110"}
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def prepare(kubeconfig: Path, definitions: Sequence[Mapping[str, Any]]) -> None:
    """Make all of it."""
    with Api(kubeconfig) as api:
        for each in definitions:
            _create(api, _DEFINITIONS, each)
        for zone in ZONES:
            for number in range(NODES_A_ZONE):
                add_node(api, f"node-{zone}{number}", zone)
        _add_volumes(api)
        # The example of a production has that priority.
        _create(api, "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
        until(lambda: all(_is_served(api, each) for each in definitions))


def add_node(api: Api, name: str, zone: str, pool: str | None = None) -> None:
    """A node; in a pool if only those may be there who name it."""
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, "kubernetes.io/os": "linux"}
    taints = [] if pool is None else [{"key": POOL, "value": pool, "effect": "NoSchedule"}]
    node = {
        "metadata": {"name": name, "labels": labels | ({} if pool is None else {POOL: pool})},
        "spec": {"taints": taints},
        "status": {"allocatable": _CAPACITY, "capacity": _CAPACITY},
    }
    _create(api, "/api/v1/nodes", node)


def in_pool(pool: str) -> Sequence[str]:
    """The values by which brokers and ZooKeeper are on the nodes of a pool."""
    key = POOL.replace(".", "\\.")
    return [
        given
        for prefix in ("", "zookeeper.")
        for given in (
            f"{prefix}nodeSelector.{key}={pool}",
            f"{prefix}tolerations[0].key={POOL}",
            f"{prefix}tolerations[0].operator=Exists",
        )
    ]


def _add_volumes(api: Api) -> None:
    """For whoever claims one. Nothing is mounted here."""
    storage = {"metadata": {"name": "there", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}
    _create(api, "/apis/storage.k8s.io/v1/storageclasses", storage | {"provisioner": "kubernetes.io/no-provisioner"})
    for number in range(VOLUMES):
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "there",
            "hostPath": {"path": f"/nowhere/{number}"},
        }
        _create(api, "/api/v1/persistentvolumes", {"metadata": {"name": f"volume-{number}"}, "spec": spec})


def _create(api: Api, path: str, resource: Mapping[str, Any]) -> None:
    answer = api.create(path, resource)
    assert answer.is_success, answer.text


def _is_served(api: Api, definition: Mapping[str, Any]) -> bool:
    """Whether its resources can be listed, in all versions."""
    spec = definition["spec"]
    versions = [each["name"] for each in spec["versions"] if each["served"]]
    return all(api.answers(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}") for version in versions)
