"""A connection that understands plain answers only: all else is left to the client's transport."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from braidmq.transport.plain_connection import NotPlain, PlainConnection

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Server:
    """Answers each connection with these pieces, once something has come, and closes it at the end if told so."""

    def __init__(self) -> None:
        self.pieces: Sequence[bytes] = ()
        self.closes = True
        self.received = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received = await reader.read(65_536)
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
