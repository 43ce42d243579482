"""An HTTP server that gives scripted answers and records the requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

Respond = Callable[[str], bytes | None]


@dataclass
class ScriptedServer:
    """`respond` gives the bytes of each answer; None says nothing, and empty bytes cut the connection.

    With `trickle_seconds` the bytes come one by one, with that pause after each.
    """

    respond: Respond
    trickle_seconds: float = 0
    heads: list[str] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                if "100-continue" in head.lower():
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                await reader.readexactly(_length(head))
                answer = self.respond(head)
                if answer is None:
                    await reader.read()
                if not answer:
                    break
                for part in [answer] if not self.trickle_seconds else [bytes([byte]) for byte in answer]:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(self.trickle_seconds)


def path_of(head: str) -> str:
    """The path of a request, in any form that its first line may have."""
    return urlsplit(head.split()[1]).path


def _length(head: str) -> int:
    lines = [line for line in head.lower().splitlines() if line.startswith("content-length:")]
    return int(lines[0].partition(":")[2]) if lines else 0


def answer(status: int, body: str = "", **headers: str) -> bytes:
    """A complete HTTP answer."""
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", body]).encode()


@contextlib.asynccontextmanager
async def scripted_server(respond: Respond, *, trickle_seconds: float = 0) -> AsyncIterator[ScriptedServer]:
    """A running server at `url`."""
    scripted = ScriptedServer(respond, trickle_seconds)
    ended: list[tuple[asyncio.StreamWriter, asyncio.Event]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done = asyncio.Event()
        ended.append((writer, done))
        try:
            await scripted.serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            done.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    scripted.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield scripted
    finally:
        server.close()
        for writer, done in ended:
            writer.close()
            await done.wait()
        await server.wait_closed()
