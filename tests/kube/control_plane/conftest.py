import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster.api import Api
from tests.kube.cluster.release import Release

_numbers = itertools.count()


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """Of the control plane that `make kube` has started."""
    given = os.environ.get("KUBE_TESTS_KUBECONFIG")
    assert given, "run these tests by make kube, which starts the control plane: make kube ARGS='-k drain'"
    return Path(given)


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[Api]:
    with Api(kubeconfig) as opened:
        yield opened


@pytest.fixture
def release(api: Api, kubeconfig: Path) -> Iterator[Release]:
    """Nothing is installed yet."""
    made = Release(api, kubeconfig, f"{os.environ.get('PYTEST_XDIST_WORKER', 'here')}-{next(_numbers)}")
    yield made
    made.delete_namespace()
