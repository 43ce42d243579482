"""The head of an answer waits for its body where that follows at once, and nowhere else."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from mq.http.pieces import TOGETHER, Together
from mq.http.reply import WHOLE_BODY
from mq.process.connections.whole_answers import WholeAnswers

DATE = (b"date", b"Tue, 24 Nov 2026 20:00:00 GMT")
HEAD = b"HTTP/1.1 200 OK\r\ndate: Tue, 24 Nov 2026 20:00:00 GMT\r\n"
TYPE = (b"content-type", b"application/json")


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
        self.answered: list[RequestResponseCycle] = []
        self.answers = WholeAnswers(cast("asyncio.Transport", self.transport))

    def request(self, method: str = "GET", *, expects: bool = False, keep_alive: bool = True) -> RequestResponseCycle:
        told = asyncio.Event()
        told.set()
        cycle = RequestResponseCycle(
            scope=cast("Any", {"method": method, "path": "/", "http_version": "1.1"}),
            transport=cast("asyncio.Transport", self.transport),
            flow=FlowControl(cast("asyncio.Transport", self.transport)),
            logger=cast("Any", None),
            access_logger=cast("Any", None),
            access_log=False,
            default_headers=[DATE],
            message_event=told,
            expect_100_continue=expects,
            keep_alive=keep_alive,
            on_response=lambda: self.answered.append(cycle),
        )
        self.answers.begin(cycle)
        return cycle

    async def answer(self, cycle: RequestResponseCycle, *messages: Message) -> None:
        """Answer it as an app does that sends these messages."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            assert {WHOLE_BODY, TOGETHER} <= scope["extensions"].keys()
            for message in messages:
                await send(message)

        around: Any = self.answers.around(cast("Any", app), cycle)
        await around(cycle.scope, cycle.receive, cycle.send)


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
        assert one.transport.calls == [HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body)]
        one.transport.calls.clear()


async def test_a_body_in_pieces_follows_as_it_comes() -> None:
    one = Connection()
    cycle = one.request()
    await begin(cycle, length(4))
    await go_on(cycle, b"ab", more=True)
    await go_on(cycle, b"cd")
    assert [call[-2:] for call in one.transport.calls] == [b"ab", b"cd"]
    assert one.transport.calls[1] == b"cd"


async def test_parts_of_a_body_leave_together_and_count_as_all_of_them() -> None:
    one = Connection()
    cycle = one.request()
    await begin(cycle, length(6))
    await go_on(cycle, cast("bytes", Together([b"ab", memoryview(b"c")])), more=True)
    await go_on(cycle, b"", more=True)
    await go_on(cycle, cast("bytes", Together([b"d", b"ef"])))
    assert [call for call in one.transport.calls if call] == [HEAD + b"content-length: 6\r\n\r\nabc", b"def"]
    assert one.answered == [cycle]


async def test_more_parts_than_the_length_says_are_refused() -> None:
    one = Connection()
    cycle = one.request()
    await begin(cycle, length(2))
    with pytest.raises(RuntimeError, match="longer than Content-Length"):
        await go_on(cycle, cast("bytes", Together([b"ab", b"c"])))
    assert not one.transport.calls


async def test_the_head_of_a_stream_waits_for_nothing() -> None:
    one = Connection()
    cycle = one.request()
    await begin(cycle)
    assert one.transport.calls == [HEAD + b"transfer-encoding: chunked\r\n\r\n"]
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
    assert one.transport.calls[1:] == [HEAD + b"content-length: 2\r\n\r\nok"]


def whole(body: bytes, *headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers, WHOLE_BODY: body}


@pytest.mark.parametrize("body", [b"", b"{}", b"x" * 100_000])
async def test_an_answer_as_one_message_is_one_call(body: bytes) -> None:
    one = Connection()
    cycle = one.request("POST", expects=True)
    await one.answer(cycle, whole(body, TYPE))
    assert one.transport.calls == [
        HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    ]
    assert cycle.response_complete and one.answered == [cycle]
    assert await cycle.receive() == {"type": "http.disconnect"}
    with pytest.raises(RuntimeError, match="already completed"):
        await one.answer(cycle, whole(body, TYPE))


@pytest.mark.parametrize(
    ("method", "keep_alive", "header", "told"),
    [
        ("POST", False, TYPE, b"connection: close"),
        ("POST", True, (b"connection", b"close"), b"connection: close"),
        ("POST", True, (b"retry-after", b"1"), b"retry-after: 1"),
        ("POST", True, (b"Allow", b"GET"), b"allow: GET"),
        ("HEAD", True, TYPE, b"content-type: application/json"),
    ],
)
async def test_what_is_not_plain_is_answered_as_in_two_messages(
    method: str, keep_alive: bool, header: tuple[bytes, bytes], told: bytes
) -> None:
    one, two = Connection(), Connection()
    cycle = one.request(method, keep_alive=keep_alive)
    await one.answer(cycle, whole(b"{}", header))
    other = two.request(method, keep_alive=keep_alive)
    await begin(other, header, length(2))
    await go_on(other, b"{}")
    assert told in b"".join(one.transport.calls)
    assert b"".join(one.transport.calls) == b"".join(two.transport.calls)
    assert one.transport.closed == two.transport.closed
    assert one.answered == [cycle]


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\x00"])
async def test_no_header_is_smuggled_in(value: bytes) -> None:
    one = Connection()
    with pytest.raises(RuntimeError, match="Invalid HTTP header value"):
        await one.answer(one.request(), whole(b"{}", (b"x-request-id", value)))
    assert not one.transport.calls


async def test_a_client_that_has_gone_gets_nothing() -> None:
    one = Connection()
    cycle = one.request()
    cycle.disconnected = True
    await one.answer(cycle, whole(b"{}", TYPE))
    assert not one.transport.calls


async def test_an_answer_waits_for_room_in_the_socket() -> None:
    one = Connection()
    cycle = one.request()
    cycle.flow.pause_writing()
    answering = asyncio.create_task(one.answer(cycle, whole(b"{}", TYPE)))
    await asyncio.sleep(0)
    assert not one.transport.calls
    cycle.flow.resume_writing()
    await answering
    assert len(one.transport.calls) == 1


async def test_messages_of_other_kinds_are_sent_as_ever() -> None:
    one = Connection()
    cycle = one.request()
    await one.answer(
        cycle,
        {"type": "http.response.start", "status": 200, "headers": [TYPE, length(2)]},
        {"type": "http.response.body", "body": b"{}"},
    )
    assert one.transport.calls == [HEAD + b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"]
