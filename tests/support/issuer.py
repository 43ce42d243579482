"""A small OpenID issuer on this machine: its discovery document, and its keys, which can be rotated."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from filer.clock import SystemClock
from tests.support.token_maker import TokenMaker


class Issuer:
    """Answers at `url`; `maker` signs with the newest key. `answer` may be put in the place of what it would say."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.maker = TokenMaker.on_p256(
            issuer=self.url, audience="queue", key_id="i1", now_seconds=SystemClock().now_us() / 1e6
        )
        self.asked: list[str] = []
        self.answer: Callable[[str], bytes | None] = self._answer

    def rotate(self) -> TokenMaker:
        """Sign with a new key, and know no other one; returns who signs with the old one."""
        old = self.maker
        self.maker = replace(
            TokenMaker.on_p256(), issuer=old.issuer, audience=old.audience, now_seconds=old.now_seconds
        )
        self.maker.key_id = f"{old.key_id}x"
        return old

    def _answer(self, path: str) -> bytes | None:
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        return self.maker.key_set if path == "/keys" else None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request."""
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            self.asked.append(path)
            body = self.answer(path)
            status = b"404 Not Found" if body is None else b"200 OK"
            writer.write(b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (status, len(body or b"")))
            writer.write(body or b"")
            await writer.drain()


@contextlib.asynccontextmanager
async def issuer_running(port: int = 0) -> AsyncIterator[Issuer]:
    """An issuer that answers within the block."""
    issuers: list[Issuer] = []
    server = await asyncio.start_server(lambda *both: issuers[0].serve(*both), "127.0.0.1", port)
    issuers.append(Issuer(server.sockets[0].getsockname()[1]))
    try:
        yield issuers[0]
    finally:
        server.close()
        await server.wait_closed()
