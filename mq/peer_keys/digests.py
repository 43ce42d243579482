"""Digests of bodies, taken in a thread if that is worth it: hashing lets other threads go on."""

import asyncio
import hashlib

from starlette.types import Message, Receive

from mq.base.errors import Malformed

APART_BYTES = 256 * 1024
"""So much is hashed in 0.2 ms or so. A thread costs less than that only above it."""
_EMPTY = hashlib.sha256().hexdigest()


async def digest_of(body: bytes | memoryview) -> str:
    """Return the digest of a body (SHA-256)."""
    size_bytes = body.nbytes if isinstance(body, memoryview) else len(body)
    if not size_bytes:
        return _EMPTY
    if size_bytes < APART_BYTES:
        return hashlib.sha256(body).hexdigest()
    return await asyncio.to_thread(lambda: hashlib.sha256(body).hexdigest())


class CheckedBody:
    """Receives a body, and raises `Malformed` at its end if its digest is not the signed one.

    Handlers act on no body before they have all of it: so a body changed on its way has no effect.
    """

    def __init__(self, receive: Receive, digest: str) -> None:
        self._receive, self._digest = receive, digest
        self._hash = hashlib.sha256()

    async def __call__(self) -> Message:
        """As `receive`."""
        message = await self._receive()
        if message["type"] != "http.request":
            return message
        body = message.get("body", b"")
        if len(body) < APART_BYTES:
            self._hash.update(body)
        else:
            await asyncio.to_thread(self._hash.update, body)
        if not message.get("more_body", False) and self._hash.hexdigest() != self._digest:
            raise Malformed("the body is not the one that was signed: it was changed on its way")
        return message
