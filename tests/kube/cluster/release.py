"""A release of the chart in a namespace of its own, as `helm` and `kubectl` see it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kube.cluster.api import Api, Resource
from tests.support.kube.chart import CHART, GIVEN, RELEASE, helm
from tests.support.process.processes import until

BROKERS = f"{RELEASE}-braidmq"
ZOOKEEPER = f"{BROKERS}-zookeeper"
_KUBECTL = Path(sys.executable).parent / "kubectl"
_WAIT = ("--wait", "--timeout", "90s")
PATIENCE_SECONDS = 60.0
_SECURITY = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
_RESOURCES = {
    "/api/v1": ("configmaps", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts", "services"),
    "/apis/apps/v1": ("deployments", "replicasets", "statefulsets"),
    "/apis/autoscaling/v2": ("horizontalpodautoscalers",),
    "/apis/batch/v1": ("cronjobs", "jobs"),
    "/apis/cert-manager.io/v1": ("certificates",),
    "/apis/gateway.networking.k8s.io/v1": ("httproutes",),
    "/apis/keda.sh/v1alpha1": ("scaledobjects",),
    "/apis/monitoring.coreos.com/v1": ("prometheusrules", "servicemonitors"),
    "/apis/networking.k8s.io/v1": ("ingresses", "networkpolicies"),
    "/apis/policy/v1": ("poddisruptionbudgets",),
    "/apis/rbac.authorization.k8s.io/v1": ("rolebindings", "roles"),
}
_KUBERNETES_OWN = {("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")}


class Release:
    """The namespace enforces the `restricted` pod security standard, and warns of what does not suit it."""

    def __init__(self, api: Api, kubeconfig: Path, namespace: str) -> None:
        self.api, self.namespace, self._kubeconfig = api, namespace, kubeconfig
        metadata = {"name": namespace, "labels": _SECURITY}
        answer = api.create("/api/v1/namespaces", {"metadata": metadata})
        assert answer.is_success, answer.text
        until(lambda: api.exists(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))

    def install(self, *given: str, values: Path | None = None) -> None:
        """Until everything is ready. Fails the test if Helm or Kubernetes has anything to say against it."""
        self._done(self._helm("install", RELEASE, CHART, *_given(values, given), *_WAIT))

    def claim(self, name: str) -> None:
        """A volume of that name, for values that have it as the place of messages. It stays when the release goes."""
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        answer = self.api.create(self.path("v1", "persistentvolumeclaims"), {"metadata": {"name": name}, "spec": spec})
        assert answer.is_success, answer.text

    def upgrade(self, *given: str, values: Path | None = None) -> None:
        """To these values and no others. Fails the test likewise."""
        self._done(self.try_upgrade(*given, values=values))

    def try_upgrade(
        self, *given: str, values: Path | None = None, options: Sequence[str] = _WAIT
    ) -> "subprocess.CompletedProcess[str]":
        """What Helm says."""
        return self._helm("upgrade", RELEASE, CHART, *_given(values, given), *options)

    def roll_back(self, revision: int) -> None:
        """To the values of that revision."""
        self._done(self._helm("rollback", RELEASE, str(revision), *_WAIT))

    def test(self) -> None:
        """`helm test`."""
        self._done(self._helm("test", RELEASE, "--timeout", "60s"))

    def uninstall(self) -> None:
        """Until it is gone."""
        self._done(self._helm("uninstall", RELEASE, "--cascade", "foreground", *_WAIT))

    def manifest(self) -> str:
        """What is installed."""
        return self._helm("get", "manifest", RELEASE).stdout

    def status(self) -> str:
        """The newest revision and its state, as in `1 deployed`."""
        last = self._helm("history", RELEASE, "--max", "1").stdout.splitlines()[-1].split("\t")
        return f"{last[0].strip()} {last[2].strip()}"

    def kubectl(self, *arguments: str | Path, given: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `kubectl` in the namespace, with `given` as its stdin."""
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
        command = [_KUBECTL, "--namespace", self.namespace, *arguments]
        return subprocess.run(command, env=environment, input=given, capture_output=True, text=True)

    def path(self, group: str, resources: str, name: str = "") -> str:
        """As in path("apps/v1", "deployments", BROKERS); the group of pods and services is v1."""
        base = f"/api/{group}" if group == "v1" else f"/apis/{group}"
        return f"{base}/namespaces/{self.namespace}/{resources}" + (f"/{name}" if name else "")

    def pods(self, component: str = "broker") -> Mapping[str, Resource]:
        """Those that are not on their way out, by their UID."""
        found = self.api.items(self.path("v1", "pods"), labelSelector=f"app.kubernetes.io/component={component}")
        return {each["metadata"]["uid"]: each for each in found if "deletionTimestamp" not in each["metadata"]}

    def ready(self, component: str = "broker") -> Mapping[str, Resource]:
        """Those of them that are ready."""
        return {uid: each for uid, each in self.pods(component).items() if is_ready(each)}

    def until_ready(self, count: int, component: str = "broker") -> None:
        """Until there are as many pods, and all are ready."""
        until(
            lambda: len(self.ready(component)) == len(self.pods(component)) == count, timeout_seconds=PATIENCE_SECONDS
        )

    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """What the secrets have that belong to no program, by name."""
        found = self.api.items(self.path("v1", "secrets"))
        return {each["metadata"]["name"]: each["data"] for each in found if not each["type"].startswith("helm.sh/")}

    def left(self) -> set[tuple[str, str]]:
        """The resources and names of all that is in the namespace, but for what Kubernetes puts into every one."""
        found = {
            (resources, each["metadata"]["name"])
            for base, kinds in _RESOURCES.items()
            for resources in kinds
            for each in self.api.items(f"{base}/namespaces/{self.namespace}/{resources}")
        }
        return found - _KUBERNETES_OWN

    def delete_namespace(self) -> None:
        """And everything in it, which goes in the background."""
        self.api.delete(f"/api/v1/namespaces/{self.namespace}")

    def _helm(self, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        return helm(*arguments, "--namespace", self.namespace, kubeconfig=self._kubeconfig)

    @staticmethod
    def _done(done: "subprocess.CompletedProcess[str]") -> None:
        assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
        # Warnings of the API server are among them. What Helm's client says of watches that it ended is no news.
        assert "warn" not in done.stderr.lower(), done.stderr


def is_ready(pod: Resource) -> bool:
    """Whether its readiness probes succeed."""
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _given(values: Path | None, given: Sequence[str]) -> Sequence[str | Path]:
    # Files of values have a store of their own.
    wanted = given if values else (*GIVEN, *given)
    return [*(("--values", values) if values else ()), *(word for each in wanted for word in ("--set", each))]
