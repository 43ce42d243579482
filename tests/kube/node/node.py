"""A node: containerd, a kubelet, kube-proxy, and the cluster's DNS beside them, each a process of this namespace."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kube.cluster.api import Api, Resource
from tests.kube.cluster.control_plane import ControlPlane
from tests.kube.cluster.release import is_ready
from tests.kube.node.images import BROKER, BROKER_AFTER, PAUSE
from tests.kube.node.machine import ADDRESS, DNS_ADDRESS
from tests.support.net.authority import Identity
from tests.support.process.process_group import ProcessGroup
from tests.support.process.processes import child_environment

NAME = "node1"
PODS = "10.244.0.0/24"
CLI = ("ctr", "--address", "/run/containerd.sock", "--namespace", "k8s.io")
"""What speaks to containerd about the pods' containers."""
_CONTAINERD = """
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = [{unused}]
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""
_UNUSED = ("snapshotter.v1.aufs", "snapshotter.v1.btrfs", "snapshotter.v1.devmapper", "snapshotter.v1.zfs")
_NAMES = """
.:53 {{
    errors
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
        ttl 5
    }}
}}
"""


class Node:
    """Entering the context starts it, until it takes pods. `programs` are the files of kubenode and CoreDNS."""

    def __init__(self, control_plane: ControlPlane, programs: Mapping[str, Path], folder: Path) -> None:
        self._control_plane, self._programs, self._folder = control_plane, programs, folder
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self._running = starting
            self._start_containerd()
            with Api(self._control_plane.kubeconfig) as api:
                self._start_kubelet().until(lambda: _is_ready(api))
                self._start_proxy()
                self._start_names(api)
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._running.close()

    def import_images(self, archives: Sequence[Path]) -> None:
        """Have containerd know the images. Raises `subprocess.CalledProcessError` if it does not take one."""
        for each in archives:
            subprocess.run([*CLI, "images", "import", each], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*CLI, "images", "tag", BROKER, BROKER_AFTER], check=True, stdout=subprocess.DEVNULL)

    def _start_containerd(self) -> None:
        (self._folder / "cni").mkdir()
        self._write("cni/10-bridge.conflist", json.dumps(_network(self._folder)))
        unused = ", ".join(f'"io.containerd.{each}"' for each in _UNUSED)
        text = _CONTAINERD.format(folder=self._folder, unused=unused, pause=PAUSE)
        serving = self._start("containerd", ["containerd", "--config", self._write("containerd.toml", text)])
        serving.until(lambda: subprocess.run([*CLI, "version"], capture_output=True).returncode == 0)

    def _start_kubelet(self) -> ProcessGroup:
        own = self._control_plane.credentials
        identity = own.node(NAME, ADDRESS)
        config = self._write("kubelet.json", json.dumps(_kubelet(self._folder, own.ca, identity)))
        kubeconfig = own.kubeconfig(identity, self._control_plane.url)
        options = {
            "config": config,
            "kubeconfig": str(kubeconfig),
            "root-dir": f"{self._folder}/kubelet",
            "hostname-override": NAME,
            "node-ip": ADDRESS,
        }
        return self._start("kubelet", [str(self._programs["kubenode"]), "kubelet", *_options(options)])

    def _start_proxy(self) -> None:
        own = self._control_plane.credentials
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": PODS,
            "clientConnection": {"kubeconfig": str(own.kubeconfig(own.proxy(), self._control_plane.url))},
            "hostnameOverride": NAME,
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
        written = self._write("kube-proxy.json", json.dumps(config))
        self._start("kube-proxy", [str(self._programs["kubenode"]), "kube-proxy", f"--config={written}"])

    def _start_names(self, api: Api) -> None:
        """CoreDNS, and the service by which pods reach it."""
        text = _NAMES.format(kubeconfig=self._control_plane.kubeconfig)
        self._start("coredns", [str(self._programs["coredns"]), "-conf", self._write("Corefile", text)])
        ports = [{"name": name.lower(), "port": 53, "protocol": name} for name in ("UDP", "TCP")]
        metadata = {"name": "kube-dns", "namespace": "kube-system"}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
        api.apply(
            "/api/v1/namespaces/kube-system/services/kube-dns",
            service | {"spec": {"clusterIP": DNS_ADDRESS, "ports": ports}},
        )
        slice_ = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata | {"labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [ADDRESS]}],
        }
        api.apply("/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns", slice_)

    def _write(self, name: str, text: str) -> str:
        written = self._folder / name
        written.write_text(text)
        return str(written)

    def _start(self, name: str, command: Sequence[str]) -> ProcessGroup:
        running = ProcessGroup(command, env=child_environment(), log=self._folder / f"{name}.log", folder=self._folder)
        return self._running.enter_context(running)


def _network(folder: Path) -> Mapping[str, Any]:
    """Pods at a bridge, behind the node's address."""
    ranges = {"type": "host-local", "dataDir": f"{folder}/addresses", "ranges": [[{"subnet": PODS}]]}
    ranges |= {"routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipMasq": True, "hairpinMode": True}
    plugins = [bridge | {"ipam": ranges}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}


def _kubelet(folder: Path, ca: Path, identity: Identity) -> Mapping[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(ca)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(identity.cert),
        "tlsPrivateKeyFile": str(identity.key),
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_ADDRESS],
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": "unix:///run/containerd.sock",
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "podLogsDir": f"{folder}/pod-logs",
        "resolvConf": "",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "maxPods": 40,
        "syncFrequency": "10s",
        # It goes on where the kernel's log cannot be read.
        "featureGates": {"KubeletInUserNamespace": True},
    }


def _options(options: Mapping[str, str]) -> Sequence[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def _is_ready(api: Api) -> bool:
    nodes: Sequence[Resource] = api.items("/api/v1/nodes")
    return any(is_ready(each) for each in nodes)
