"""The access log of a broker: a line for each request, when it has been answered, and none unless it is asked for."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from filer.event_log import Event
from filer.stores.memory_store import MemoryStore
from mq.http.app import create_asgi
from mq.http.middleware.request_ids import RequestIds
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.cluster.http_cluster import until

TOPIC = "/v1/topics/t"
SECRET = "MY-SECRET"
TAIL = "/internal/v1/topics/t/segments/0/tail"


@pytest.fixture
async def broker(caplog: pytest.LogCaptureFixture) -> AsyncIterator[HttpBroker]:
    caplog.set_level(logging.INFO)
    async with http_broker(MemoryStore(), access_log="on") as running:
        (await running.client.put(TOPIC)).raise_for_status()
        caplog.clear()
        yield running


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [each.msg for each in caplog.records if isinstance(each.msg, Event)]
    return [dict(each.fields) for each in found if each.name == "request_answered"]


REQUESTS = [
    pytest.param("POST", f"{TOPIC}/messages?key={SECRET}", b"value", f"{TOPIC}/messages", 200, id="publish"),
    pytest.param("POST", f"{TOPIC}/messages?nonsense={SECRET}", b"value", f"{TOPIC}/messages", 422, id="refused"),
    pytest.param("GET", f"{TOPIC}/messages?from=earliest", b"", f"{TOPIC}/messages", 200, id="read"),
    pytest.param("GET", f"{TOPIC}/segments/0/messages", b"", f"{TOPIC}/segments/0/messages", 200, id="segment"),
    pytest.param("PUT", f"{TOPIC}/uploads/{SECRET}", b"value", f"{TOPIC}/uploads/*", 422, id="upload"),
    pytest.param("GET", f"/{SECRET}", b"", "/*", 404, id="nowhere"),
    pytest.param("GET", f"{TAIL}?{SECRET}", b"", TAIL, 403, id="internal"),
    pytest.param("GET", "/livez", b"", "/livez", 200, id="probe"),
    pytest.param("GET", "/metrics", b"", "/metrics", 200, id="metrics"),
    pytest.param("GET", "/docs", b"", "/docs", 200, id="page"),
]


@pytest.mark.parametrize(("method", "url", "body", "path", "status"), REQUESTS)
async def test_each_request_has_a_line_without_secrets(
    broker: HttpBroker, caplog: pytest.LogCaptureFixture, method: str, url: str, body: bytes, path: str, status: int
) -> None:
    answer = await broker.client.request(method, url, content=body)
    assert answer.status_code == status
    (line,) = lines(caplog)
    assert SECRET not in str(line)
    assert line.pop("duration_seconds") >= 0
    read_bytes = line.pop("received_bytes")
    assert read_bytes == len(body) or (status >= 400 and read_bytes == 0)
    assert line == {
        "method": method,
        "path": path,
        "status": status,
        "is_whole": True,
        "sent_bytes": len(answer.content),
        "client": "127.0.0.1",
    } | ({"topic": "t"} if "/topics/t" in path else {})


async def test_a_stream_has_one_when_it_ends(broker: HttpBroker, caplog: pytest.LogCaptureFixture) -> None:
    (await broker.client.post(f"{TOPIC}/messages", content=b"value")).raise_for_status()
    caplog.clear()
    async with broker.client.stream("GET", f"{TOPIC}/subscribe?from=earliest") as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                break
        assert lines(caplog) == []

    async def told() -> bool:
        return bool(lines(caplog))

    await until(told)
    (line,) = lines(caplog)
    assert (line["path"], line["status"], line["is_whole"]) == (f"{TOPIC}/subscribe", 200, False)
    assert line["sent_bytes"] > 0


async def test_without_it_nothing_is_wrapped_around_the_app(memory_broker: HttpBroker) -> None:
    """It costs nothing where it is off: the app is what it would be if there were none."""
    app = create_asgi(memory_broker.broker)
    assert isinstance(app, RequestIds) and type(app._app).__name__ == "Dispatcher"
