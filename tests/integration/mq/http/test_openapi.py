"""The OpenAPI document against a running broker: nothing that fits it, or just does not, makes a 5xx."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from filer.stores.memory_store import MemoryStore
from tests.support.broker.http_broker import http_broker
from tests.support.thoroughness import few_or_many

# Half a minute of processor time, of which busy machines give little.
pytestmark = pytest.mark.timeout(400)

EXAMPLES = few_or_many(3, 8)
START_SECONDS = 30
REQUEST_SECONDS = 10


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A broker on a loop of its own thread, since schemathesis waits for each answer."""
    addresses: list[str] = []
    started, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with http_broker(MemoryStore()) as broker:
            await broker.client.put("/v1/topics/t", json={"segments": 2})
            await broker.client.post("/v1/topics/t/messages", json={"messages": [{"value": n} for n in range(5)]})
            addresses.append(broker.url)
            started.set()
            while not stop.is_set():
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(START_SECONDS)
    yield addresses[0]
    stop.set()
    thread.join(START_SECONDS)


def test_no_request_makes_a_server_error(url: str) -> None:
    """Not by schemathesis' own pytest plugin, which does not fit every pytest; its cases and checks are the same."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if not operation.path.endswith("/subscribe"):
            for mode in GenerationMode:
                # An operation before may have deleted it.
                httpx.put(f"{url}/v1/topics/t").raise_for_status()
                _try(operation, mode, url)
                tried += 1
    assert tried >= 2 * 20


def _try(operation: "APIOperation[Any, Any, Any]", mode: GenerationMode, url: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: schemathesis.Case) -> None:
        if "wait" in case.query:
            del case.query["wait"]
        if "topic" in case.path_parameters:
            case.path_parameters["topic"] = "t"
        _check(case, case.call(base_url=url, timeout=REQUEST_SECONDS))

    # A negative case needs something that can be wrong.
    with contextlib.suppress(Unsatisfiable):
        one()


def _check(case: schemathesis.Case, response: Response) -> None:
    case.validate_response(response, checks=[not_a_server_error, content_type_conformance, response_schema_conformance])
    if response.status_code >= 400:
        assert response.headers["content-type"] == ["application/problem+json"]
        assert response.json()["detail"]


def test_every_endpoint_is_documented(url: str) -> None:
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    topic = "/v1/topics/{topic}"
    assert {path: sorted(methods) for path, methods in paths.items()} == {
        "/v1/topics": ["get"],
        "/v1/topic-groups": ["get"],
        "/v1/topic-groups/{group}": ["delete", "get", "put"],
        topic: ["delete", "get", "put"],
        f"{topic}/route": ["get"],
        f"{topic}/verification": ["get"],
        f"{topic}/messages": ["get", "post"],
        f"{topic}/messages/{{message_id}}": ["get"],
        f"{topic}/messages/{{message_id}}/payload": ["get"],
        f"{topic}/positions": ["get"],
        f"{topic}/segments/{{segment}}/messages": ["get"],
        f"{topic}/segments/{{segment}}/files": ["get"],
        f"{topic}/segments/{{segment}}/split": ["post"],
        f"{topic}/segments/{{segment}}/merge": ["post"],
        f"{topic}/history": ["get"],
        f"{topic}/socket": ["get"],
        f"{topic}/subscribe": ["get"],
        f"{topic}/files": ["get"],
        f"{topic}/upkeep": ["post"],
        f"{topic}/uploads": ["post"],
        f"{topic}/uploads/{{upload}}": ["put"],
        f"{topic}/loads": ["post"],
        f"{topic}/loads/{{load}}": ["delete", "get", "post"],
        f"{topic}/loads/{{load}}/urls": ["post"],
        f"{topic}/loads/{{load}}/files/{{segment}}/{{base_offset}}": ["put"],
        f"{topic}/groups": ["get"],
        f"{topic}/groups/{{group}}": ["delete", "get", "put"],
        f"{topic}/groups/{{group}}/reset": ["post"],
        f"{topic}/groups/{{group}}/redrive": ["post"],
        f"{topic}/groups/{{group}}/messages": ["get"],
        f"{topic}/groups/{{group}}/claims": ["post"],
        f"{topic}/groups/{{group}}/acks": ["post"],
        f"{topic}/groups/{{group}}/releases": ["post"],
        f"{topic}/groups/{{group}}/extensions": ["post"],
        f"{topic}/groups/{{group}}/members": ["post"],
        f"{topic}/groups/{{group}}/members/{{member_id}}": ["delete"],
        f"{topic}/groups/{{group}}/members/{{member_id}}/heartbeats": ["post"],
        f"{topic}/groups/{{group}}/commits": ["post"],
        "/v1/cluster/verification": ["get"],
        "/v1/cluster": ["get"],
        "/v1/cluster/brokers/{name}/drain": ["delete", "post"],
        "/livez": ["get"],
        "/healthz": ["get"],
        "/readyz": ["get"],
        "/metrics": ["get"],
    }
