import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster.api import Api


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """Of the cluster that `make kube` or `make kube-node` has started."""
    given = os.environ.get("KUBE_TESTS_KUBECONFIG")
    assert given, "run these tests by make kube or make kube-node, which start a cluster: make kube ARGS='-k drain'"
    return Path(given)


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[Api]:
    with Api(kubeconfig) as opened:
        yield opened
