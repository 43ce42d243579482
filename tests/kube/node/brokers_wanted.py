"""How many brokers those of a release want: what they tell, gathered as Prometheus and its adapter would."""

import base64
import ssl
import threading
import time
from collections.abc import Iterator, Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.kube.cluster.api import Api

METRIC = "braidmq_brokers_wanted"
SCRAPE_SECONDS = 5.0
_TIMEOUT_SECONDS = 10.0


class BrokersWanted:
    """The greatest value that a broker tells: only the leader's is more than 0 (docs/kubernetes.md, Scale).

    It finds the pods, checks their certificates and shows the token of the administrator as the chart's ServiceMonitor
    has Prometheus do. What they told is good for `SCRAPE_SECONDS`. `seen` has each number that they told, with the
    seconds of `time.monotonic`, where it was another one before.
    """

    def __init__(self, api: Api) -> None:
        self.seen: list[tuple[float, int | None]] = []
        self._api = api
        self._lock = threading.Lock()
        self._value: int | None = None
        self._scraped_seconds = float("-inf")

    def __call__(self, labels: Mapping[str, str]) -> int | None:
        """By the labels `namespace` and `service`; None if no broker tells anything. Any thread may call it."""
        with self._lock:
            now_seconds = time.monotonic()
            if now_seconds - self._scraped_seconds >= SCRAPE_SECONDS:
                self._scraped_seconds = now_seconds
                self._value = max(self._scrape(labels["namespace"], labels["service"]), default=None)
                if not self.seen or self.seen[-1][1] != self._value:
                    self.seen.append((now_seconds, self._value))
            return self._value

    def _scrape(self, namespace: str, service: str) -> Iterator[int]:
        """What each of the service's pods tells that answers."""
        endpoints = list(self._endpoints(namespace, service))
        if not endpoints:
            return
        token = self._secret(namespace, f"{service}-admin", "token").strip()
        context = ssl.create_default_context(cadata=self._secret(namespace, f"{service}-tls", "ca.crt"))
        as_service = {"sni_hostname": f"{service}.{namespace}.svc"}
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(verify=context, headers=headers, timeout=_TIMEOUT_SECONDS, trust_env=False) as http:
            for each in endpoints:
                try:
                    answer = http.get(f"https://{each}/metrics", extensions=as_service)
                except httpx.TransportError:
                    continue
                yield from _values(answer.raise_for_status().text)

    def _endpoints(self, namespace: str, service: str) -> Iterator[str]:
        """Whether they are ready or not."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        for found in self._api.items(path, labelSelector=f"kubernetes.io/service-name={service}"):
            for port in found["ports"] or ():
                for endpoint in found["endpoints"] or ():
                    yield from (f"{address}:{port['port']}" for address in endpoint["addresses"])

    def _secret(self, namespace: str, name: str, key: str) -> str:
        data: Mapping[str, str] = self._api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")["data"]
        return base64.b64decode(data[key]).decode()


def _values(text: str) -> Iterator[int]:
    for family in text_string_to_metric_families(text):
        yield from (int(sample.value) for sample in family.samples if sample.name == METRIC)
