"""Attacks by what connections send, or do not: most of them without a request that is complete."""

import asyncio

from bench.attacking.attack import MIB, TOPIC, Attack, make_topic, on_sockets, publish

_BIG, _BIG_BYTES = "big", 30 * MIB
_HOST = b"host: localhost\r\n"
_PUBLISH = f"POST /v1/topics/{TOPIC}/messages HTTP/1.1\r\n".encode() + _HOST
_CHUNKED = _PUBLISH + b"transfer-encoding: chunked\r\n\r\n"


async def _declare_and_stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _send(writer, _PUBLISH + b"content-length: %d\r\n\r\n" % (64 * MIB))


async def _stall_before_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_PUBLISH + b"content-length: %d\r\n\r\n" % (64 * MIB))
    await _send(writer, *[bytes(MIB)] * 63)


async def _send_208_mb_of_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET / HTTP/1.1\r\n")
    await _send(writer, *(b"x-%d: %b\r\n" % (number, b"x" * 1_000_000) for number in range(208)))


async def _send_half_a_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _send(writer, b"GET / HTTP/1.1\r\nx: " + b"x" * 60_000)


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await writer.drain()


async def _trickle_a_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _trickle(writer, b"GET / HTTP/1.1\r\nx-trickled: ", b"x")


async def _trickle_a_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _trickle(writer, _PUBLISH + b"content-length: 1000000\r\n\r\n", b"x")


async def _trickle_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _trickle(writer, _CHUNKED, b"1\r\nx\r\n")


async def _trickle(writer: asyncio.StreamWriter, start: bytes, piece: bytes) -> None:
    writer.write(start)
    while not writer.is_closing():
        await writer.drain()
        await asyncio.sleep(1)
        writer.write(piece)


async def _read_a_byte_a_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(f"GET /v1/topics/{_BIG}/messages?limit=1 HTTP/1.1\r\n".encode() + _HOST + b"\r\n")
    while await reader.read(1):
        await asyncio.sleep(1)
    raise ConnectionResetError


async def _pipeline(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(f"GET /v1/topics/{TOPIC}/messages?from=latest&wait=30 HTTP/1.1\r\n".encode() + _HOST + b"\r\n")
    await _send(writer, (b"GET /healthz HTTP/1.1\r\n" + _HOST + b"\r\n") * 5_000)


async def _pipeline_and_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write((b"GET /v1/topics HTTP/1.1\r\n" + _HOST + b"\r\n") * 50)
        await writer.drain()
        await reader.read(64 * 1024)


async def _extend_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_CHUNKED + b"1;x=")
    await _send(writer, *[b"x" * MIB] * 1_000)


async def _send_tiny_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_CHUNKED)
    await _send(writer, *[b"1\r\nx\r\n" * 100_000] * 100)


async def _send_trailers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_CHUNKED + b"1\r\nx\r\n0\r\n")
    await _send(writer, b"x-trailer: ", *[b"x" * MIB] * 208)


async def _upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET /v1/topics HTTP/1.1\r\n" + _HOST + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n")
    await _send(writer, *[b"x" * MIB] * 208)


async def _send(writer: asyncio.StreamWriter, *pieces: bytes) -> None:
    for piece in pieces:
        writer.write(piece)
        await writer.drain()


def _big_message(url: str) -> None:
    make_topic(url, _BIG)
    publish(url, _BIG, b"x" * _BIG_BYTES)


ATTACKS = {
    "declared": Attack("4 sockets declare 64 MiB and send nothing", on_sockets(4, _declare_and_stall)),
    "stalled": Attack("4 sockets send 63 of 64 MiB and stall", on_sockets(4, _stall_before_the_end)),
    "headers": Attack("208 MB of headers on one connection", on_sockets(1, _send_208_mb_of_headers)),
    "half-heads": Attack("500 sockets send 60 KB of headers and stall", on_sockets(500, _send_half_a_head)),
    "idle": Attack("140 idle sockets, broker with ulimit -n 128", on_sockets(140, _say_nothing), open_files=128),
    "trickled-heads": Attack("100 sockets send a byte of their headers a second", on_sockets(100, _trickle_a_head)),
    "trickled-bodies": Attack("100 sockets send a byte of their bodies a second", on_sockets(100, _trickle_a_body)),
    "trickled-chunks": Attack("100 sockets send a chunk of a byte a second", on_sockets(100, _trickle_chunks)),
    "trickled-reads": Attack(
        "20 sockets read an answer of 30 MiB, a byte a second", on_sockets(20, _read_a_byte_a_second), _big_message
    ),
    "pipelined": Attack("20 sockets send 5,000 requests behind a long poll", on_sockets(20, _pipeline)),
    "pipelines": Attack("20 sockets send 50 requests ahead, and read", on_sockets(20, _pipeline_and_read)),
    "chunk-extensions": Attack(
        "4 sockets send chunk extensions without end", on_sockets(4, _extend_chunks, again=True)
    ),
    "tiny-chunks": Attack("4 sockets send chunks of a byte", on_sockets(4, _send_tiny_chunks, again=True)),
    "trailers": Attack("4 sockets send trailers of 208 MB", on_sockets(4, _send_trailers, again=True)),
    "upgrades": Attack("4 sockets upgrade, and send 208 MB", on_sockets(4, _upgrade, again=True)),
}
