"""Requests to S3 are counted and priced as a bill does it."""

import tomllib
from pathlib import Path

import pytest

from bench import s3_costs
from bench.harness.request_counts import KINDS, kind_of

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
