"""Compaction: far fewer files, each message once at all times, whoever is killed and whoever else keeps the topic."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from braidmq import Client
from filer import keys
from filer.clock import ManualClock, SystemClock
from filer.errors import CorruptFile
from filer.format.requests import Position, RequestId, StoredRequest
from filer.format.segment_file import Footer, encode
from filer.keys import FileName
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, fetch_footer, recover_index
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from pipeline.commands import parse
from pipeline.compact.compact import Run, compact, roll_up_run
from pipeline.stores import run_on_store
from pipeline.topic_files import SegmentFiles, list_topic, read_topic
from tests.support.broker.broker_process import BrokerProcess, broker_environment
from tests.support.format_snippets import DuckDbSnippets, SparkSnippets, read_independently, rows_of
from tests.support.process.mq import mq
from tests.support.segment.segment_owners import stored_values
from tests.support.spark.workers import HERE, on_spark
from tests.support.store.dying_store import DyingStore, Killed
from tests.support.store.quick_folder import quick_folder
from tests.support.thoroughness import few_or_many
from tests.support.topic.segment_files import START_US, append, append_singly, check_readable, rows, value_of
from tests.support.topic.stored_topic import TOPIC, put_topic, store_topic, write_sealed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

SMALL_FILES = few_or_many(2_500, 10_000)
OF_THE_FIRST = SMALL_FILES * 3 // 5
GRACE_SECONDS = 2
WAIT_SECONDS = 60


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


def live_of(folder: Path) -> list[SegmentFiles]:
    async def work(store: Store, clock: SystemClock) -> list[SegmentFiles]:
        return await list_topic(store, await read_topic(store, clock, TOPIC))

    return run_on_store(StoreAddress(str(folder)), work)


def files_on_disk(folder: Path) -> int:
    return len(list(folder.glob(f"topics/{TOPIC}/segments/*/*.parquet")))


def expected_rows(counts: Sequence[int]) -> list[tuple[int, int, bytes]]:
    return [(segment, offset, value_of(offset)) for segment, count in enumerate(counts) for offset in range(count)]


def check_readers(folder: Path, counts: Sequence[int]) -> None:
    topic = folder / "topics" / TOPIC
    snippets = DuckDbSnippets(topic)
    snippets.list_files()
    assert snippets.read() == expected_rows(counts)
    assert read_independently(topic) == expected_rows(counts)


@pytest.mark.timeout(300)
def test_thousands_of_small_files_are_few_and_every_reader_finds_each_message_once(
    spark: "SparkSession", folder: Path
) -> None:
    asyncio.run(
        store_topic(folder, sealed={0: [1] * OF_THE_FIRST, 1: [1] * (SMALL_FILES - OF_THE_FIRST)}, still_open=[5])
    )
    counts = (OF_THE_FIRST, SMALL_FILES - OF_THE_FIRST, 5)
    with reading_meanwhile(folder / "topics" / TOPIC, counts) as readings:
        done = compact(on_spark(spark), StoreAddress(str(folder)), TOPIC)
    assert done.files_before == SMALL_FILES + 1 and done.files_after * 50 <= done.files_before and not done.left
    assert sum(len(each.files) for each in live_of(folder)) == done.files_after
    assert readings
    check_readers(folder, counts)
    # A broker takes them in, gives the space back, and serves the same.
    with broker(folder) as process:
        until(lambda: files_on_disk(folder) * 50 <= SMALL_FILES)
        with Client(process.url) as client:
            assert sorted(rows_of(client.read_table(TOPIC))) == expected_rows(counts)
    check_readers(folder, counts)


# One reading takes as long; without a pause, half of the compaction's time would be theirs.
PAUSE_SECONDS = 1.0


@contextlib.contextmanager
def reading_meanwhile(topic: Path, counts: Sequence[int]) -> Iterator[list[int]]:
    """DuckDB by the documented rule, again and again until the block has ended; each reading must be whole."""
    readings: list[int] = []
    ended, failures = threading.Event(), list[BaseException]()

    def read() -> None:
        snippets = DuckDbSnippets(topic)
        try:
            while not ended.is_set():
                snippets.list_files()
                assert snippets.read() == expected_rows(counts)
                readings.append(1)
                ended.wait(PAUSE_SECONDS)
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield readings
    finally:
        ended.set()
        reader.join()
    assert not failures, failures


def broker(folder: Path, *args: str) -> BrokerProcess:
    upkeep = ("--maintenance-interval", "0.1", "--grace", str(GRACE_SECONDS))
    return BrokerProcess(data=folder, args=[*upkeep, *args])


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(300)
def test_a_dry_run_says_what_would_be_rolled_up_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(store_topic(folder, sealed={0: [1] * 30}, still_open=[5]))
    before = files_on_disk(folder)
    told = parse(["compact", TOPIC, "--store", str(folder), "--dry-run", "--json"])
    told.command(HERE, told)
    found = json.loads(capsys.readouterr().out)
    assert (found["files_before"], found["rollups"], files_on_disk(folder)) == (31, 1, before)
    assert found["files_after"] < 10


def test_beside_a_running_broker_that_is_told_and_gives_the_space_back(spark: "SparkSession", folder: Path) -> None:
    """Of an open segment and a sealed one, neither of them so full or so old that the broker rolls it up."""
    with broker(folder, "--rollup-age", "3600") as process, Client(process.url) as client:
        client.create_topic(TOPIC)
        # What does not compress is not so tiny that it would be rolled up at once.
        padding = SystemClock().entropy(20_000)
        for number in range(60):
            client.publish(TOPIC, b"%d " % number + padding, key=b"k")
        client.split_segment(TOPIC, 0, parts=2)
        for number in range(60, 120):
            client.publish(TOPIC, b"%d " % number + padding, key=b"k")
        assert len(list(client.files(TOPIC))) >= 120
        told = mq("pipeline", "compact", TOPIC, "--open-age", "0", "--url", process.url, "--master", "local[2]")
        assert told.startswith(b"topic t: 12") and b"\n2 roll-ups of " in told
        until(lambda: len(list(client.files(TOPIC))) <= 8)
        until(lambda: files_on_disk(folder) <= 10)
        client.publish(TOPIC, b"120 " + padding, key=b"k")
        values = client.read_table(TOPIC)["value"].to_pylist()
        assert [int(value.split()[0]) for value in values] == list(range(121))


@pytest.mark.timeout(300)
def test_killed_in_the_middle_and_run_again_it_completes(spark: "SparkSession", folder: Path) -> None:
    # So many files that Spark rolls them up: in its own process the job would be done before it is killed.
    asyncio.run(store_topic(folder, sealed={each: [1] * 260 for each in range(8)}))
    counts = (*[260] * 8, 3)
    listed_before = SparkSnippets(folder / "topics" / TOPIC, spark)
    listed_before.list_files()
    command = [sys.executable, "-m", "pipeline", "compact", TOPIC, "--store", str(folder), "--master", "local[1]"]
    process = subprocess.Popen(command, env=broker_environment({}), start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        until(lambda: process.poll() is not None or files_on_disk(folder) > 8 * 261 + 1)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert files_on_disk(folder) < 8 * 262 + 1
    check_readers(folder, counts)
    done = compact(on_spark(spark), StoreAddress(str(folder)), TOPIC)
    assert done.files_after == 8 + 1
    check_readers(folder, counts)
    assert listed_before.read() == expected_rows(counts)
    assert not compact(on_spark(spark), StoreAddress(str(folder)), TOPIC).rolled


async def sealed_run(store: Store) -> tuple[SegmentRef, Run]:
    ref = SegmentRef(TOPIC, 0)
    await put_topic(store, ends={0: await write_sealed(store, ref, [1] * 12)})
    return ref, await the_run(store, ManualClock())


async def the_run(store: Store, clock: ManualClock) -> Run:
    (listed, *_) = await list_topic(store, await read_topic(store, clock, TOPIC))
    return Run(listed.files, listed.segment.state == "sealed")


async def test_killed_at_every_request_nothing_is_lost_and_another_completes():
    whole = DyingStore(MemoryStore())
    _, run = await sealed_run(whole)
    before = whole.requests
    await roll_up_run(whole, ManualClock(), run)
    requests = whole.requests - before
    assert requests > 14
    for request in range(requests):
        for takes_effect in (False, True):
            store = MemoryStore()
            ref, run = await sealed_run(store)
            with pytest.raises(Killed):
                await roll_up_run(DyingStore(store).die_at(request, before=not takes_effect), ManualClock(), run)
            await check_readable(store, ref, range(12))
            rolled = await roll_up_run(store, ManualClock(seed=request + 1), run)
            assert rolled.why_not is None
            await check_readable(store, ref, range(12))


async def test_a_file_that_came_late_to_a_load_is_not_rolled_up():
    """By an address that was given out before the commit, under a name within a file that was adopted."""
    store, ref = MemoryStore(), SegmentRef(TOPIC, 0)
    state = await put_topic(store, ends={0: await write_sealed(store, ref, [3] * 4)})
    adopted = state.segments[0].model_copy(update={"load": "l"})
    changed = state.model_copy(update={"segments": (adopted, *state.segments[1:]), "version": 2})
    await store.replace(keys.topic(TOPIC), changed.to_json(), etag=(await store.head(keys.topic(TOPIC))).etag)
    late = encode(ref.schema.in_file(rows(ref, 1, 5, padding=b" late")), Footer(0, 1, 5, "load:l", START_US, START_US))
    await store.create(ref.key(FileName(1)), late)
    run = await the_run(store, ManualClock())
    assert [(file.name.base, file.stop) for file in run.files] == [(0, 3), (3, 6), (6, 9), (9, 12)]
    assert (await roll_up_run(store, ManualClock(), run)).why_not is None
    await check_readable(store, ref, range(12))
    assert await stored_values(store, ref) == [value_of(offset) for offset in range(12)]


async def test_what_others_rolled_up_and_deleted_meanwhile_is_left_alone():
    store = MemoryStore()
    _, run = await sealed_run(store)
    await store.delete([run.files[3].key])
    rolled = await roll_up_run(store, ManualClock(), run)
    assert rolled.why_not is not None and "others have rolled it up meanwhile" in rolled.why_not


@pytest.mark.parametrize("still_there", [True, False])
async def test_what_has_expired_meanwhile_is_not_brought_back(still_there: bool):
    """Retention took all of the segment's messages, or the segment itself."""
    store = MemoryStore()
    _, run = await sealed_run(store)
    await store.delete([keys.topic(TOPIC)])
    await put_topic(store, ends={0: 12} if still_there else {}, start_offset=12, open_segment=1)
    rolled = await roll_up_run(store, ManualClock(), run)
    assert rolled.why_not == "its messages have expired meanwhile"
    assert len([info async for info in store.list(keys.segments_folder(TOPIC))]) == 13


async def test_of_an_open_segment_a_file_behind_a_gap_does_not_come_to_count():
    store, ref = MemoryStore(), SegmentRef(TOPIC, 0)
    index = SegmentIndex()
    await append_singly(store, ref, index, 12)
    await put_topic(store, ends={})
    run = await the_run(store, ManualClock())
    torn = Run((*run.files[:3], *run.files[4:]), sealed=False)
    with pytest.raises(CorruptFile, match="are not consecutive"):
        await roll_up_run(store, ManualClock(), torn)


async def test_an_open_segments_roll_up_says_what_its_files_said_of_producers():
    store, ref = MemoryStore(), SegmentRef(TOPIC, 0)
    stored = [StoredRequest(RequestId("p", sequence), Position(0, sequence, 1)) for sequence in range(8)]
    index = SegmentIndex()
    for request in stored:
        await append(store, ref, index, 1, requests=(request,))
    await put_topic(store, ends={})
    run = await the_run(store, ManualClock())
    await roll_up_run(store, ManualClock(), run)
    footer, _ = await fetch_footer(store, ref.key(FileName(0, 8)))
    assert footer.requests == tuple(stored)
    recovered = await recover_index(store, ref)
    assert recovered.windows.stored_between(0, 0, 8) == stored
