"""Keys and certificates of a cluster: whoever is in it has its own."""

import json
from pathlib import Path

from tests.support.net.authority import CLIENT, SERVER, Authority, Identity

SERVICE_ADDRESS = "10.96.0.1"
"""Where pods find the API server: the first address of the services' range."""
_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


class Credentials:
    """Made anew in a folder, for an API server at that address. They are good for a day."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder, self._authority = folder, Authority(folder)
        self.ca = self._authority.ca
        self.ca_key = folder / "ca.key"
        self._authority.write_key(self.ca_key)
        self.server = self._authority.sign(
            "kube-apiserver", "localhost", "127.0.0.1", address, SERVICE_ADDRESS, *_NAMES
        )
        self.to_kubelets = self._client("kube-apiserver-kubelet-client", "system:masters")
        self.to_extensions = self._client("front-proxy-client")
        self.service_accounts = self._authority.sign("service-accounts")
        self.administrator = self._client("admin", "system:masters")
        self.controllers = self._client("system:kube-controller-manager")
        self.scheduler = self._client("system:kube-scheduler")

    def serving(self, name: str, *alternatives: str) -> Identity:
        """For a server that the API server asks."""
        return self._authority.sign(name, *alternatives, purposes=(SERVER,))

    def node(self, name: str, address: str) -> Identity:
        """For the kubelet of a node, which is a client and a server."""
        return self._authority.sign(f"system:node:{name}", name, address, "127.0.0.1", organization="system:nodes")

    def proxy(self) -> Identity:
        """For kube-proxy."""
        return self._client("system:kube-proxy")

    def kubeconfig(self, identity: Identity, url: str) -> Path:
        """A file by which programs reach the API server as that identity."""
        cluster = {"server": url, "certificate-authority": str(self.ca)}
        user = {"client-certificate": str(identity.cert), "client-key": str(identity.key)}
        written = self._folder / f"{identity.cert.stem}.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }
        # YAML has JSON in it.
        written.write_text(json.dumps(config))
        return written

    def _client(self, name: str, organization: str = "tests") -> Identity:
        return self._authority.sign(name, purposes=(CLIENT,), organization=organization)
