from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.kube.cluster.api import Api
from tests.kube.cluster.release import Release
from tests.kube.node.images import BROKER, ZOOKEEPER
from tests.kube.node.s3 import VALUES, run_s3, store_secret
from tests.kube.node.traffic import Traffic, client_variables

# As much as two processors are for.
SMALL = (
    "resources.requests.cpu=50m",
    "resources.requests.memory=256Mi",
    "resources.limits.memory=512Mi",
    "zookeeper.resources.requests.cpu=20m",
)


@pytest.fixture(scope="session")
def store(api: Api) -> None:
    """An S3 server in a pod."""
    run_s3(api)


@pytest.fixture(scope="session")
def release(api: Api, kubeconfig: Path, store: None) -> Release:
    """The chart with its default values, on the S3 server."""
    made = Release(api, kubeconfig, "messages")
    store_secret(api, made.namespace)
    made.install(*given(BROKER))
    return made


@pytest.fixture(scope="session", name="client_variables")
def variables_of_release(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """How a program reaches the brokers: by the service, its CA, and the token of the administrator."""
    return client_variables(release, tmp_path_factory.mktemp("client"))


@pytest.fixture
def traffic(client_variables: Mapping[str, str], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Traffic]:
    """A publisher that goes on through the test, and sees no error. What it was acknowledged is there at the end."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    with Traffic(client_variables, f"t-{name}"[:60].strip("-"), tmp_path) as running:
        yield running
        running.check()


def given(image: str) -> tuple[str, ...]:
    """The values of the release, with that image of the brokers."""
    images = {"image": image, "zookeeper.image": ZOOKEEPER}
    named = [
        f"{prefix}.{part}={text}"
        for prefix, name in images.items()
        for part, text in zip(("repository", "tag"), name.rsplit(":", 1), strict=True)
    ]
    return (*named, *VALUES, *SMALL)
