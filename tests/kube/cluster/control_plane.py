"""A real control plane: etcd, the API server, the controllers and the scheduler, each a process of this machine."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kube.cluster.api import Api
from tests.kube.cluster.credentials import Credentials
from tests.support.process.process_group import ProcessGroup
from tests.support.process.processes import child_environment, free_port

SERVICES = "10.96.0.0/16"
SCALING_SYNC_SECONDS = 1
_HEADERS = {
    "requestheader-username-headers": "X-Remote-User",
    "requestheader-group-headers": "X-Remote-Group",
    "requestheader-extra-headers-prefix": "X-Remote-Extra-",
}
"""How the API server tells extensions whom they serve."""


class ControlPlane:
    """Entering the context starts it with fresh keys, and nothing in it; leaving it kills all of its processes.

    `program` is `kubeall`. Logs and data are in `folder`.
    """

    def __init__(self, program: Path, folder: Path, *, address: str = "127.0.0.1") -> None:
        self._program, self._folder, self._address = program, folder, address
        self.credentials = Credentials(folder, address)
        self._port = free_port()
        self.url = f"https://{address}:{self._port}"
        self.kubeconfig = self.credentials.kubeconfig(self.credentials.administrator, self.url)
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self._running = starting
            etcd = self._start_etcd()
            api_server = self._start("kube-apiserver", self._of_api_server(etcd))
            with Api(self.kubeconfig) as api:
                api_server.until(api.is_ready)
                self._start_controllers().until(
                    lambda: api.exists("/api/v1/namespaces/default/serviceaccounts/default")
                )
            self._start_scheduler()
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._running.close()

    def start_kwok(self, stages: Path) -> None:
        """Play the kubelets of all nodes, as those stages say."""
        options = {
            "kubeconfig": str(self.kubeconfig),
            "config": str(stages),
            "manage-all-nodes": "true",
            "node-lease-duration-seconds": "40",
            "server-address": f"127.0.0.1:{free_port()}",
        }
        self._start("kwok", options)

    def _start_etcd(self) -> str:
        """Its address. What it holds is of no use to anybody after the end: it need not reach the disk."""
        clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        options = {
            "data-dir": str(self._folder / "etcd"),
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "unsafe-no-fsync": "true",
        }
        self._start("etcd", options)
        return clients

    def _of_api_server(self, etcd: str) -> Mapping[str, str]:
        own = self.credentials
        return _HEADERS | {
            "etcd-servers": etcd,
            "bind-address": self._address,
            "advertise-address": self._address,
            "secure-port": str(self._port),
            "endpoint-reconciler-type": "none" if self._address == "127.0.0.1" else "lease",
            "service-cluster-ip-range": SERVICES,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "client-ca-file": str(own.ca),
            "tls-cert-file": str(own.server.cert),
            "tls-private-key-file": str(own.server.key),
            "kubelet-certificate-authority": str(own.ca),
            "kubelet-client-certificate": str(own.to_kubelets.cert),
            "kubelet-client-key": str(own.to_kubelets.key),
            "kubelet-preferred-address-types": "InternalIP",
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": str(own.service_accounts.cert),
            "service-account-signing-key-file": str(own.service_accounts.key),
            "requestheader-client-ca-file": str(own.ca),
            "requestheader-allowed-names": "front-proxy-client",
            "proxy-client-cert-file": str(own.to_extensions.cert),
            "proxy-client-key-file": str(own.to_extensions.key),
        }

    def _start_controllers(self) -> ProcessGroup:
        own = self.credentials
        options = self._as_client(own.kubeconfig(own.controllers, self.url)) | {
            "service-account-private-key-file": str(own.service_accounts.key),
            "root-ca-file": str(own.ca),
            "cluster-signing-cert-file": str(own.ca),
            "cluster-signing-key-file": str(own.ca_key),
            "use-service-account-credentials": "true",
            "horizontal-pod-autoscaler-sync-period": f"{SCALING_SYNC_SECONDS}s",
        }
        return self._start("kube-controller-manager", options)

    def _start_scheduler(self) -> None:
        own = self.credentials
        self._start("kube-scheduler", self._as_client(own.kubeconfig(own.scheduler, self.url)))

    def _as_client(self, kubeconfig: Path) -> dict[str, str]:
        names = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        serving = {"bind-address": "127.0.0.1", "secure-port": str(free_port()), "leader-elect": "false"}
        return dict.fromkeys(names, str(kubeconfig)) | serving

    def _start(self, name: str, options: Mapping[str, str]) -> ProcessGroup:
        command = [str(self._program), name, *(f"--{option}={value}" for option, value in options.items())]
        running = ProcessGroup(command, env=child_environment(), log=self._folder / f"{name}.log", folder=self._folder)
        return self._running.enter_context(running)
