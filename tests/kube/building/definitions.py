"""The definitions (CRDs) of the resources of other projects that the chart can make, as those projects publish them.

They lie in the projects' Go modules: `definitions/go.mod` has the versions, and `definitions/go.sum` the digests.
"""

import functools
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.kube.building.build import go_environment

HERE = Path(__file__).parent / "definitions"
_OPERATOR = "example/prometheus-operator-crd/monitoring.coreos.com_"
FILES: Mapping[str, tuple[str, str]] = {
    "Certificate": ("github.com/cert-manager/cert-manager", "deploy/crds/crd-certificates.yaml"),
    "HTTPRoute": ("sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"),
    "PrometheusRule": ("github.com/prometheus-operator/prometheus-operator", f"{_OPERATOR}prometheusrules.yaml"),
    "ScaledObject": ("github.com/kedacore/keda/v2", "config/crd/bases/keda.sh_scaledobjects.yaml"),
    "ServiceMonitor": ("github.com/prometheus-operator/prometheus-operator", f"{_OPERATOR}servicemonitors.yaml"),
}
"""The module of each kind, and the file in it."""


def definitions() -> Sequence[Mapping[str, Any]]:
    """All of them. Raises `subprocess.CalledProcessError` if a module cannot be had, or is another one than it was."""
    return [_definition(_folder(module) / file) for module, file in FILES.values()]


def _definition(file: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(file.read_text())
    # Some have labels that are templates of the project's own chart.
    kept = ("controller-gen.kubebuilder.io/version", "api-approved.kubernetes.io")
    annotations = {name: text for name, text in found["metadata"].get("annotations", {}).items() if name in kept}
    return {**found, "metadata": {"name": found["metadata"]["name"], "annotations": annotations}}


@functools.cache
def _folder(module: str) -> Path:
    told = subprocess.run(
        ["go", "mod", "download", "-json", module],
        cwd=HERE,
        env=go_environment(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return Path(json.loads(told)["Dir"])
