"""The chart as Helm renders it."""

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "helm" / "braidmq"
CASES = sorted((CHART / "ci").glob("*.yaml"))
# `make` puts it there.
HELM = Path(sys.executable).parent / "helm"
RELEASE, NAMESPACE = "queue", "messages"
GIVEN = ("store.url=s3://messages/here",)

Manifest = Mapping[str, Any]


def helm(*arguments: str | Path, kubeconfig: str | Path = os.devnull) -> "subprocess.CompletedProcess[str]":
    """Run Helm with folders of its own, and with no cluster unless one is given."""
    with tempfile.TemporaryDirectory(prefix="braidmq-helm-") as home:
        own = {f"HELM_{name}_HOME": home for name in ("CACHE", "CONFIG", "DATA")}
        environment = {"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": str(kubeconfig), **own}
        return subprocess.run([HELM, *arguments], env=environment, capture_output=True, text=True)


@functools.cache
def rendered(
    *, values: Path | None = None, given: tuple[str, ...] = (), kube_version: str = "1.33.0"
) -> "subprocess.CompletedProcess[str]":
    """`helm template` with a file of values, and `NAME=VALUE` besides."""
    more = [*(("--values", values) if values else ()), *(word for each in given for word in ("--set", each))]
    return helm("template", RELEASE, CHART, "--namespace", NAMESPACE, "--kube-version", kube_version, *more)


def manifests(
    *, values: Path | None = None, given: tuple[str, ...] = (), kube_version: str = "1.33.0"
) -> Sequence[Manifest]:
    """What Helm would give to Kubernetes. Raises `AssertionError` with Helm's words if it refuses."""
    done = rendered(values=values, given=given, kube_version=kube_version)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def on_this_machine(store: Path) -> Mapping[str, Any]:
    """Values by which the store is a folder of this machine, where brokers see it at the same path."""
    return {
        "store": {"url": f"file://{store}"},
        "extraVolumes": [{"name": "store", "hostPath": {"path": str(store)}}],
        "extraVolumeMounts": [{"name": "store", "mountPath": str(store)}],
    }


def one(found: Sequence[Manifest], kind: str, name: str) -> Manifest:
    """The resource of that kind and name."""
    (match,) = (each for each in found if each["kind"] == kind and each["metadata"]["name"] == name)
    return match


def pods(found: Sequence[Manifest]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The specifications of all pods, with the names of what makes them."""
    for each in found:
        name = f"{each['kind']} {each['metadata']['name']}"
        match each["kind"]:
            case "Pod":
                yield name, each["spec"]
            case "Deployment" | "StatefulSet":
                yield name, each["spec"]["template"]["spec"]
            case "CronJob":
                yield name, each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
