"""Read a whole topic back as Arrow: page by page through the broker, and directly from its files."""

import http.client
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import httpx
import pyarrow as pa
import pyarrow.dataset as ds

from bench.harness.publishing import TOPIC
from bench.harness.server_process import BenchFailed, broker
from bench.harness.wrk import ARROW, random_batch
from filer.keys import segments_folder

BATCHES, BATCH_MESSAGES, MESSAGE_BYTES, SEGMENTS = 200, 1_000, 1024, 4
PAGE_ROWS, PAGE_BYTES = 100_000, 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read, and its speed: the median of all rounds."""

    what: str
    messages_per_second: float
    mb_per_second: float


def read_back(*, rounds: int, show_progress: Callable[[str], None]) -> list[Reading]:
    """Publish a topic of some 200 MB, then read it `rounds` times in each way, after one round that does not count."""
    with broker() as (url, data):
        topic = f"{url}/v1/topics/{TOPIC}"
        show_progress("filling a topic to read back")
        fill(topic)
        ways: dict[str, Callable[[], pa.Table]] = {
            "whole topic through the broker, Arrow": lambda: through_the_broker(topic),
            "whole topic from its files, pyarrow": lambda: from_files(topic, data),
        }
        seconds: dict[str, list[float]] = {what: [] for what in ways}
        for number in range(rounds + 1):
            show_progress(f"reading back, round {number} of {rounds}")
            for what, read in ways.items():
                duration_seconds = _timed(read)
                if number:
                    seconds[what].append(duration_seconds)
    return [_reading(what, statistics.median(duration_seconds)) for what, duration_seconds in seconds.items()]


def fill(
    topic: str,
    *,
    segments: int = SEGMENTS,
    batches: int = BATCHES,
    messages: int = BATCH_MESSAGES,
    size_bytes: int = MESSAGE_BYTES,
) -> None:
    """Create the topic and publish so many batches to it."""
    httpx.put(topic, json={"segments": segments}).raise_for_status()
    batch = random_batch(messages, size_bytes)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue().to_pybytes()
    with httpx.Client(timeout=60) as client:
        for _ in range(batches):
            client.post(f"{topic}/messages", content=body, headers={"content-type": ARROW}).raise_for_status()


def _timed(read: Callable[[], pa.Table]) -> float:
    started = time.perf_counter()
    table = read()
    duration_seconds = time.perf_counter() - started
    if table.num_rows != BATCHES * BATCH_MESSAGES:
        raise BenchFailed(f"{BATCHES * BATCH_MESSAGES} messages published, {table.num_rows} read back")
    return duration_seconds


def through_the_broker(topic: str) -> pa.Table:
    """Read all pages of a topic, one page ahead, as consumers of other systems do."""
    pages: list[pa.Table] = []
    with _PagesAhead(topic) as ahead:
        asked = ahead.ask({"from": "earliest"})
        while True:
            page, asked = asked.result()
            if not page.num_rows:
                return pa.concat_tables(pages)
            pages.append(page)


class _PagesAhead:
    """Pages over two connections: the head of an answer says where the next one begins, so it is asked for then."""

    def __init__(self, topic: str) -> None:
        self._where = urlsplit(topic)
        self._pool = ThreadPoolExecutor(2, initializer=self._connect)
        self._connections: dict[int, http.client.HTTPConnection] = {}
        self._is_over = False

    def __enter__(self) -> "_PagesAhead":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._pool.shutdown(cancel_futures=True)
        for connection in self._connections.values():
            connection.close()

    def _connect(self) -> None:
        self._connections[threading.get_ident()] = http.client.HTTPConnection(self._where.netloc, timeout=60)

    def ask(self, position: dict[str, str]) -> "Future[_Page]":
        """Ask for the page that begins there."""
        return self._pool.submit(self._page, position)

    def _page(self, position: dict[str, str]) -> "_Page":
        connection = self._connections[threading.get_ident()]
        bounds = urlencode({"limit": PAGE_ROWS, "max_bytes": PAGE_BYTES, **position})
        connection.request("GET", f"{self._where.path}/messages?{bounds}", headers={"accept": ARROW})
        answer = connection.getresponse()
        if answer.status != 200:
            raise BenchFailed(f"a read was answered {answer.status}")
        following: Future[_Page] = Future() if self._is_over else self.ask({"marker": answer.headers["braid-marker"]})
        with pa.ipc.open_stream(pa.py_buffer(answer.read())) as stream:
            return _Page(stream.read_all(), following)


class _Page(NamedTuple):
    """Messages, and the page behind them."""

    table: pa.Table
    following: "Future[_Page]"


def from_files(topic: str, data: Path) -> pa.Table:
    """Read the live files that the broker lists."""
    folder = data / segments_folder(TOPIC)
    listed = httpx.get(f"{topic}/files", params={"limit": 10_000}, timeout=60).raise_for_status().json()["files"]
    paths = [file["uri"].removeprefix("file://") for file in listed]
    return ds.dataset(paths, format="parquet", partitioning="hive", partition_base_dir=str(folder)).to_table()


def _reading(what: str, seconds: float) -> Reading:
    messages = BATCHES * BATCH_MESSAGES
    return Reading(what, messages / seconds, messages * MESSAGE_BYTES / seconds / 1e6)
