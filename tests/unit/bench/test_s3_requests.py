"""Requests to S3 are counted and priced as a bill does it."""

import tomllib
from pathlib import Path

import pytest

from bench import s3_costs
from bench.harness.request_counts import KINDS, kind_of
from filer.segment.writer.writer_settings import WriterSettings

FACTS = tomllib.loads(Path(s3_costs.__file__).with_suffix(".toml").read_text())


@pytest.mark.parametrize(
    ("method", "query", "kind"),
    [
        ("PUT", "", "PUT"),
        ("GET", "", "GET"),
        ("GET", "list-type=2&prefix=topics%2F&delimiter=%2F", "LIST"),
        ("HEAD", "", "HEAD"),
        ("DELETE", "", "DELETE"),
        ("POST", "delete", "DELETE"),
    ],
)
def test_kinds(method: str, query: str, kind: str) -> None:
    assert kind_of(method, query) == kind
    assert kind in KINDS


def test_a_month_of_requests() -> None:
    prices = {"puts_per_thousand": 0.005, "gets_per_thousand": 0.0004}
    month = 30 * 86400
    assert s3_costs.requests_a_month({"PUT": 1, "LIST": 1}, prices) == pytest.approx(2 * month * 0.000005)
    assert s3_costs.requests_a_month({"GET": 1, "HEAD": 1}, prices) == pytest.approx(2 * month * 0.0000004)
    assert s3_costs.requests_a_month({"DELETE": 1}, prices) == 0


def test_what_is_idle_costs_by_brokers_and_topics() -> None:
    idle = {"broker": {"HEAD": 0.2}, "topic_at_each_broker": {"GET": 0.1}, "cluster": {"LIST": 0.5}}
    assert s3_costs.idle_rates(idle, 3, 10) == pytest.approx({"HEAD": 0.6, "GET": 3.0, "LIST": 0.5})


def test_the_facts_make_a_table() -> None:
    rows = list(s3_costs.rows(FACTS, message_bytes=200, days=7))
    assert len(rows) == 5 + len(FACTS["steady"])
    assert all(requests > 0 for _, requests, _ in rows)


@pytest.mark.parametrize(
    ("bytes_per_second", "puts"),
    [
        # A trickle: files are small, so the interval is two and a half times as long.
        (10_000, 4.0),
        (1_000_000, 10.0),
        # Files of 40 KB after 100 ms and of 100 KB after 250 take turns.
        (400_000, 2 / 0.35),
        # A file is full before its interval is over.
        (200 * 1024**2, 25.0),
    ],
)
def test_files_are_written_by_the_rules_of_the_flush_timer(bytes_per_second: float, puts: float) -> None:
    writing = WriterSettings(flush_interval_seconds=0.1)
    assert s3_costs.puts_by_the_rules(bytes_per_second, writing) == pytest.approx(puts, rel=0.01)


def test_a_gib_costs_what_its_requests_cost() -> None:
    prices = {"puts_per_thousand": 0.005, "gets_per_thousand": 0.0004}
    assert s3_costs.price_a_gib({"PUT": 100}, s3_costs.GIB, prices) == pytest.approx(0.0005)
    assert s3_costs.price_a_gib({"PUT": 100}, s3_costs.GIB / 2, prices) == pytest.approx(0.001)


def test_what_is_spread_is_told_by_the_rules_as_counted_and_beside_others() -> None:
    told = {each.what: each for each in s3_costs.spread(FACTS)}
    stored, counted = (
        told["1 MB/s into 100 topics, acks=stored"],
        told["1 MB/s into 100 topics, as counted, all requests"],
    )
    assert stored.puts_computed == pytest.approx(400, rel=0.01)
    # What was counted is what the rules say.
    assert counted.puts_counted == pytest.approx(400, rel=0.05)
    # As published: less than 40 dollars a day for 140 MiB/s.
    assert told["WarpStream, 140 MiB/s, read three times, as published"].dollars_a_gib == pytest.approx(
        0.0034, rel=0.01
    )
    gathered = told["1 MB/s, Redpanda cloud topics, by its rule"]
    assert gathered.puts_computed == pytest.approx(12)
    assert stored.dollars_a_gib / gathered.dollars_a_gib == pytest.approx(400 / 12, rel=0.01)
