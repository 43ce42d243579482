"""What S3 costs a month: counted requests times prices, both in a TOML file that you change (`bench/s3_costs.toml`)."""

import argparse
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.harness.running import console

MONTH_SECONDS = 30 * 86400
GIB = 1024**3
_BILLED_AS_PUTS, _BILLED_AS_GETS = ("PUT", "LIST"), ("GET", "HEAD")
_IDLE_SIZES = ((1, 10), (3, 10), (3, 100), (3, 1000), (10, 1000))
"""Brokers and topics."""


def requests_a_month(rates: Mapping[str, float], prices: Mapping[str, Any]) -> float:
    """The price of requests that are sent at such rates per second all month. Deletions cost nothing."""
    puts = sum(rates.get(kind, 0.0) for kind in _BILLED_AS_PUTS) * MONTH_SECONDS
    gets = sum(rates.get(kind, 0.0) for kind in _BILLED_AS_GETS) * MONTH_SECONDS
    return float(puts / 1000 * prices["puts_per_thousand"] + gets / 1000 * prices["gets_per_thousand"])


def idle_rates(idle: Mapping[str, Mapping[str, float]], brokers: int, topics: int) -> dict[str, float]:
    """Requests per second of a cluster that nobody uses: each broker looks at each topic's record."""
    times = {"broker": brokers, "topic_at_each_broker": brokers * topics, "cluster": 1}
    kinds = {kind for rates in idle.values() for kind in rates}
    return {kind: sum(idle[name].get(kind, 0.0) * count for name, count in times.items()) for kind in kinds}


def stored_a_month(message_bytes: float, messages_per_second: float, days: float, gib_month: float) -> float:
    """The price of keeping the messages of so many days."""
    return message_bytes * messages_per_second * days * 86400 / GIB * gib_month


def rows(facts: Mapping[str, Any], *, message_bytes: float, days: float) -> Iterator[tuple[str, float, float]]:
    """What it is, its requests a month, and its storage a month."""
    prices = facts["prices"]
    for brokers, topics in _IDLE_SIZES:
        rates = idle_rates(facts["idle"], brokers, topics)
        yield f"idle: brokers {brokers}, topics {topics:,}", requests_a_month(rates, prices), 0.0
    for each in facts["steady"]:
        rate = each["messages_per_second"]
        stored = stored_a_month(message_bytes, rate, days, prices["gib_month"])
        yield (
            f"a topic: {rate:,} messages/s, segments {each['segments']}",
            requests_a_month(each["requests"], prices),
            stored,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=Path, default=Path(__file__).with_suffix(".toml"), help="prices and counts")
    parser.add_argument("--message-bytes", type=float, default=200.0, help="bytes of a message as stored (200)")
    parser.add_argument("--days", type=float, default=7.0, help="days for which messages are kept (7)")
    options = parser.parse_args()
    facts = tomllib.loads(options.facts.read_text())
    title = f"a month; {facts['prices']['what']}; {options.message_bytes:g} bytes a message, kept {options.days:g} days"
    table = Table(title=title, title_justify="left")
    for name in ("", "requests", "storage", "together"):
        table.add_column(name, justify="right" if name else "left")
    for what, requests, storage in rows(facts, message_bytes=options.message_bytes, days=options.days):
        table.add_row(what, *(f"{each:,.2f}" for each in (requests, storage, requests + storage)))
    console().print(table)


if __name__ == "__main__":
    main()
