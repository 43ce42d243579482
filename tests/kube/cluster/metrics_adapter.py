"""Gives HorizontalPodAutoscalers an external metric, as prometheus-adapter does."""

import json
import re
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kube.cluster.api import Api
from tests.support.net.authority import Authority
from tests.support.net.threaded_server import ThreadedServer

GROUP = "external.metrics.k8s.io"
_NAMESPACE, _SERVICE = "default", "metrics-adapter"
_BASE = f"/apis/{GROUP}/v1beta1"
_REGISTERED, _API = "/apis/apiregistration.k8s.io/v1/apiservices", f"v1beta1.{GROUP}"


class MetricsAdapter(ThreadedServer):
    """Asks `value_of` for the value, and remembers in `asked` the selectors with which each namespace was asked.

    `value_of` is given the labels of the selector, and may be called by several threads at once. None is no value.
    """

    def __init__(self, authority: Authority, value_of: Callable[[Mapping[str, str]], int | None]) -> None:
        self.asked: dict[str, set[str]] = {}
        self._authority, self._value_of = authority, value_of
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.sign("metrics-adapter", f"{_SERVICE}.{_NAMESPACE}.svc"))
        super().__init__(self._handler(), context)

    def register(self, api: Api) -> None:
        """Have the API server ask it for external metrics."""
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": _SERVICE},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self.port}]},
        }
        api.apply(f"/api/v1/namespaces/{_NAMESPACE}/services/{_SERVICE}", service)
        spec = {
            "group": GROUP,
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": b64encode(self._authority.ca.read_bytes()).decode(),
            "service": {"name": _SERVICE, "namespace": _NAMESPACE, "port": self.port},
        }
        registered = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": _API},
            "spec": spec,
        }
        api.apply(f"{_REGISTERED}/{_API}", registered)

    @staticmethod
    def unregister(api: Api) -> None:
        """Have it ask nobody: whoever looks what the API server has would wait for an adapter that is gone."""
        api.delete(f"{_REGISTERED}/{_API}")

    def answer(self, target: str) -> dict[str, Any] | None:
        """To `/apis/external.metrics.k8s.io/v1beta1`, or below it to `/namespaces/NAMESPACE/METRIC?labelSelector=…`.

        None for other paths. Without a value the list is empty, as where Prometheus has no such metric.
        """
        asked = urlsplit(target)
        if asked.path.rstrip("/") == _BASE:
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/v1beta1", "resources": []}
        found = re.fullmatch(rf"{_BASE}/namespaces/([^/]+)/([^/]+)", asked.path)
        if found is None:
            return None
        namespace, metric = found.groups()
        (selector,) = parse_qs(asked.query)["labelSelector"]
        self.asked.setdefault(namespace, set()).add(f"{metric}{{{selector}}}")
        labels = dict(each.split("=") for each in selector.split(","))
        value = self._value_of(labels)
        item = {"metricName": metric, "metricLabels": labels, "timestamp": "2026-01-01T00:00:00Z", "value": str(value)}
        items = [] if value is None else [item]
        return {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/v1beta1", "metadata": {}, "items": items}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer_to = self.answer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                answer = answer_to(self.path)
                body = json.dumps(answer).encode()
                self.send_response(404 if answer is None else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
