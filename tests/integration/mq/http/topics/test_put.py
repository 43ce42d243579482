"""`PUT /v1/topics/{topic}` is served before the framework sees it, and answers what the framework would."""

import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from filer.stores.memory_store import MemoryStore
from mq.http.app import create_app, create_asgi
from tests.support.broker.from_user import from_user
from tests.support.broker.http_broker import HttpBroker, http_broker

NEW = {"if-none-match": "*"}


@pytest.fixture
async def running() -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore()) as made:
        yield made


async def answers(running: HttpBroker, path: str, *, is_framed: bool) -> list[tuple[int, Any]]:
    """The answers of the broker, or of the framework alone, to the same requests in turn."""
    app = create_app(running.broker) if is_framed else from_user(create_asgi(running.broker), os.geteuid())
    found = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        for content, headers in REQUESTS:
            answer = await client.put(path, content=content, headers=headers)
            document = answer.json()
            for segment in document.get("segments", []):
                segment.pop("brokers")
            document.pop("request_id", None)
            found.append((answer.status_code, document))
    return found


REQUESTS: list[tuple[bytes, dict[str, str]]] = [
    (b'{"segments": 0}', {}),
    (b"[]", {}),
    (b"{", {}),
    (b'{"segmnts": 2}', {}),
    (b" " * 70_000, {}),
    (b"{}", {"if-none-match": '"x"'}),
    (b'{"segments": 3}', NEW),
    (b"", NEW),
    (b"", {}),
    (b'{"segments": 2, "retention": {"seconds": 60}}', {}),
    (b'{"value_type": "json"}', {}),
]


async def test_both_ways_answer_the_same(running: HttpBroker) -> None:
    served = await answers(running, "/v1/topics/t", is_framed=False)
    await running.broker.administration.delete("t")
    framed = await answers(running, "/v1/topics/t", is_framed=True)
    assert [status for status, _ in served] == [422, 422, 400, 422, 413, 422, 201, 412, 200, 200, 409]
    for (status, by_dispatcher), (status_again, by_framework) in zip(served, framed, strict=True):
        assert status == status_again
        if status >= 400:
            assert by_dispatcher == by_framework
        else:
            # The second topic of that name goes on with the ids of the first.
            assert by_dispatcher.keys() == by_framework.keys()
            assert by_dispatcher["config"] == by_framework["config"]
            assert by_dispatcher["differs"] == by_framework["differs"]
            assert len(by_dispatcher["segments"]) == sum(s["state"] == "open" for s in by_framework["segments"])


@pytest.mark.parametrize("name", ["a/b", "a b", "x" * 201, "a%0A"])
async def test_names_that_no_topic_has(running: HttpBroker, name: str) -> None:
    answer = await running.client.put(f"/v1/topics/{name}", json={})
    assert answer.status_code in (404, 405, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert list(running.broker.topics) == []


async def test_a_parameter_is_refused(running: HttpBroker) -> None:
    answer = await running.client.put("/v1/topics/t?segments=4", json={})
    assert answer.status_code == 422 and "segments" in answer.json()["detail"]
    assert list(running.broker.topics) == []
