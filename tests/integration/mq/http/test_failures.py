"""An error that nobody foresaw: a problem that reveals nothing, and one line in the log, with its traceback."""

import logging
from collections.abc import AsyncIterator

import httpx
import pytest

from filer import keys
from filer.stores.memory_store import MemoryStore
from mq.topic.topic_registry import TopicRegistry
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem

HEADERS = {"x-request-id": "mine"}


@pytest.fixture(params=["off", "on"])
async def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpBroker]:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    async with http_broker(MemoryStore(), access_log=request.param) as running:
        monkeypatch.setattr(TopicRegistry, "view", fail)
        yield running
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("POST", "/v1/topics/t/messages", id="hot path"),
        pytest.param("GET", "/v1/topics/t/messages", id="FastAPI"),
    ],
)
async def test_it_is_logged_once(broker: HttpBroker, caplog: pytest.LogCaptureFixture, method: str, path: str) -> None:
    caplog.set_level(logging.WARNING)
    problem = check_problem(await broker.client.request(method, path, headers=HEADERS), 500, "internal")
    assert "secret" not in str(problem) and problem["request_id"] == "mine"
    (record,) = caplog.records
    assert record.getMessage() == (f'request_failed method={method} path={path} error="ZeroDivisionError: a secret"')
    assert record.exc_info is not None and isinstance(record.exc_info[1], ZeroDivisionError)


async def test_in_the_middle_of_an_answer_too(
    memory_broker: HttpBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    (await memory_broker.client.put("/v1/topics/t")).raise_for_status()
    value = b"x" * 3_000_000
    (await memory_broker.client.post("/v1/topics/t/messages", content=value)).raise_for_status()
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr("mq.http.reply.send_drained", fail)
    with pytest.raises(httpx.RemoteProtocolError):
        await memory_broker.client.get("/v1/topics/t/messages")
    (record,) = caplog.records
    assert record.getMessage() == 'request_failed method=GET path=/v1/topics/t/messages error="ZeroDivisionError: "'


async def test_an_object_that_a_request_cannot_read_is_logged_with_its_topic(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    async with http_broker(store) as broker:
        (await broker.client.put("/v1/topics/birds")).raise_for_status()
        (await broker.client.post("/v1/topics/birds/messages", content=b"x")).raise_for_status()
    await store.delete([keys.topic("birds")])
    async with http_broker(store) as broker:
        answer = await broker.client.get("/v1/topics/birds/messages")
        check_problem(answer, 503, "data-missing")
        (line,) = [each.getMessage() for each in caplog.records if each.name == "mq.http.reply"]
        assert line.startswith("object_unreadable topic=birds key=topics/birds/topic.json condition=missing error=")
