"""All flights into a topic past the brokers, more by HTTP, and a streaming query that counts them from the first on."""

from pathlib import Path

import duckdb
import httpx
import orjson
import pandas as pd
import pyarrow.parquet as pq
import pytest

from braidmq import Client
from filer.keys import segments_folder
from tests.support.broker.broker_process import BrokerProcess, broker_environment
from tests.support.process.mq import mq
from tests.support.process.process_group import ProcessGroup, python
from tests.support.topic.carrier_counts import BATCH_ROWS, CHECKPOINT, BatchFiles, Counts, plain_counts
from tests.support.topic.flights import ALL_FLIGHTS, KEY, ROW, write_flights

# Three times a Spark of its own: a minute would do on a machine that has nothing else to do.
pytestmark = [pytest.mark.xdist_group("spark-programs"), pytest.mark.timeout(600)]

TOPIC = "flights"
LOAD_SEGMENTS = 5
# Published in so many requests, with a change of the topic's segments between two.
ONLINE_ROWS, REQUESTS = 2000, 4
KILLED_IN = 3
NO_UPKEEP = ("--maintenance-interval", "3600")


def carrier_counts(url: str, folder: Path, *more: str) -> ProcessGroup:
    """The query; its temporary files go where the test's are."""
    env = broker_environment({"TMPDIR": str(folder.parent)})
    command = python("tests.support.topic.carrier_counts", url, TOPIC, str(folder), *more)
    return ProcessGroup(command, env=env, log=folder / "log")


def write_source(folder: Path) -> tuple[Path, pd.DataFrame]:
    """The flights as a Parquet file in a few parts, and as pandas knows them."""
    table = write_flights(folder / "flights.csv").table
    assert table.num_rows == ALL_FLIGHTS
    pq.write_table(table, folder / "flights.parquet", row_group_size=100_000)
    return folder / "flights.parquet", table.select([ROW, KEY, "carrier"]).to_pandas()


def backfill(url: str, source: Path) -> None:
    options = ("--key", KEY, "--value-json", "--event-time", "time_hour", "--order-by-event-time")
    report = mq("pipeline", "backfill", str(source), TOPIC, *options, "--segments", str(LOAD_SEGMENTS), "--json",
                "--url", url)  # fmt: skip
    answer = orjson.loads(report)
    assert (answer["messages"], answer["segments"]) == (ALL_FLIGHTS, LOAD_SEGMENTS)


def by_duckdb(folder: Path) -> tuple[Counts, int]:
    """The counts from the bare folder; and how many messages come behind a later one of their key."""
    query = f"""
        WITH messages AS (
            SELECT value->>'$.carrier' carrier, (value->>'$.{ROW}')::BIGINT number,
                key IS NOT NULL AND event_time < lag(event_time) OVER in_order too_late
            FROM '{folder}/*/*.parquet'
            WINDOW in_order AS (PARTITION BY key ORDER BY segment, _offset)
        )
        SELECT carrier, count(*), sum(number), sum(number * number), count_if(too_late) FROM messages GROUP BY carrier
    """
    with duckdb.connect() as connection:
        rows = connection.sql(query).fetchall()
    return {carrier: [int(each) for each in counts] for carrier, *counts, _ in rows}, sum(row[-1] for row in rows)


def publish(url: str, flights: pd.DataFrame) -> None:
    """As anybody would, without a client."""
    messages = [
        {"key": None if pd.isna(row[KEY]) else row[KEY], "value": {ROW: row[ROW], "carrier": row["carrier"]}}
        for row in flights.to_dict("records")
    ]
    httpx.post(f"{url}/v1/topics/{TOPIC}/messages", json={"messages": messages}, timeout=60).raise_for_status()


def open_segments(client: Client) -> list[int]:
    """By key range."""
    found = [each for each in client.topic(TOPIC).segments if each.state == "open"]
    return [each.segment for each in sorted(found, key=lambda each: each.range)]


def test_each_flight_is_counted_once_by_a_query_that_is_killed_and_restarted(tmp_path: Path) -> None:
    """It is killed when a micro-batch in the middle is in the sink and Spark does not know it.

    After that, segments split and merge under it.
    """
    counted = tmp_path / "counted"
    counted.mkdir()
    sink, commits = BatchFiles(counted), counted / CHECKPOINT / "commits"
    with BrokerProcess(data=tmp_path / "data", args=NO_UPKEEP) as broker, Client(broker.url) as client:
        client.create_topic(TOPIC, value_type="json", scaling={"enabled": False})
        with carrier_counts(broker.url, counted, str(KILLED_IN)) as query:
            # While Spark starts.
            source, flights = write_source(tmp_path)
            more = flights.iloc[:ONLINE_ROWS].assign(row=range(ALL_FLIGHTS, ALL_FLIGHTS + ONLINE_ROWS))
            online = [more.iloc[start::REQUESTS] for start in range(REQUESTS)]
            query.until((commits / "0").exists)
            assert sink.counts() == {}
            backfill(broker.url, source)
            assert by_duckdb(tmp_path / "data" / segments_folder(TOPIC)) == (plain_counts(flights), 0)
            query.until(sink.path(KILLED_IN).exists)
            publish(broker.url, online[0])
            query.kill()
        assert [(commits / str(batch)).exists() for batch in (KILLED_IN - 1, KILLED_IN)] == [True, False]
        half = sum(numbers[0] for numbers in sink.counts().values())
        assert 2 * BATCH_ROWS < half < ALL_FLIGHTS - 2 * BATCH_ROWS
        client.split_segment(TOPIC, *open_segments(client))
        publish(broker.url, online[1])
        with carrier_counts(broker.url, counted) as query:
            query.until(sink.path(KILLED_IN + 1).exists)
            client.split_segment(TOPIC, open_segments(client)[0])
            publish(broker.url, online[2])
            client.merge_segments(TOPIC, *open_segments(client)[1:])
            publish(broker.url, online[3])
            query.finish()
    assert sink.counts() == plain_counts(pd.concat([flights, more]))
