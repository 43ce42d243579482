"""`X-Request-Id`: taken or made, echoed in every kind of answer, and named by problems."""

import asyncio
import re

import pytest

from tests.support.broker.http_broker import HttpBroker

HEADER = "x-request-id"
MADE = re.compile(r"[0-9a-f]{16}-[0-9a-f]+")
REQUESTS = [
    pytest.param("POST", "/v1/topics/t/messages", 200, id="publish"),
    pytest.param("GET", "/v1/topics/t/messages", 200, id="read"),
    pytest.param("GET", "/v1/topics", 200, id="FastAPI"),
    pytest.param("GET", "/healthz", 200, id="probe"),
    pytest.param("POST", "/v1/topics/none/messages", 404, id="problem of the hot path"),
    pytest.param("GET", "/v1/topics/none", 404, id="problem of FastAPI"),
    pytest.param("GET", "/nowhere", 404, id="no such path"),
    pytest.param("DELETE", "/v1/topics/t/messages", 405, id="no such method"),
    pytest.param("GET", "/v1/topics/t/messages?limit=x", 422, id="not valid"),
    pytest.param("GET", "/internal/v1/traffic", 403, id="forbidden"),
]


@pytest.fixture
async def broker(memory_broker: HttpBroker) -> HttpBroker:
    (await memory_broker.client.put("/v1/topics/t")).raise_for_status()
    return memory_broker


@pytest.mark.parametrize(("method", "path", "status"), REQUESTS)
async def test_an_id_that_is_given_is_echoed(broker: HttpBroker, method: str, path: str, status: int) -> None:
    answer = await broker.client.request(method, path, headers={HEADER: "mine-1"})
    assert (answer.status_code, answer.headers.get_list(HEADER)) == (status, ["mine-1"])
    if status >= 400:
        assert answer.json()["request_id"] == "mine-1"


@pytest.mark.parametrize(("method", "path", "status"), REQUESTS)
async def test_without_one_an_id_is_made(broker: HttpBroker, method: str, path: str, status: int) -> None:
    made = set()
    for _ in range(2):
        answer = await broker.client.request(method, path)
        assert answer.status_code == status and MADE.fullmatch(answer.headers[HEADER])
        made.add(answer.headers[HEADER])
        if status >= 400:
            assert answer.json()["request_id"] == answer.headers[HEADER]
    assert len(made) == 2


@pytest.mark.parametrize("given", ["a b", "x" * 129, "a,b", 'a"b'])
async def test_one_that_may_not_stand_in_a_log_is_replaced(broker: HttpBroker, given: str) -> None:
    answer = await broker.client.get("/v1/topics", headers={HEADER: given})
    assert answer.status_code == 200 and MADE.fullmatch(answer.headers[HEADER])


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"GARBAGE\r\n\r\n", id="not HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\nx: " + b"y" * 200_000 + b"\r\n\r\n", id="headers too large"),
    ],
)
async def test_a_connection_that_is_refused_is_told_an_id(broker: HttpBroker, request_bytes: bytes) -> None:
    answers = await asyncio.gather(*(broker.raw(request_bytes) for _ in range(2)))
    ids = set()
    for head, _, body in (answer.partition(b"\r\n\r\n") for answer in answers):
        id_ = re.search(rb"\r\nx-request-id: (\S+)", head + b"\r\n")
        assert id_ is not None and b'"request_id":"%b"' % id_[1] in body
        assert int(re.search(rb"content-length: (\d+)", head)[1]) == len(body)  # type: ignore[index]
        ids.add(id_[1])
    assert len(ids) == 2


async def test_streams_are_told_theirs(broker: HttpBroker) -> None:
    async with broker.client.stream("GET", "/v1/topics/t/subscribe", headers={HEADER: "s"}) as answer:
        assert (answer.status_code, answer.headers[HEADER]) == (200, "s")
