import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster.api import Api
from tests.kube.cluster.release import Release

_numbers = itertools.count()


@pytest.fixture
def release(api: Api, kubeconfig: Path) -> Iterator[Release]:
    """Nothing is installed yet."""
    made = Release(api, kubeconfig, f"{os.environ.get('PYTEST_XDIST_WORKER', 'here')}-{next(_numbers)}")
    yield made
    made.delete_namespace()
