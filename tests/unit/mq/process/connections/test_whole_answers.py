"""The head of an answer waits for its body where that follows at once, and nowhere else."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from mq.process.connections.whole_answers import WholeAnswers


class Transport:
    """Keeps what is written, call by call."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.calls.append(bytes(data))

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.calls.append(b"".join(parts))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Connection:
    """One connection with the requests that come over it, as uvicorn serves them."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.answers = WholeAnswers(cast("asyncio.Transport", self.transport))

    def request(self, method: str = "GET", *, expects: bool = False) -> RequestResponseCycle:
        told = asyncio.Event()
        told.set()
        cycle = RequestResponseCycle(
            scope=cast("Any", {"method": method, "http_version": "1.1"}),
            transport=cast("asyncio.Transport", self.transport),
            flow=FlowControl(cast("asyncio.Transport", self.transport)),
            logger=cast("Any", None),
            access_logger=cast("Any", None),
            access_log=False,
            default_headers=[],
            message_event=told,
            expect_100_continue=expects,
            keep_alive=True,
            on_response=lambda: None,
        )
        self.answers.begin(cycle)
        return cycle


async def begin(cycle: RequestResponseCycle, *headers: tuple[bytes, bytes], status: int = 200) -> None:
    await cycle.send({"type": "http.response.start", "status": status, "headers": [*headers]})


async def go_on(cycle: RequestResponseCycle, body: bytes, *, more: bool = False) -> None:
    await cycle.send({"type": "http.response.body", "body": body, "more_body": more})


def length(size_bytes: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % size_bytes


@pytest.mark.parametrize("body", [b"text", b""])
async def test_an_answer_of_known_length_is_one_call(body: bytes) -> None:
    one = Connection()
    for _ in range(2):
        cycle = one.request()
        await begin(cycle, length(len(body)))
        assert not one.transport.calls
        await go_on(cycle, body)
        assert one.transport.calls == [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)]
        one.transport.calls.clear()


async def test_a_body_in_pieces_follows_as_it_comes() -> None:
    one = Connection()
    cycle = one.request()
    await begin(cycle, length(4))
    await go_on(cycle, b"ab", more=True)
    await go_on(cycle, b"cd")
    assert [call[-2:] for call in one.transport.calls] == [b"ab", b"cd"]
    assert one.transport.calls[1] == b"cd"


async def test_the_head_of_a_stream_waits_for_nothing() -> None:
    one = Connection()
    cycle = one.request()
    await begin(cycle)
    assert one.transport.calls == [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"]
    await go_on(cycle, b"ab")
    assert one.transport.calls[1:] == [b"2\r\nab\r\n0\r\n\r\n"]


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_an_answer_without_a_body_is_sent(method: str, status: int) -> None:
    one = Connection()
    cycle = one.request(method)
    headers = [length(4)] if method == "HEAD" else []
    await begin(cycle, *headers, status=status)
    await go_on(cycle, b"")
    assert b"".join(one.transport.calls).endswith(b"\r\n\r\n")


async def test_a_client_that_asks_may_go_on_at_once() -> None:
    one = Connection()
    cycle = one.request("POST", expects=True)
    await cycle.receive()
    assert one.transport.calls == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    await begin(cycle, length(2))
    await go_on(cycle, b"ok")
    assert one.transport.calls[1:] == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"]
