"""A tiny collector in this process: it takes traces by OTLP over HTTP, and keeps their spans."""

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.net.threaded_server import ThreadedServer


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it arrived. `broker` is its resource's `service.instance.id`."""

    service: str
    broker: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]


class OtlpReceiver(ThreadedServer):
    """Listens while its context lasts. `url` is for `OTEL_EXPORTER_OTLP_ENDPOINT`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[ReceivedSpan] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
                receiver._take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                pass

        super().__init__(Handler)
        self.url = f"http://127.0.0.1:{self.port}"

    def spans(self) -> list[ReceivedSpan]:
        """All that arrived so far."""
        with self._lock:
            return list(self._spans)

    def _take(self, request: Any) -> None:
        with self._lock:
            for of_resource in request.resource_spans:
                resource = _attributes(of_resource.resource.attributes)
                for scope in of_resource.scope_spans:
                    self._spans += [_received(span, resource) for span in scope.spans]


def _received(span: Any, resource: dict[str, Any]) -> ReceivedSpan:
    ids = [each.hex() for each in (span.trace_id, span.span_id, span.parent_span_id)]
    return ReceivedSpan(
        resource["service.name"], resource["service.instance.id"], span.name, *ids, _attributes(span.attributes)
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
