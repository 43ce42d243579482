"""Reading a whole topic back as Arrow: through the broker page by page, and from its files directly."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.dataset as ds

from bench.load import ARROW, random_batch
from bench.publishing import TOPIC
from bench.server_process import BenchFailed, broker
from filer.keys import segments_folder

BATCHES, BATCH_MESSAGES, MESSAGE_BYTES, SEGMENTS = 200, 1_000, 1024, 4
PAGE_ROWS, PAGE_BYTES = 10_000, 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read, and how fast it was: the median of all rounds."""

    what: str
    messages_per_second: float
    mb_per_second: float


def read_back(*, rounds: int, tell: Callable[[str], None]) -> list[Reading]:
    """Publish a topic of some 200 MB, then read it `rounds` times either way, after a time that does not count."""
    with broker() as (url, data):
        topic = f"{url}/v1/topics/{TOPIC}"
        tell("filling a topic to read back")
        fill(topic)
        ways: dict[str, Callable[[], pa.Table]] = {
            "whole topic through the broker, Arrow": lambda: _through_the_broker(topic),
            "whole topic from its files, pyarrow": lambda: _from_files(topic, data),
        }
        seconds: dict[str, list[float]] = {what: [] for what in ways}
        for number in range(rounds + 1):
            tell(f"reading back, round {number} of {rounds}")
            for what, read in ways.items():
                took = _timed(read)
                if number:
                    seconds[what].append(took)
    return [_reading(what, statistics.median(took)) for what, took in seconds.items()]


def fill(topic: str) -> None:
    httpx.put(topic, json={"segments": SEGMENTS}).raise_for_status()
    batch = random_batch(BATCH_MESSAGES, MESSAGE_BYTES)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue().to_pybytes()
    with httpx.Client(timeout=60) as client:
        for _ in range(BATCHES):
            client.post(f"{topic}/messages", content=body, headers={"content-type": ARROW}).raise_for_status()


def _timed(read: Callable[[], pa.Table]) -> float:
    began = time.perf_counter()
    table = read()
    took = time.perf_counter() - began
    if table.num_rows != BATCHES * BATCH_MESSAGES:
        raise BenchFailed(f"{BATCHES * BATCH_MESSAGES} messages published, {table.num_rows} read back")
    return took


def _through_the_broker(topic: str) -> pa.Table:
    pages: list[pa.Table] = []
    where = {"from": "earliest"}
    with httpx.Client(timeout=60, headers={"accept": ARROW}) as client:
        while True:
            answer = client.get(f"{topic}/messages", params={"limit": PAGE_ROWS, "max_bytes": PAGE_BYTES, **where})
            with pa.ipc.open_stream(answer.raise_for_status().content) as stream:
                page = stream.read_all()
            if not page.num_rows:
                return pa.concat_tables(pages)
            pages.append(page)
            where = {"marker": answer.headers["braid-marker"]}


def _from_files(topic: str, data: Path) -> pa.Table:
    """The live files, as the broker lists them, read where they lie."""
    folder = data / segments_folder(TOPIC)
    listed = httpx.get(f"{topic}/files", params={"limit": 10_000}, timeout=60).raise_for_status().json()["files"]
    paths = [file["uri"].removeprefix("file://") for file in listed]
    return ds.dataset(paths, format="parquet", partitioning="hive", partition_base_dir=str(folder)).to_table()


def _reading(what: str, seconds: float) -> Reading:
    messages = BATCHES * BATCH_MESSAGES
    return Reading(what, messages / seconds, messages * MESSAGE_BYTES / seconds / 1e6)
