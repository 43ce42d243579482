"""Readers of every kind while a real broker publishes, rolls up and clears away: each message once at every moment."""

import http.client
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import httpx
import pytest
from pyspark.sql import SparkSession

from braidmq import Client
from filer import keys
from tests.support.broker_process import BrokerProcess
from tests.support.format_snippets import (
    DuckDbSnippets,
    PythonSnippets,
    Row,
    SparkSnippets,
    read_independently,
    rows_of,
)
from tests.support.quick_folder import quick_folder

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]

TOPIC, SEGMENTS = "demo", 2
MESSAGES = 20_000
# Readers hold the publisher up: they share the interpreter with it. So they read once for each of these.
BETWEEN_READS = 800
GRACE_SECONDS = 12
UPKEEP = ("--maintenance-interval", "0.1", "--rollup-age", "0", "--grace", str(GRACE_SECONDS))
MOST_FILES = 20
SETTLING_SECONDS = 60


class Publisher(threading.Thread):
    """Single messages one after another, so that nearly each is a file: their values count up."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._address = urlsplit(url).netloc
        self.sent = self.acknowledged = 0

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=30)
        for number in range(MESSAGES):
            self.sent = number + 1
            connection.request("POST", f"/v1/topics/{TOPIC}/messages?key=k{number % 13}", str(number))
            response = connection.getresponse()
            response.read()
            assert response.status == 200, response.status
            self.acknowledged = number + 1
        connection.close()


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


def listed_and_read(snippets: DuckDbSnippets | PythonSnippets) -> list[Row]:
    """What was listed is there for the grace period; a reader that a busy machine made slower has to list again."""
    while True:
        listed_seconds = time.monotonic()
        snippets.list_files()
        try:
            return snippets.read()
        except Exception:
            if time.monotonic() - listed_seconds < GRACE_SECONDS:
                raise


def file_names(topic: Path) -> set[str]:
    return {f"{path.parent.name}/{path.name}" for path in (topic / "segments").glob("segment=*/*.parquet")}


def test_each_message_once_at_every_moment(spark: SparkSession) -> None:
    with quick_folder() as data, BrokerProcess(data=data, args=UPKEEP) as broker:
        topic = data / keys.topic_folder(TOPIC)
        httpx.put(f"{broker.url}/v1/topics/{TOPIC}", json={"segments": SEGMENTS}).raise_for_status()
        publisher = Publisher(broker.url)
        publisher.start()
        try:
            read_while_publishing(topic, broker.url, publisher, spark)
        finally:
            publisher.join()
        assert publisher.acknowledged == MESSAGES
        snippets = SparkSnippets(topic, spark)
        check_once(listed_and_read(snippets), acknowledged=MESSAGES, sent=MESSAGES)
        await_settled(topic)
        check_once(by_client(broker.url), acknowledged=MESSAGES, sent=MESSAGES)
        # Nothing superseded is left: a bare glob will do.
        found = duckdb.sql(f"SELECT segment, _offset, value FROM '{topic}/segments/*/*.parquet' ORDER BY 1, 2")
        check_once(rows_of(found.to_arrow_table()), acknowledged=MESSAGES, sent=MESSAGES)


def read_while_publishing(topic: Path, url: str, publisher: Publisher, spark: SparkSession) -> None:
    readers: list[Callable[[], list[Row]]] = [
        lambda: listed_and_read(SparkSnippets(topic, spark)),
        lambda: listed_and_read(DuckDbSnippets(topic)),
        lambda: listed_and_read(PythonSnippets(topic)),
        lambda: read_independently(topic),
        lambda: by_client(url),
    ]
    rolled_up_between = 0
    await_first_files(topic, publisher)
    while publisher.is_alive():
        for read in readers:
            before = publisher.acknowledged
            rows = read()
            check_once(rows, acknowledged=before, sent=publisher.sent)
        rolled_up_between += read_after_a_roll_up(topic, publisher, spark)
        await_more(publisher, publisher.acknowledged + BETWEEN_READS)
    assert rolled_up_between


def read_after_a_roll_up(topic: Path, publisher: Publisher, spark: SparkSession) -> bool:
    """Take a list, wait for a roll-up and read what was listed; whether one came and all read in time."""
    before, names = publisher.acknowledged, file_names(topic)
    snippets = [DuckDbSnippets(topic), PythonSnippets(topic), SparkSnippets(topic, spark)]
    for each in snippets:
        each.list_files()
    sent = publisher.sent
    deadline = time.monotonic() + GRACE_SECONDS / 4
    came = False
    while not came and time.monotonic() < deadline and publisher.is_alive():
        came = any("-" in name for name in file_names(topic) - names)
        time.sleep(0.01)
    for each in snippets:
        if time.monotonic() > deadline + GRACE_SECONDS / 2:
            return False  # a busy machine: what was listed may be gone by now
        check_once(each.read(), acknowledged=before, sent=sent)
    return came


def await_first_files(topic: Path, publisher: Publisher) -> None:
    while len({name.partition("/")[0] for name in file_names(topic)}) < SEGMENTS:
        assert publisher.is_alive()
        time.sleep(0.01)


def await_more(publisher: Publisher, acknowledged: int) -> None:
    while publisher.is_alive() and publisher.acknowledged < acknowledged:
        time.sleep(0.01)


def await_settled(topic: Path) -> None:
    """Wait until there are few files, and none that another stands for."""
    deadline = time.monotonic() + SETTLING_SECONDS
    while len(names := file_names(topic)) > MOST_FILES:
        assert time.monotonic() < deadline, sorted(names)
        time.sleep(0.1)
