import base64
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.kube.cluster.api import Api
from tests.kube.cluster.release import BROKERS, Release
from tests.kube.node.images import BROKER, ZOOKEEPER
from tests.kube.node.s3 import VALUES, run_s3, store_secret
from tests.kube.node.traffic import Traffic

# As much as two processors are for.
SMALL = (
    "resources.requests.cpu=50m",
    "resources.requests.memory=256Mi",
    "resources.limits.memory=512Mi",
    "zookeeper.resources.requests.cpu=20m",
)


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """Of the cluster that `make kube-node` has started."""
    given = os.environ.get("KUBE_TESTS_KUBECONFIG")
    assert given, "run these tests by make kube-node, which starts the node: make kube-node ARGS='-k killed'"
    return Path(given)


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[Api]:
    with Api(kubeconfig) as opened:
        yield opened


@pytest.fixture(scope="session")
def release(api: Api, kubeconfig: Path) -> Release:
    """The chart with its default values, on an S3 server in a pod."""
    run_s3(api)
    made = Release(api, kubeconfig, "messages")
    store_secret(api, made.namespace)
    made.install(*given(BROKER))
    return made


@pytest.fixture(scope="session")
def client_variables(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """How a program reaches the brokers: by the service, its CA, and the token of the administrator."""
    folder = tmp_path_factory.mktemp("client")
    secrets = release.secrets()
    for name, data in (
        ("token", secrets[f"{BROKERS}-admin"]["token"]),
        ("ca.crt", secrets[f"{BROKERS}-tls"]["ca.crt"]),
    ):
        (folder / name).write_bytes(base64.b64decode(data))
    return {
        "BRAIDMQ_URL": f"https://{BROKERS}.{release.namespace}.svc:8080",
        "BRAIDMQ_CA": str(folder / "ca.crt"),
        "BRAIDMQ_TOKEN_FILE": str(folder / "token"),
    }


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
