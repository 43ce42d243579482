"""What docs/kubernetes.md has people install is taken by a real API server, in a namespace that enforces restricted."""

from pathlib import Path

import pytest

from tests.integration.docs.test_kubernetes import FILES
from tests.kube.cluster.release import Release
from tests.support.kube.chart import NAMESPACE, rendered

pytestmark = pytest.mark.timeout(300)
VALUES = [name for name, text in FILES.items() if "store:" in text]
RESOURCES = [name for name, text in FILES.items() if "\nkind:" in text]
STRICTLY = ("--dry-run=server", "--validate=strict", "--warnings-as-errors", "--filename", "-")


@pytest.mark.parametrize("name", VALUES)
def test_what_values_make_is_taken(name: str, release: Release, tmp_path: Path) -> None:
    values = tmp_path / name
    values.write_text(FILES[name])
    text = rendered(values=values).stdout.replace(f"namespace: {NAMESPACE}\n", f"namespace: {release.namespace}\n")
    done = release.kubectl("create", *STRICTLY, given=text)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.parametrize("name", RESOURCES)
def test_resources_are_taken(name: str, release: Release) -> None:
    done = release.kubectl("create", *STRICTLY, given=FILES[name])
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_the_first_steps_lead_to_a_cluster(release: Release, tmp_path: Path) -> None:
    """But for the size of the volume, of which there are small ones here."""
    values = tmp_path / "try.yaml"
    values.write_text(FILES["try.yaml"])
    claim = FILES["claim.yaml"].replace("storage: 5Gi", "storage: 1Gi")
    done = release.kubectl("apply", "--filename", "-", given=claim)
    assert done.returncode == 0, done.stderr
    release.install("patches.deployment.spec.minReadySeconds=0", values=values)
    release.until_ready(3)
    release.test()
