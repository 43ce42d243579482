"""The floor: the least a broker on this stack can do and still be durable.

    python -m bench.harness.floor_server DIRECTORY      serves on a free port and prints it

A bare ASGI app. It takes Arrow IPC batches or single raw messages. It collects what arrives while the last file is
being written, writes one Parquet file with the columns of a segment file, syncs it, links it under its base offset
(which fails if that offset is taken), syncs the folder, and only then answers. It has no topics, slots, routing, reads,
limits or recovery. A real broker does all this in addition. Its throughput is given as a ratio to that of this server.

POST /batch   an Arrow IPC stream of (key binary, value binary)
POST /single  the body is one message's value
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import uvicorn

STAMP = pa.timestamp("us", "UTC")
HEADERS = pa.map_(pa.string(), pa.binary())
SCHEMA = pa.schema(
    [
        ("_offset", pa.int64()),
        ("_timestamp", STAMP),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("event_time", STAMP),
        ("headers", HEADERS),
    ]
)
ENCODINGS = {"_offset": "DELTA_BINARY_PACKED", "_timestamp": "DELTA_BINARY_PACKED"}


class Log:
    """Files in one folder, written one after the other. What arrives during a write goes into the next file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._batches: list[pa.RecordBatch] = []
        self._singles: list[bytes] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._writer = ThreadPoolExecutor(1)

    async def append(self, *, batches: Sequence[pa.RecordBatch] = (), single: bytes | None = None) -> None:
        """Return once the messages are durable."""
        self._batches += batches
        if single is not None:
            self._singles.append(single)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wake.set()
        await waiter

    async def write_for_ever(self) -> None:
        """Write one file at a time."""
        base = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            batches, self._batches = self._batches, []
            singles, self._singles = self._singles, []
            waiters, self._waiters = self._waiters, []
            base += await asyncio.get_running_loop().run_in_executor(self._writer, self._write, batches, singles, base)
            for waiter in waiters:
                waiter.set_result(None)

    def _write(self, batches: list[pa.RecordBatch], singles: list[bytes], base: int) -> int:
        table = _columns(batches, singles, base)
        final, part = self._folder / f"{base:020d}.parquet", self._folder / f".{base}.part"
        with open(part, "wb") as file:
            pq.write_table(table, file, compression="lz4", use_dictionary=False, column_encoding=ENCODINGS)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, final)
        part.unlink()
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return len(table)


def _columns(batches: list[pa.RecordBatch], singles: list[bytes], base: int) -> pa.Table:
    if singles:
        columns = [pa.nulls(len(singles), pa.binary()), pa.array(singles, pa.binary())]
        batches = [*batches, pa.record_batch(columns, ["key", "value"])]
    rows = pa.Table.from_batches(batches)
    count = len(rows)
    stamps = pa.repeat(pa.scalar(time.time_ns() // 1000, STAMP), count)
    offsets = pa.array(np.arange(base, base + count))
    own = [offsets, stamps, rows["key"], rows["value"], pa.nulls(count, STAMP), pa.nulls(count, HEADERS)]
    return pa.table(own, schema=SCHEMA)


def create_app(log: Log) -> Callable[..., Awaitable[None]]:
    """The ASGI application."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        chunks = []
        while True:
            message = await receive()
            chunks.append(message.get("body", b""))
            if not message.get("more_body"):
                break
        body = b"".join(chunks)
        if scope["path"] == "/single":
            await log.append(single=body)
        else:
            batches = list(pa.ipc.open_stream(body))
            for batch in batches:
                batch.validate(full=True)
            await log.append(batches=batches)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})

    return app


async def serve(folder: Path) -> None:
    """Serve until a signal arrives."""
    log = Log(folder)
    writing = asyncio.create_task(log.write_for_ever())
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        config = uvicorn.Config(create_app(log), lifespan="off", access_log=False, log_level="warning")
        print(f"listening on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        await uvicorn.Server(config).serve(sockets=[listening])
    writing.cancel()


def main() -> None:
    import uvloop

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    uvloop.run(serve(folder))


if __name__ == "__main__":
    main()
