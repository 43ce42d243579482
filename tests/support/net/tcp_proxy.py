"""A TCP proxy that can disturb its connections at any time, for ZooKeeper, object stores and brokers.

    with TcpProxy("127.0.0.1", port) as proxy:
        client.connect(proxy.address)
        proxy.black_hole()          # everybody waits, nobody is told
        proxy.heal()                # what was held goes on its way

It runs on a thread of its own, so that it works while the event loop of a test is busy.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

R = TypeVar("R")
Direction = Literal["requests", "answers", "both"]

HOST = "127.0.0.1"
CHUNK_BYTES = 16 * 1024
QUEUED_CHUNKS = 64
CALL_SECONDS = 30
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Toxics:
    """What happens to bytes that go in one direction.

    `held` keeps them until it is lifted. `swallowed` takes them and forgets them: such a connection is reset when
    the toxic is lifted, as half a conversation is no conversation. `reset_after_bytes` counts per connection, from
    the time at which the toxic was set.
    """

    latency_seconds: float = 0.0
    bytes_per_second: float | None = None
    held: bool = False
    swallowed: bool = False
    reset_after_bytes: int | None = None


HEALTHY = Toxics()


class TcpProxy:
    """Passes connections to `address` on to one target. Entering the context starts it, leaving it cuts all lines.

    A `port` of 0 is one that is not known yet: `aim` names it.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)
        # Keeps the port while nobody listens on it.
        self._reserved = _bound_socket(0)
        self.port: int = self._reserved.getsockname()[1]
        self._listening: socket.socket | None = None
        self._links: dict[_Link, asyncio.Task[None]] = {}
        self._toxics: dict[str, Toxics] = {"requests": HEALTHY, "answers": HEALTHY}
        self.accepted = 0

    @property
    def address(self) -> str:
        """`host:port` to connect to."""
        return f"{HOST}:{self.port}"

    @property
    def open_connections(self) -> int:
        """The number of open connections."""
        return len(self._links)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()
        self._reserved.close()

    def aim(self, port: int) -> None:
        """Pass new connections on to another port."""
        self._target = (self._target[0], port)

    def set(self, toxics: Toxics, *, direction: Direction = "both") -> None:
        """Replace the toxics of a direction."""
        names = ("requests", "answers") if direction == "both" else (direction,)
        self._call(self._set(dict.fromkeys(names, toxics)))

    def black_hole(self) -> None:
        """Accept connections but pass nothing on; what is sent waits."""
        self.set(Toxics(held=True))

    def hang(self, *, direction: Direction = "both") -> None:
        """Pass nothing more on over the connections that are open now; new ones are healthy."""
        self._call(self._hang(direction))

    def drop_answers(self) -> None:
        """Pass requests on and swallow the answers."""
        self.set(Toxics(swallowed=True), direction="answers")

    def cut(self) -> None:
        """Refuse new connections and reset the old ones."""
        self._call(self._close())

    def heal(self) -> None:
        """Remove all toxics."""
        self._call(self._heal())

    # -- on the proxy's own thread -------------------------------------------------------------------------

    def _call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_SECONDS)

    async def _listen(self) -> None:
        if self._listening is None:
            self._listening = _bound_socket(self.port)
            self._listening.setblocking(False)
            self._listening.listen()
            self._loop.add_reader(self._listening, self._accept, self._listening)

    def _accept(self, listening: socket.socket) -> None:
        """Register a connection at once, so that a cut finds every connection."""
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            connection, _ = listening.accept()
            connection.setblocking(False)
            self.accepted += 1
            link = _Link(connection, self._toxics["requests"], self._toxics["answers"])
            self._links[link] = self._loop.create_task(self._serve(link))

    async def _serve(self, link: "_Link") -> None:
        try:
            await link.run(*self._target)
        finally:
            del self._links[link]

    async def _close(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for link in self._links:
            link.reset()
        await asyncio.gather(*self._links.values())

    async def _heal(self) -> None:
        await self._set({"requests": HEALTHY, "answers": HEALTHY})
        await self._listen()

    async def _hang(self, direction: Direction) -> None:
        held = {name: Toxics(held=direction in (name, "both")) for name in ("requests", "answers")}
        for link in self._links:
            link.change(held["requests"], held["answers"])

    async def _set(self, toxics: dict[str, Toxics]) -> None:
        self._toxics |= toxics
        for link in self._links:
            link.change(self._toxics["requests"], self._toxics["answers"])


class _Link:
    """One connection through the proxy: a pipe for requests, a pipe for answers."""

    def __init__(self, connection: socket.socket, requests: Toxics, answers: Toxics) -> None:
        self._connection = connection
        self._writers: list[asyncio.StreamWriter] = []
        self._requests, self._answers = _Pipe(requests), _Pipe(answers)
        self._reset = asyncio.Event()

    async def run(self, host: str, port: int) -> None:
        """Pass bytes on until both sides have ended, or the line is reset."""
        client = await asyncio.open_connection(sock=self._connection)
        self._writers.append(client[1])
        cutting = asyncio.create_task(self._reset.wait())
        passing = asyncio.create_task(self._pass_on(client, host, port))
        await asyncio.wait([cutting, passing], return_when=asyncio.FIRST_COMPLETED)
        for task in (cutting, passing):
            task.cancel()
        _, outcome = await asyncio.gather(cutting, passing, return_exceptions=True)
        for writer in self._writers:
            await _close_writer(writer, reset=self._reset.is_set() or outcome is not None)

    async def _pass_on(self, client: tuple[asyncio.StreamReader, asyncio.StreamWriter], host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        self._writers.append(writer)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._requests.run(client[0], writer))
            group.create_task(self._answers.run(reader, client[1]))

    def reset(self) -> None:
        """Reset the connection."""
        self._reset.set()

    def change(self, requests: Toxics, answers: Toxics) -> None:
        """Use other toxics from now on."""
        for pipe, toxics in ((self._requests, requests), (self._answers, answers)):
            if pipe.has_swallowed and not toxics.swallowed:
                self.reset()
            pipe.change(toxics)


class _Pipe:
    """Bytes in one direction: read as they arrive, written when they are due, with a bounded queue in between."""

    def __init__(self, toxics: Toxics) -> None:
        self._toxics = toxics
        self._changed = asyncio.Event()
        self._passed_bytes = 0
        self.has_swallowed = False

    def change(self, toxics: Toxics) -> None:
        """Use other toxics from now on."""
        self._toxics, self._passed_bytes = toxics, 0
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on everything up to the end of `reader`; raises `ConnectionError` where the line broke."""
        # Whatever is written is sent before the next is taken: a reset cuts off no more than it should.
        writer.transport.set_write_buffer_limits(0)
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED_CHUNKS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take(reader, queue))
            group.create_task(self._give(queue, writer))

    async def _take(self, reader: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]]) -> None:
        loop = asyncio.get_running_loop()
        data = b"first"
        while data:
            data = await reader.read(CHUNK_BYTES)
            await queue.put((loop.time() + self._toxics.latency_seconds, data))

    async def _give(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due_seconds, data = await queue.get()
            await asyncio.sleep(due_seconds - asyncio.get_running_loop().time())
            await self._wait_while_held()
            if not data:
                writer.write_eof()
                return
            if self._toxics.swallowed:
                self.has_swallowed = True
                continue
            await self._write(data, writer)

    async def _wait_while_held(self) -> None:
        while self._toxics.held:
            await self._changed.wait()

    async def _write(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        toxics = self._toxics
        if toxics.bytes_per_second is not None:
            await asyncio.sleep(len(data) / toxics.bytes_per_second)
        limit_bytes = toxics.reset_after_bytes
        rest_bytes = None if limit_bytes is None else limit_bytes - self._passed_bytes
        writer.write(data[:rest_bytes])
        await writer.drain()
        self._passed_bytes += len(data)
        if rest_bytes is not None and len(data) >= rest_bytes:
            raise ConnectionResetError(f"reset after {limit_bytes} bytes")


async def _close_writer(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if reset:
        with contextlib.suppress(OSError):
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        writer.transport.abort()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _bound_socket(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((HOST, port))
    return bound
