"""Readers of every kind while a real broker publishes, rolls up and clears away: each message once at every moment."""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import duckdb
import httpx
import pytest

from braidmq import Client
from filer import keys
from filer.keys import FileName
from tests.support.broker.broker_process import BrokerProcess
from tests.support.cluster.counting_publisher import CountingPublisher
from tests.support.format_snippets import (
    DuckDbSnippets,
    PythonSnippets,
    Row,
    SparkSnippets,
    read_independently,
    rows_of,
)
from tests.support.store.quick_folder import quick_folder
from tests.support.thoroughness import few_or_many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]

Snippets = DuckDbSnippets | PythonSnippets
TOPIC, SEGMENTS = "demo", 2
# At least: it publishes until each reader has read a list from before a roll-up.
MESSAGES = few_or_many(4_000, 10_000)
# Each is a file at first, and a reader has to get through all of them in time.
DURING_A_READ = 400
GRACE_SECONDS = 12
UPKEEP = ("--maintenance-interval", "0.1", "--rollup-age", "0", "--grace", str(GRACE_SECONDS))
MOST_FILES = 20
# What the last roll-up superseded stays for the grace period; a busy machine needs some time to get there.
SETTLING_SECONDS = GRACE_SECONDS + 60


def by_client(url: str) -> list[Row]:
    with Client(url) as client:
        return sorted(rows_of(client.read_table(TOPIC)))


def check_once(rows: list[Row], *, acknowledged: int, sent: int) -> None:
    """All that was acknowledged before the reader began, without a gap; what came since as far as it was seen."""
    numbers = [int(value) for _, _, value in rows]
    assert len(numbers) == len(set(numbers))
    assert set(numbers) >= set(range(acknowledged))
    assert max(numbers) < sent
    for segment in range(SEGMENTS):
        offsets = [offset for found, offset, _ in rows if found == segment]
        assert offsets == sorted(set(offsets))
        before = [offset for found, offset, value in rows if found == segment and int(value) < acknowledged]
        assert before == list(range(len(before)))


def listed_and_read(snippets: Snippets) -> list[Row]:
    """What was listed is there for the grace period; a reader that a busy machine made slower has to list again."""
    rows = None
    while rows is None:
        listed_seconds = time.monotonic()
        snippets.list_files()
        rows = read_in_time(snippets, listed_seconds)
    return rows


def read_in_time(snippets: Snippets, listed_seconds: float) -> list[Row] | None:
    """What was listed then; None where reading it took longer than it has to be there."""
    try:
        return snippets.read()
    except Exception:
        if time.monotonic() - listed_seconds < GRACE_SECONDS:
            raise
        return None


def file_names(topic: Path) -> set[str]:
    return {f"{path.parent.name}/{path.name}" for path in (topic / "segments").glob("segment=*/*.parquet")}


def test_each_message_once_at_every_moment(spark: "SparkSession", tmp_path: Path) -> None:
    with quick_folder() as data, BrokerProcess(data=data, args=UPKEEP) as broker:
        topic = data / keys.topic_folder(TOPIC)
        httpx.put(f"{broker.url}/v1/topics/{TOPIC}", json={"segments": SEGMENTS}).raise_for_status()
        with CountingPublisher(urlsplit(broker.url).netloc, TOPIC, tmp_path) as publisher:
            read_while_publishing(topic, broker.url, publisher, spark)
            publisher.finish()
            messages = publisher.acknowledged
        assert messages >= MESSAGES
        snippets = SparkSnippets(topic, spark)
        check_once(listed_and_read(snippets), acknowledged=messages, sent=messages)
        await_settled(topic)
        check_once(by_client(broker.url), acknowledged=messages, sent=messages)
        # Nothing superseded is left: a bare glob will do.
        found = duckdb.sql(f"SELECT segment, _offset, value FROM '{topic}/segments/*/*.parquet' ORDER BY 1, 2")
        check_once(rows_of(found.to_arrow_table()), acknowledged=messages, sent=messages)


def read_while_publishing(topic: Path, url: str, publisher: CountingPublisher, spark: "SparkSession") -> None:
    readers: list[Callable[[], list[Row]]] = [
        lambda: listed_and_read(SparkSnippets(topic, spark)),
        lambda: listed_and_read(DuckDbSnippets(topic)),
        lambda: listed_and_read(PythonSnippets(topic)),
        lambda: read_independently(topic),
        lambda: by_client(url),
    ]
    # Each of them, because a busy machine makes one or the other slower than what it listed has to be there.
    unseen: list[Callable[[], Snippets]] = [
        lambda: SparkSnippets(topic, spark),
        lambda: DuckDbSnippets(topic),
        lambda: PythonSnippets(topic),
    ]
    await_first_files(topic, publisher)
    while unseen or publisher.acknowledged < MESSAGES:
        for read in readers:
            publisher.allow(DURING_A_READ)
            before = publisher.acknowledged
            rows = read()
            check_once(rows, acknowledged=before, sent=publisher.sent)
        unseen = [make for make in unseen if not read_after_a_roll_up(topic, publisher, make())]


def read_after_a_roll_up(topic: Path, publisher: CountingPublisher, snippets: Snippets) -> bool:
    """Take a list, wait for a roll-up and read what was listed; whether one came and all was read in time."""
    publisher.allow(DURING_A_READ)
    before, names = publisher.acknowledged, file_names(topic)
    listed_seconds = time.monotonic()
    snippets.list_files()
    sent = publisher.sent
    deadline = listed_seconds + GRACE_SECONDS / 4
    came = False
    while not came and time.monotonic() < deadline:
        assert publisher.running
        came = any("-" in name for name in file_names(topic) - names)
        time.sleep(0.01)
    rows = read_in_time(snippets, listed_seconds)
    if rows is None:
        return False  # a busy machine
    check_once(rows, acknowledged=before, sent=sent)
    return came


def await_first_files(topic: Path, publisher: CountingPublisher) -> None:
    publisher.allow(DURING_A_READ)
    while len({name.partition("/")[0] for name in file_names(topic)}) < SEGMENTS:
        assert publisher.running
        time.sleep(0.01)


def await_settled(topic: Path) -> None:
    """Wait until there are few files, and none that another stands for."""
    deadline = time.monotonic() + SETTLING_SECONDS
    while unsettled := problems_of(topic):
        assert time.monotonic() < deadline, f"not settled after {SETTLING_SECONDS} s: {'; '.join(unsettled)}"
        time.sleep(0.1)


def problems_of(topic: Path) -> list[str]:
    """Why a bare glob is not enough yet, or finds more files than it should."""
    names = file_names(topic)
    too_many = [f"{len(names)} files, {MOST_FILES} at most"] if len(names) > MOST_FILES else []
    return too_many + [problem for segment in range(SEGMENTS) for problem in overlaps(segment, names)]


def overlaps(segment: int, names: set[str]) -> list[str]:
    """Files of a segment that begin before the one ahead of them ends, by what their names say."""
    parsed = (FileName.parse(name) for name in names if name.startswith(f"segment={segment}/"))
    ordered = sorted((each for each in parsed if each), key=lambda name: name.base)
    # An owner's file does not say where it ends; it has one message or more.
    return [
        f"segment {segment}: {one} and {other} overlap"
        for one, other in pairwise(ordered)
        if other.base < (one.base + 1 if one.end is None else one.end)
    ]
