"""Every way of reading a topic, each with what it was given and the error with which it ended, if any."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException

from braidmq import AsyncClient, BraidMQError, Message
from braidmq.read import reader, stored_pages
from braidmq.read.file_reader import file_batches
from braidmq.read.file_ref import FileRef
from braidmq.read.remote_file import FileUnreachable
from braidmq.spark import read, register
from braidmq.transport.retry import Retry
from filer.clock import SystemClock
from filer.errors import BraidError
from filer.stores.open_store import open_store
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from pipeline.compact.compact import _plan, roll_up_run
from pipeline.export import parquet_table
from pipeline.export.export import Export, export_topic
from tests.cluster.faults.trials.trial_topic import TOPIC, Expected, Place, T, value_in
from tests.support.spark.workers import HERE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE_ROWS = 20
SILENT_SECONDS = 6.0
ARROW = "application/vnd.apache.arrow.stream"


@dataclass
class Reading:
    """What one reader was given, in order. `error` ended it; `segment` is the only one that it was to read."""

    name: str
    found: list[tuple[Place, bytes | None]] = field(default_factory=list)
    error: str | None = None
    segment: int | None = None

    def complaints(self, expected: Expected, *, may_miss: Callable[[Place], bool] = lambda place: False) -> list[str]:
        """What is wrong with what it was given, whatever error it got."""
        known = {place: value for place, value in expected.messages.items() if self.segment in (None, place[0])}
        complaints = []
        seen: set[Place] = set()
        for place, value in self.found:
            if place in seen:
                complaints.append(f"doubled: {self.name} was given {place} twice")
            seen.add(place)
            if place in known and known[place] != value:
                complaints.append(f"changed: {self.name} was given {value!r} at {place}, not {known[place]!r}")
            if place not in known and value not in expected.maybe:
                complaints.append(f"phantom: {self.name} was given {value!r} at {place}")
        if self.error is None:
            missing = sorted(place for place in known if place not in seen and not may_miss(place))
            if missing:
                complaints.append(f"missing: {self.name} was told nothing, and not given {missing}")
        return complaints


@dataclass(frozen=True)
class Address:
    """Where readers find the topic: at a broker, or on its store."""

    url: str
    client: httpx.AsyncClient
    address: StoreAddress


Read = Callable[[Address, Reading, Expected], Awaitable[None]]


async def browse(at: Address, reading: Reading, expected: Expected) -> None:
    params: dict[str, str | int] = {"from": "earliest", "limit": PAGE_ROWS}
    while True:
        page = _checked(await at.client.get(f"{T}/messages", params=params)).json()
        reading.found += [((m["segment"], m["offset"]), value_in(m)) for m in page["messages"]]
        if not page["messages"]:
            return
        params = {"marker": page["marker"], "limit": PAGE_ROWS}


async def arrow(at: Address, reading: Reading, expected: Expected) -> None:
    params: dict[str, str | int] = {"from": "earliest", "limit": PAGE_ROWS}
    while True:
        answer = _checked(await at.client.get(f"{T}/messages", params=params, headers={"accept": ARROW}))
        with pa.ipc.open_stream(answer.content) as stream:
            table = stream.read_all()
        reading.found += rows_of(table)
        if not table.num_rows:
            return
        params = {"marker": answer.headers["Braid-Marker"], "limit": PAGE_ROWS}


async def subscribe(at: Address, reading: Reading, expected: Expected) -> None:
    """Until all that is expected has come, or an error; silence is told by what is missing then."""
    wanted = set(expected.messages)
    with contextlib.suppress(TimeoutError):
        async with at.client.stream(
            "GET", f"{T}/subscribe", params={"from": "earliest"}, headers={"accept": "application/x-ndjson"}
        ) as answer:
            if answer.status_code != 200:
                raise Refusal((await answer.aread()).decode(errors="replace"))
            lines = answer.aiter_lines()
            while wanted:
                line = await asyncio.wait_for(anext(lines, None), SILENT_SECONDS)
                if line is None:
                    return
                document = orjson.loads(line)
                if message := document.get("message"):
                    place = message["segment"], message["offset"]
                    reading.found.append((place, value_in(message)))
                    wanted.discard(place)
                elif "end" in document:
                    raise Refusal(line)


async def by_files(at: Address, reading: Reading, expected: Expected) -> None:
    """The files that a broker lists, opened by whoever has the list."""
    after: dict[str, str] = {}
    reached: dict[int, int] = {}
    while True:
        page = _checked(await at.client.get(f"{T}/files", params={"limit": PAGE_ROWS, **after})).json()
        for entry in page["files"]:
            # Between two pages a roll-up may have come that begins before what was read.
            segment, end = entry["segment"], entry["end_offset"]
            start = max(entry["base_offset"], reached.get(segment, 0))
            file = FileRef(entry["uri"], entry.get("url"), start, end, entry["bytes"])
            table = await asyncio.to_thread(_rows_of_file, file, segment)
            offsets, values = table["_offset"].to_pylist(), table["value"].to_pylist()
            reading.found += [((segment, offset), value) for offset, value in zip(offsets, values, strict=True)]
            reached[segment] = end
        if page["next"] is None:
            return
        after = {"after": page["next"]}


def _rows_of_file(file: FileRef, segment: int) -> pa.Table:
    # Certificates, which nothing here needs, would take longer to load than all files to read.
    with httpx.Client(verify=False) as http:
        try:
            batches = list(file_batches(http, file, segment, file.start, file.stop, ["_offset", "value"]))
        except FileUnreachable as error:
            raise Refusal(f"{file.uri}: {error}") from error
    table = pa.Table.from_batches(batches) if batches else pa.table({"_offset": [], "value": []})
    if table.num_rows != file.stop - file.start:
        raise Refusal(f"{file.uri} has {table.num_rows} of {file.stop - file.start} messages")
    return table


async def python_client(at: Address, reading: Reading, expected: Expected) -> None:
    """With pages so small, and files so welcome, that it reads files from the store."""
    with (
        mock.patch.object(reader, "PAGE_ROWS", PAGE_ROWS),
        mock.patch.object(stored_pages, "LEAST_ROWS", 1),
        mock.patch.object(stored_pages, "_LEAST_ROWS_A_FILE", 0),
    ):
        async with AsyncClient(at.url, retry=Retry(give_up_after_seconds=1.0)) as client:
            async for message in client.browse(TOPIC):
                reading.found.append(((message.segment, message.offset), message.value))


async def compaction(at: Address, reading: Reading, expected: Expected) -> None:
    """Roll up what there is, as the Spark job does. What its files hold, the other readers read."""
    async with _store(at.address) as store:
        clock = SystemClock()
        plan = await _plan(TOPIC, store, clock, rollup_bytes=64 << 20, open_age_seconds=0.0)
        for run in plan.runs:
            await roll_up_run(store, clock, run)
    reading.found += [(place, value) for place, value in expected.messages.items()]


async def export(at: Address, reading: Reading, expected: Expected) -> None:
    """A table of all messages."""
    folder = Path(tempfile.mkdtemp(prefix="braidmq-export-"))
    try:
        await asyncio.to_thread(_export, at.address, folder)
        for path in folder.rglob("*.parquet"):
            table = await asyncio.to_thread(partial(pq.read_table, path, partitioning=None))
            reading.found += rows_of(table)
    finally:
        shutil.rmtree(folder)


def _export(source: StoreAddress, folder: Path) -> None:
    export_topic(HERE, Export(source, StoreAddress(str(folder)), TOPIC), parquet_table.finish_run)


READERS: dict[str, Read] = {
    "browse": browse,
    "arrow": arrow,
    "subscribe": subscribe,
    "files": by_files,
    "python client": python_client,
    "compaction": compaction,
    "export": export,
}


class Refusal(Exception):
    """The answer was an error."""


def spark_readers(spark: "SparkSession") -> dict[str, Read]:
    """Spark by the data source, and by its own reader over the live files."""
    register(spark)

    def by_source(at: Address) -> pa.Table:
        return spark.read.format("braidmq").option("url", at.url).option("topic", TOPIC).load().toArrow()

    def by_own_reader(at: Address) -> pa.Table:
        return read(spark, TOPIC, url=at.url).toArrow()

    def reader_of(load: Callable[[Address], pa.Table]) -> Read:
        async def read_all(at: Address, reading: Reading, expected: Expected) -> None:
            try:
                table = await asyncio.to_thread(load, at)
            except PySparkException as error:
                raise Refusal(str(error)) from error
            reading.found += rows_of(table)

        return read_all

    return {"spark source": reader_of(by_source), "spark native": reader_of(by_own_reader)}


async def read_by(name: str, read_all: Read, at: Address, expected: Expected) -> Reading:
    """Read the whole topic one way. An error of any kind ends up in the reading."""
    reading, known = Reading(name), expected.copy()
    try:
        await read_all(at, reading, known)
    except (Refusal, BraidError, httpx.HTTPError, pa.ArrowException, OSError) as error:
        # The client's errors carry the broker's problem document.
        reading.error = f"{type(error).__name__}: {error} {getattr(error, 'problem', '')}"
    return reading


async def read_history(at: Address) -> tuple[set[int], str | None]:
    """The segments that the topic tells of having had, and the error instead, if any."""
    answer = await at.client.get(f"{T}/history", params={"limit": 1000})
    if answer.status_code != 200:
        return set(), answer.text
    return {life["segment"] for life in answer.json()["segments"]}, None


async def read_payloads(at: Address, expected: Expected) -> AsyncIterator[tuple[Place, bytes | None, str | None]]:
    """The payload of each message by reference, as a client reads it, or the error instead."""
    async with AsyncClient(at.url, retry=Retry(give_up_after_seconds=1.0)) as client:
        for place, (reference, _) in expected.payloads.items():
            message = Message(TOPIC, *place, datetime.fromtimestamp(0, UTC), key=None, value=None, ref=reference)
            try:
                async with client.open(message) as payload:
                    yield place, await payload.read(), None
            except BraidMQError as error:
                yield place, None, f"{error} {getattr(error, 'problem', '')}"


async def read_segment(at: Address, segment: int, start: int = 0) -> tuple[Reading, dict[str, Any]]:
    """Read one segment from an offset on. Returns also the problem document that ended it, if any."""
    reading, offset = Reading(f"segment {segment}", segment=segment), start
    while True:
        answer = await at.client.get(f"{T}/segments/{segment}/messages", params={"offset": offset, "limit": PAGE_ROWS})
        if answer.status_code != 200:
            reading.error = answer.text
            return reading, _document(answer)
        page = answer.json()
        if not page["messages"]:
            return reading, {}
        reading.found += [((m["segment"], m["offset"]), value_in(m)) for m in page["messages"]]
        offset = page["messages"][-1]["offset"] + 1


def rows_of(table: pa.Table) -> Iterator[tuple[Place, bytes | None]]:
    columns = (table[name].to_pylist() for name in ("segment", "_offset", "value"))
    return (((segment, offset), value) for segment, offset, value in zip(*columns, strict=True))


@contextlib.asynccontextmanager
async def _store(address: StoreAddress) -> AsyncIterator[Store]:
    store = open_store(address, SystemClock())
    try:
        yield store
    finally:
        await store.close()


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.status_code != 200:
        raise Refusal(answer.text)
    return answer


def _document(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
