"""The payload of a message as a stream that is checked against the message's reference."""

import hashlib
from collections.abc import AsyncIterator
from typing import Self

import httpx

from braidmq.errors import ConnectionBroken, InvalidArgument, PayloadMismatch
from braidmq.message import Message, Reference
from braidmq.names import topic_path
from braidmq.short_tracebacks import short_tracebacks, shortening
from braidmq.transport.connection_errors import connection_error
from braidmq.transport.problems import refusal
from braidmq.transport.transport import Call, Transport, Try

_UNCOMPRESSED = {"accept-encoding": "identity"}


@short_tracebacks
class AsyncPayload(AsyncIterator[bytes]):
    """A message's payload, inline or by reference: iterate its chunks, or `read` the whole.

    The ETag is checked before the first byte, size and SHA-256 at the end. Raises `PayloadMismatch` if one of them
    differs. Use it as an asynchronous context manager: it holds a connection until it is closed.
    """

    def __init__(self, transport: Transport, message: Message) -> None:
        self._transport = transport
        self._message = message
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._digest = hashlib.sha256()
        self._read_bytes = 0
        ref = message.ref
        self.size_bytes = len(message.value or b"") if ref is None else ref.size_bytes

    async def __aenter__(self) -> Self:
        ref = self._message.ref
        if ref is None:
            self._chunks = _once(self._message.value or b"")
            return self
        self._response = await self._transport.repeat(lambda attempt: self._open(ref, attempt))
        self._chunks = self._response.aiter_raw()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Return the connection."""
        if self._response is not None:
            await self._response.aclose()

    async def read(self) -> bytes:
        """Return all of the payload that has not been read yet."""
        return b"".join([chunk async for chunk in self])

    @shortening
    async def __anext__(self) -> bytes:
        if self._chunks is None:
            raise InvalidArgument("open the payload first: async with client.open(message) as payload")
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._check_end()
            raise
        except httpx.HTTPError as failure:
            why = connection_error(failure, failure.request.url, publishing=False)
            raise ConnectionBroken(
                f"{self._name} broke off after {self._read_bytes} of {self.size_bytes} bytes: {why}. If that happens "
                f"again, the payload may be damaged: mq verify {self._message.topic} tells"
            ) from failure
        self._read_bytes += len(chunk)
        self._digest.update(chunk)
        return chunk

    async def _open(self, ref: Reference, attempt: Try) -> httpx.Response:
        path = f"{topic_path(self._message.topic)}/messages/{self._message.id}/payload"
        response = await self._transport.send(Call("GET", path, headers=_UNCOMPRESSED), attempt, stream=True)
        if response.is_redirect:
            await response.aclose()
            redirected = Call("GET", response.headers["location"], headers=_UNCOMPRESSED)
            response = await self._transport.send(redirected, attempt, stream=True)
        if not response.is_success:
            await response.aread()
            raise refusal(response, publishing=False)
        found = response.headers.get("etag")
        if ref.etag is not None and found is not None and found.strip('"') != ref.etag.strip('"'):
            await response.aclose()
            raise PayloadMismatch(f"{self._name} has ETag {found}, not {ref.etag}")
        return response

    def _check_end(self) -> None:
        ref = self._message.ref
        if ref is None:
            return
        if self._read_bytes != ref.size_bytes:
            raise PayloadMismatch(f"{self._name} has {self._read_bytes} bytes, not {ref.size_bytes}")
        if ref.sha256 is not None and self._digest.hexdigest() != ref.sha256:
            found = self._digest.hexdigest()
            raise PayloadMismatch(f"{self._name} has SHA-256 {found}, not {ref.sha256}")

    @property
    def _name(self) -> str:
        """The name of the payload in errors: the message, and the object on the store."""
        message = self._message
        where = "" if message.ref is None else f" (topics/{message.topic}/{message.ref.uri})"
        return f"the payload of {message.id}{where}"


async def _once(data: bytes) -> AsyncIterator[bytes]:
    if data:
        yield data
