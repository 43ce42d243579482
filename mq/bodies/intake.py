"""Reads a request body within bounds: first reserves room in the front store, then receives the bytes."""

import asyncio
import zlib
from types import TracebackType

from starlette.types import Receive

from mq.base.errors import BodyTimeout, BodyTooLarge, FrontStoreFull, Malformed, UnsupportedMedia
from mq.base.front_store import FrontStore

STALL_SECONDS = 30.0
SLOWEST_BYTES_PER_SECOND = 64 * 1024
# A body of about one packet holds too little room to be worth a timer.
_QUICK_BYTES = 16 * 1024
_INFLATE_STEP_BYTES = 1024 * 1024


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class Intake:
    """The room in the front store that one request holds, from its first byte until its answer.

    A context manager: the room is released however the request ends. With `wait` (the topic has `overflow: block`),
    the body waits in the socket for room, where it costs the broker no memory.
    """

    def __init__(self, front_store: FrontStore, limit_bytes: int, upload_path: str, *, wait: bool) -> None:
        self._front_store, self._upload_path, self._wait = front_store, upload_path, wait
        # A body larger than the whole front store would be retried, or would wait, for ever.
        self._limit_bytes = min(limit_bytes, front_store.limit_bytes)
        self.held_bytes = 0

    def __enter__(self) -> "Intake":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._front_store.release(self.held_bytes)

    async def read(self, receive: Receive, declared_bytes: int | None) -> bytes:
        """Return the whole body. Raises `BodyTooLarge`, `FrontStoreFull`, `BodyTimeout` and `ClientGone`."""
        if declared_bytes is not None and not self._hold_at_once(declared_bytes):
            await self._hold(declared_bytes)
        if declared_bytes is not None and declared_bytes <= _QUICK_BYTES:
            return await self._receive(receive)
        # The declared size is reserved: a sender that stalls must not keep that room for ever.
        allowed_seconds = STALL_SECONDS + (declared_bytes or self._limit_bytes) / SLOWEST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(allowed_seconds):
                return await self._receive(receive)
        except TimeoutError as error:
            raise BodyTimeout(
                f"the body did not arrive within {allowed_seconds:.0f} s; nothing of this request was stored"
            ) from error

    async def _receive(self, receive: Receive) -> bytes:
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            body = await self._read_on(receive, body)
        elif message["type"] != "http.request":
            raise ClientGone
        if len(body) > self.held_bytes:
            await self._hold(len(body))
        return body

    async def _read_on(self, receive: Receive, first: bytes) -> bytes:
        chunks, size_bytes = [first], len(first)
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientGone
            chunks.append(message.get("body", b""))
            size_bytes += len(chunks[-1])
            if size_bytes > self.held_bytes:
                await self._hold(size_bytes)
            more = message.get("more_body", False)
        return b"".join(chunks)

    def _hold_at_once(self, size_bytes: int) -> bool:
        """Hold room for that many bytes in total, if the limit allows it and there is room. Returns whether it does."""
        if size_bytes > self._limit_bytes or not self._front_store.try_reserve(size_bytes - self.held_bytes):
            return False
        self.held_bytes = size_bytes
        return True

    async def _hold(self, size_bytes: int) -> None:
        """Hold room for that many bytes in total; raises `BodyTooLarge` and `FrontStoreFull`."""
        if size_bytes > self._limit_bytes:
            raise BodyTooLarge(
                f"the body is larger than {self._limit_bytes} bytes: publish in several requests, or upload a large "
                f"value first (POST {self._upload_path}) and publish a reference to it",
                self._limit_bytes,
                self._upload_path,
            )
        while not self._front_store.try_reserve(size_bytes - self.held_bytes):
            if not self._wait or not await self._front_store.room(self.held_bytes):
                raise FrontStoreFull(
                    f"{self._front_store.pending_bytes} bytes wait for the store, and at most "
                    f"{self._front_store.limit_bytes} may; nothing of this request was stored: send it again later"
                )
        self.held_bytes = size_bytes

    async def inflate(self, body: bytes, encoding: str) -> bytes:
        """Decompress the body, up to the limit. Raises as `read`, and `UnsupportedMedia` and `Malformed`."""
        if encoding == "identity":
            return body
        if encoding != "gzip":
            raise UnsupportedMedia(f"content encoding {encoding!r:.80} is not supported: send gzip or none")
        inflater = zlib.decompressobj(wbits=31)
        chunks: list[bytes] = []
        size_bytes = 0
        waiting = body
        try:
            while waiting and not inflater.eof:
                chunk = inflater.decompress(waiting, _INFLATE_STEP_BYTES)
                waiting = inflater.unconsumed_tail
                chunks.append(chunk)
                size_bytes += len(chunk)
                await self._hold(max(size_bytes, self.held_bytes))
        except zlib.error as error:
            raise Malformed(f"the body is not valid gzip: {error}") from error
        if not inflater.eof or inflater.unused_data:
            raise Malformed("the body is not valid gzip: it is truncated, or has bytes after its end")
        return b"".join(chunks)
