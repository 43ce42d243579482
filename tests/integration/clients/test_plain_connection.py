"""A connection that understands plain answers only: all else is left to the client's transport."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from braidmq.transport import plain_connection
from braidmq.transport.plain_connection import NotPlain, PlainAnswer, PlainConnection

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Server:
    """Answers each connection with these pieces, once something has come, and closes it at the end if told so."""

    def __init__(self) -> None:
        self.pieces: Sequence[bytes] = ()
        self.closes = True
        self.received = b""
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received = await reader.read(65_536)
        await self.may_answer.wait()
        for piece in self.pieces:
            writer.write(piece)
            await writer.drain()
        if not self.closes:
            await reader.read()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, int]]:
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    yield made, listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()


def post(port: int, timeout_seconds: float = 5.0) -> bytes:
    connection = PlainConnection("127.0.0.1", port, timeout_seconds=timeout_seconds)
    try:
        return connection.post("/v1/topics/t/messages?key=a", {"content-type": "text/plain"}, b"value")
    finally:
        connection.close()


@pytest.mark.parametrize("pieces", [[WHOLE], [WHOLE[:9], WHOLE[9:]], [bytes((each,)) for each in WHOLE]])
async def test_a_plain_answer_is_given_back(server: tuple[Server, int], pieces: list[bytes]) -> None:
    answering, port = server
    answering.pieces, answering.closes = pieces, False
    assert await asyncio.to_thread(post, port) == b"{}"
    assert answering.received == (
        b"POST /v1/topics/t/messages?key=a HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: text/plain\r\n"
        b"content-length: 5\r\n\r\nvalue" % port
    )


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="none"),
        pytest.param(WHOLE[:-1], id="a part"),
        pytest.param(WHOLE[:20], id="a part of its head"),
        pytest.param(WHOLE + b"H", id="more than one"),
        pytest.param(WHOLE.replace(b"200 OK", b"503 Unavailable"), id="a refusal"),
        pytest.param(WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"), id="HTTP/1.0"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE, id="an answer before the answer"),
        pytest.param(WHOLE.replace(b"content-length: 2", b"transfer-encoding: chunked"), id="chunks"),
        pytest.param(WHOLE.replace(b"content-length: 2", b"content-length: 2\r\nconnection: close"), id="the last one"),
        pytest.param(WHOLE.replace(b"content-length: 2", b"content-length: 2\r\nContent-Length: 3"), id="two lengths"),
        pytest.param(WHOLE.replace(b"content-length: 2", b"x: y"), id="no length"),
        pytest.param(WHOLE.replace(b"\r\ncontent", b"\r\n content"), id="a folded line"),
        pytest.param(WHOLE.replace(b": 2", b": 99999999"), id="too long"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="no HTTP"),
        pytest.param(b"x" * 70_000, id="no end"),
    ],
)
async def test_any_other_answer_is_none(server: tuple[Server, int], answer: bytes) -> None:
    answering, port = server
    answering.pieces = [answer]
    with pytest.raises(NotPlain):
        await asyncio.to_thread(post, port)


async def test_a_broker_that_does_not_answer_is_not_waited_for(server: tuple[Server, int]) -> None:
    answering, port = server
    answering.closes = False
    with pytest.raises(NotPlain, match="timed out"):
        await asyncio.to_thread(post, port, 0.05)


async def test_nobody_listens(server: tuple[Server, int]) -> None:
    with pytest.raises(NotPlain):
        await asyncio.to_thread(post, 1)


def get(port: int, most_bytes: int = 1_000_000, *, held_back_seconds: float = 5.0) -> PlainAnswer:
    connection = PlainConnection("127.0.0.1", port, timeout_seconds=0.2)
    try:
        return connection.get("/x", {"accept": "a/b"}, held_back_seconds=held_back_seconds, most_bytes=most_bytes)
    finally:
        connection.close()


async def test_a_long_answer_comes_in_pieces(server: tuple[Server, int]) -> None:
    answering, port = server
    answering.closes, body = False, bytes(range(256)) * 2000
    head = b"HTTP/1.1 200 OK\r\nBraid-Marker: m1\r\ncontent-length: %d\r\n\r\n" % len(body)
    for pieces in ([head + body], [head, body], [head + body[:9], body[9:99], body[99:]]):
        answering.pieces = pieces
        answer = await asyncio.to_thread(get, port)
        assert bytes(answer.body) == body and answer.header(b"braid-marker") == "m1"
    assert answering.received == b"GET /x HTTP/1.1\r\nhost: 127.0.0.1:%d\r\naccept: a/b\r\n\r\n" % port
    for names in (b"braid", b"marker", b"x"):
        with pytest.raises(NotPlain, match="0 headers"):
            answer.header(names)


@pytest.mark.parametrize(("pieces", "why"), [([WHOLE[:-2], b"{"], "closed within"), ([WHOLE + b"H"], "more than one")])
async def test_an_answer_that_is_not_whole_is_none(server: tuple[Server, int], pieces: list[bytes], why: str) -> None:
    answering, port = server
    answering.pieces = pieces
    with pytest.raises(NotPlain, match=why):
        await asyncio.to_thread(get, port)
    with pytest.raises(NotPlain, match="long"):
        await asyncio.to_thread(get, port, 1)


async def test_an_answer_may_be_held_back_for_longer_than_its_parts(
    server: tuple[Server, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes once the client has waited three times."""
    answering, port = server
    answering.closes, answering.pieces = False, [WHOLE]
    answering.may_answer.clear()
    monkeypatch.setattr(plain_connection, "_SIGNAL_SECONDS", 0.001)
    loop, waits, some = asyncio.get_running_loop(), [0], PlainConnection._some

    def counted(connection: PlainConnection) -> bytes:
        waits[0] += 1
        if waits[0] == 4:
            loop.call_soon_threadsafe(answering.may_answer.set)
        return some(connection)

    monkeypatch.setattr(PlainConnection, "_some", counted)
    assert (await asyncio.to_thread(get, port)).body == b"{}"


async def test_an_answer_that_is_held_back_for_too_long_is_none(
    server: tuple[Server, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering, port = server
    answering.closes = False
    monkeypatch.setattr(plain_connection, "_SIGNAL_SECONDS", 0.001)
    with pytest.raises(NotPlain, match="timed out"):
        await asyncio.to_thread(get, port, held_back_seconds=0.003)


async def test_whoever_waits_for_an_answer_can_be_told_to_wait_no_more(server: tuple[Server, int]) -> None:
    answering, port = server
    answering.may_answer.clear()
    connection = PlainConnection("127.0.0.1", port, timeout_seconds=5)
    waiting = asyncio.create_task(asyncio.to_thread(connection.get, "/x", {}, held_back_seconds=60, most_bytes=9))
    while not answering.received:
        await asyncio.sleep(0)
    connection.shut_down()
    with pytest.raises(NotPlain, match="closed"):
        await waiting
    connection.close()
    connection.shut_down()
    answering.may_answer.set()
