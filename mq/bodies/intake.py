"""Reads a request body within bounds: it takes room in the front store as the bytes arrive.

A body that was declared and does not come takes no room. `mq/process/connections` limits how long a body may take.
"""

import asyncio
import io
import math
import zlib
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any

from starlette.types import Receive

from filer.errors import Remedy
from mq.base.errors import BodyTimeout, BodyTooLarge, FrontStoreFull, Malformed, UnsupportedMedia
from mq.bodies.arriving_body import ArrivingBody
from mq.limits.arrivals import Arrivals
from mq.limits.room import STALLED_SECONDS, STEP_BYTES, Room
from mq.limits.turns import Line

_INFLATE_STEP_BYTES = 1024 * 1024
_INLINE_BYTES = 16 * 1024
_COPIED_BYTES = 2 * 1024 * 1024
"""Copied at once: some 0.5 ms, where memory is fresh."""
# A body that has grown by so much, to so many bytes, cost its sender nothing. Until it is answered, it counts as one
# that is still arriving.
_GROWN, _GROWN_BYTES = 32, 4 * 1024 * 1024
_ROW_BYTES = 64
"""About what a message takes in columns, besides its key and value."""


class ClientGone(Exception):
    """The client closed the connection before it had its answer."""


class Intake:
    """The room in the front store that one request holds, from its first byte until its answer.

    A context manager: the room is released however the request ends. With `wait` (the topic has `overflow: block`),
    the body waits in the socket for room, where it costs the broker no memory. It waits for `patience_seconds` in all,
    and then raises what `too_late` makes. A body that comes in pieces, or grows, shares `arrivals` with others.
    """

    def __init__(
        self,
        room: Room,
        limit_bytes: int,
        topic: str | None,
        *,
        wait: bool,
        patience_seconds: float = math.inf,
        too_late: Callable[[], Exception] = FrontStoreFull,
        arrivals: Arrivals | None = None,
    ) -> None:
        # Without arrivals of others, a body is always the one that began first.
        self._arrivals = Arrivals(0) if arrivals is None else arrivals
        self._left_seconds, self._too_late = patience_seconds, too_late
        self._room, self._topic, self._wait = room, topic, wait
        self._promised_bytes = 0
        self._patience: asyncio.Timeout | None = None
        # A body larger than the whole front store would be retried, or would wait, for ever.
        self._limit_bytes = min(limit_bytes, room.limit_bytes)
        self._arriving: ArrivingBody | None = None
        self.held_bytes = 0
        self._has_grown = False

    def __enter__(self) -> "Intake":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._promised_bytes:
            self._redeem(self._promised_bytes)
        if self._has_grown:
            self._arrivals.end(self)
        self._room.release(self.held_bytes)

    async def read(self, receive: Receive, declared_bytes: int | None) -> bytes:
        """Return the whole body. Raises `BodyTooLarge`, `FrontStoreFull`, `BodyTimeout` and `ClientGone`."""
        return bytes(await self.read_in_place(receive, declared_bytes, None))

    async def read_in_place(
        self, receive: Receive, declared_bytes: int | None, arriving: ArrivingBody | None
    ) -> bytes | memoryview:
        """As `read`, and without a copy if the body comes as `arriving`."""
        if arriving is not None:
            arriving.keep()
            self._arriving = arriving
        if declared_bytes is not None and (self._waits(declared_bytes) or not self._fits(declared_bytes)):
            await self._wait_for_room(declared_bytes)
        if self._promised_bytes:
            return await self._read_in_pieces(receive, b"")
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            return await self._read_in_pieces(receive, body)
        if message["type"] != "http.request":
            raise ClientGone
        if arriving is not None:
            await self.hold(arriving.size_bytes)
            return arriving.whole()
        if body:
            await self.hold(len(body))
        return body

    async def hold_rows(self, count: int, *, beside_bytes: int = 0) -> int:
        """Hold room for so many messages as columns, if that is more than their body took. Returns the room held.

        A body of empty messages takes a few bytes for each. `beside_bytes` is stored in addition to all of them. Raises
        `FrontStoreFull`.
        """
        size_bytes = max(_ROW_BYTES * count, self.held_bytes if beside_bytes else 0) + beside_bytes
        size_bytes = min(size_bytes, self._room.limit_bytes)
        if size_bytes > self.held_bytes:
            await self._take(size_bytes)
        return self.held_bytes

    async def _read_in_pieces(self, receive: Receive, first: bytes) -> bytes | memoryview:
        """Return the whole body that begins with `first`. It gives way when it stalls and others need its room."""
        try:
            async with asyncio.timeout(None) as self._patience:
                self._room.gets_on(self)
                return await self._read_on(receive, first)
        except TimeoutError as error:
            raise BodyTimeout("the body stalled while others needed its room; nothing of it was stored") from error
        finally:
            self._patience = None
            self._room.ends(self)
            self._arrivals.end(self)

    async def _read_on(self, receive: Receive, first: bytes) -> bytes | memoryview:
        arriving = self._arriving
        chunks, size_bytes = [first], len(first) if arriving is None else arriving.size_bytes
        next_step_bytes = STEP_BYTES
        self._arrivals.begin(self, size_bytes)
        await self.hold(size_bytes)
        more = True
        while more:
            await self._wait_for_turn()
            message = await receive()
            if message["type"] != "http.request":
                raise ClientGone
            if arriving is None:
                chunks.append(message.get("body", b""))
                size_bytes += len(chunks[-1])
            else:
                size_bytes = arriving.size_bytes
            self._arrivals.holds(self, size_bytes)
            await self.hold(size_bytes)
            if size_bytes >= next_step_bytes:
                next_step_bytes = size_bytes + STEP_BYTES
                self._room.gets_on(self)
            more = message.get("more_body", False)
        return b"".join(chunks) if arriving is None else arriving.whole()

    def give_up(self) -> None:
        """Give the room back soon: the body stalls, and others need it."""
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    def _waits(self, size_bytes: int) -> bool:
        """Whether a body needs a promise of its room. A small one arrives whole, and needs none."""
        return self._wait and size_bytes > STEP_BYTES

    def _fits(self, size_bytes: int) -> bool:
        return size_bytes <= self._limit_bytes and self._room.has_room(size_bytes)

    async def _wait_for_room(self, size_bytes: int) -> None:
        """Return when there is room for that many bytes. It is not reserved: the bytes have not come yet."""
        self._check(size_bytes)
        if self._waits(size_bytes):
            while not self._room.try_promise(size_bytes):
                await self._wait_for_others()
            self._promised_bytes = size_bytes
        else:
            while not self._room.has_room(size_bytes):
                await self._wait_for_others()

    async def hold(self, size_bytes: int) -> None:
        """Hold room for that many bytes in total; raises `BodyTooLarge` and `FrontStoreFull`."""
        self._check(size_bytes)
        await self._take(size_bytes)

    async def _take(self, size_bytes: int) -> None:
        """As `hold`, for a size that is known to be allowed."""
        while not self._room.try_reserve(size_bytes - self.held_bytes):
            # Not the client's fault: while it waits here, the body does not count as stalled.
            self._room.ends(self)
            await self._wait_for_others()
            if self._patience is not None:
                self._room.gets_on(self)
        if self._promised_bytes:
            self._redeem(min(self._promised_bytes, size_bytes - self.held_bytes))
        self.held_bytes = size_bytes

    def _redeem(self, size_bytes: int) -> None:
        self._promised_bytes -= size_bytes
        self._room.redeem(size_bytes)

    async def _wait_for_others(self) -> None:
        """Wait until another request gives room back; raises `FrontStoreFull` if it must not wait, or none will."""
        # A stalled body gives its room back at once, so that no other request has to be refused for it.
        gives_way = self._room.give_way()
        if self._left_seconds <= 0:
            raise self._too_late()
        held_bytes = self.held_bytes + self._promised_bytes
        may_wait = gives_way or self._wait
        if not may_wait or await self._until_one_may_stall(self._room.room(held_bytes)) is False:
            raise FrontStoreFull(
                f"{self._room.pending_bytes} bytes wait for the store, or are arriving, and at most "
                f"{self._room.limit_bytes} may; nothing of this request was stored: send it again later"
            )

    async def _wait_for_turn(self) -> None:
        """Return once more of the body may be received: earlier bodies go first. Raises `FrontStoreFull`."""
        while not self._arrivals.may_go_on(self):
            if self._left_seconds <= 0:
                raise self._arrivals.full()
            # Not the client's fault: while it waits here, the body does not count as stalled. Stalled bodies make room.
            self._room.ends(self)
            self._room.give_way()
            await self._until_one_may_stall(self._arrivals.turn(self))
            if self._patience is not None:
                self._room.gets_on(self)

    async def _until_one_may_stall(self, free: Coroutine[Any, Any, bool]) -> bool | None:
        """Return what `free` returns; None if a body may have stalled by then, or if patience is over."""
        loop = asyncio.get_running_loop()
        began_seconds = loop.time()
        try:
            async with asyncio.timeout(min(STALLED_SECONDS, self._left_seconds)):
                return await free
        except TimeoutError:
            return None
        finally:
            self._left_seconds -= loop.time() - began_seconds

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            remedy = None if self._topic is None else Remedy("upload", topic=self._topic)
            told = f"the body is larger than {self._limit_bytes} bytes"
            raise BodyTooLarge(told, self._limit_bytes, self._topic, remedy)

    async def inflate(self, body: bytes | memoryview, encoding: str) -> bytes | memoryview:
        """Decompress the body, up to the limit. Raises as `read`, and `UnsupportedMedia` and `Malformed`."""
        if encoding == "identity":
            return body
        if encoding != "gzip":
            raise UnsupportedMedia(f"content encoding {encoding!r:.80} is not supported: send gzip or none")
        inflater = zlib.decompressobj(wbits=31)
        # The buffer grows in place, and hands out all of it without a copy.
        inflated = io.BytesIO()
        size_bytes = 0
        waiting: bytes | memoryview = body
        self._arrivals.begin(self, 0)
        try:
            while waiting and not inflater.eof:
                # The first step of a small body costs less than a thread; others would hold up the event loop.
                step = partial(inflater.decompress, waiting, _INFLATE_STEP_BYTES)
                first = not size_bytes and len(waiting) <= _INLINE_BYTES
                if first:
                    chunk = step()
                else:
                    async with self._arrivals.inflating:
                        chunk = await asyncio.get_running_loop().run_in_executor(None, step)
                waiting = inflater.unconsumed_tail
                inflated.write(chunk)
                size_bytes += len(chunk)
                self._arrivals.holds(self, size_bytes)
                await self.hold(max(size_bytes, self.held_bytes))
                await self._wait_for_turn()
        except zlib.error as error:
            raise Malformed(f"the body is not valid gzip: {error}") from error
        finally:
            self._has_grown = size_bytes > max(_GROWN * len(body), _GROWN_BYTES)
            if not self._has_grown:
                self._arrivals.end(self)
        if not inflater.eof or inflater.unused_data:
            raise Malformed("the body is not valid gzip: it is truncated, or has bytes after its end")
        return inflated.getvalue()


async def as_bytes(body: bytes | memoryview, turns: Line) -> bytes:
    """Return the body as bytes. Copies a large one a piece in each turn: nothing else goes on meanwhile."""
    if isinstance(body, bytes) or len(body) <= _COPIED_BYTES:
        return bytes(body)
    copied = io.BytesIO()
    for start in range(0, len(body), _COPIED_BYTES):
        await turns.wait()
        copied.write(body[start : start + _COPIED_BYTES])
    return copied.getvalue()
