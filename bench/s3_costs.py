"""What S3 costs a month: counted requests times prices, both in a TOML file that you change (`bench/s3_costs.toml`).

And what a GiB costs that is spread over many topics: by the rules by which files are written, and as counted.
"""

import argparse
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.harness.running import console
from filer.segment.writer.flush_timer import TRICKLE_BYTES
from filer.segment.writer.writer_settings import WriterSettings

MONTH_SECONDS = 30 * 86400
GIB = 1024**3
_BILLED_AS_PUTS, _BILLED_AS_GETS = ("PUT", "LIST"), ("GET", "HEAD")
_FILES_COMPUTED = 1000
_WRITING = (
    ("acks=stored", 0.1, 2.5),
    ("acks=replicated", 1.0, 1.0),
    ("acks=stored, --flush-interval 1s", 1.0, 2.5),
)
"""How segments are written on S3: what it is called, the interval, and how much longer it is after a small file."""
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


def price_a_second(rates: Mapping[str, float], prices: Mapping[str, Any]) -> float:
    """The price of requests that are sent at such rates per second, for a second."""
    return requests_a_month(rates, prices) / MONTH_SECONDS


def price_a_gib(rates: Mapping[str, float], bytes_per_second: float, prices: Mapping[str, Any]) -> float:
    """The price of the requests for each GiB that is published."""
    return price_a_second(rates, prices) / (bytes_per_second / GIB)


def puts_by_the_rules(bytes_per_second: float, writing: WriterSettings) -> float:
    """How many files a second the owner of a segment writes for a steady stream into it: see `FlushTimer`.

    A file is written an interval after the one before, and later where that one was small, or as soon as it is full.
    """
    files, took_seconds, last_bytes = 0, 0.0, float(TRICKLE_BYTES)
    while files < _FILES_COMPUTED:
        factor = 1.0 if last_bytes >= TRICKLE_BYTES else writing.trickle_factor
        interval_seconds = min(writing.flush_interval_seconds * factor, writing.flush_bytes / bytes_per_second)
        files, took_seconds = files + 1, took_seconds + interval_seconds
        last_bytes = bytes_per_second * interval_seconds
    return files / took_seconds


@dataclass(frozen=True, slots=True)
class Spread:
    """A line of the table of what is spread over many topics."""

    what: str
    puts_computed: float | None
    puts_counted: float | None
    dollars_a_gib: float


def spread(facts: Mapping[str, Any]) -> Iterator[Spread]:
    """What a GiB costs with us, by the rules and as counted; and with others, by their rules and as they publish it."""
    prices = facts["prices"]
    for each in facts["spread"]:
        yield from _ours(each, prices)
        yield from (_by_their_rule(peer, each["bytes_per_second"], prices) for peer in facts["peers"])
    for peer in facts["published"]:
        gib = peer["mib_per_second"] / 1024 * peer["days"] * 86400
        yield Spread(f"{peer['what']}, as published", None, None, peer["dollars"] / gib)


def _ours(fact: Mapping[str, Any], prices: Mapping[str, Any]) -> Iterator[Spread]:
    topics, rate = fact["topics"], fact["bytes_per_second"]
    what = f"{_mb(rate)} into {topics} topics"
    for how, interval_seconds, trickle_factor in _WRITING:
        writing = WriterSettings(flush_interval_seconds=interval_seconds, trickle_factor=trickle_factor)
        puts = topics * puts_by_the_rules(rate / topics, writing)
        yield Spread(f"{what}, {how}", puts, None, price_a_gib({"PUT": puts}, rate, prices))
    puts = puts_by_the_rules(rate, WriterSettings(flush_interval_seconds=_WRITING[0][1]))
    yield Spread(f"{what}, which are one topic group", puts, None, price_a_gib({"PUT": puts}, rate, prices))
    counted = {kind: value * fact["times"] for kind, value in fact["requests"].items()}
    yield Spread(f"{what}, as counted, all requests", None, counted["PUT"], price_a_gib(counted, rate, prices))


def _by_their_rule(peer: Mapping[str, Any], rate: float, prices: Mapping[str, Any]) -> Spread:
    """One file for all topics of a process, after so long or at so many bytes."""
    processes = peer["processes"]
    writing = WriterSettings(flush_interval_seconds=peer["seconds"], flush_bytes=peer["bytes"], trickle_factor=1.0)
    puts = processes * puts_by_the_rules(rate / processes, writing)
    return Spread(f"{_mb(rate)}, {peer['what']}, by its rule", puts, None, price_a_gib({"PUT": puts}, rate, prices))


def _mb(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:g} MB/s"


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
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=Path, default=Path(__file__).with_suffix(".toml"), help="prices and counts")
    parser.add_argument("--message-bytes", type=float, default=200.0, help="bytes of a message as stored (200)")
    parser.add_argument("--days", type=float, default=7.0, help="days for which messages are kept (7)")
    parser.add_argument("--spread", action="store_true", help="what a GiB costs that is spread over many topics")
    options = parser.parse_args()
    facts = tomllib.loads(options.facts.read_text())
    console().print(
        _spread_table(facts) if options.spread else _month_table(facts, options.message_bytes, options.days)
    )


def _month_table(facts: Mapping[str, Any], message_bytes: float, days: float) -> Table:
    title = f"a month; {facts['prices']['what']}; {message_bytes:g} bytes a message, kept {days:g} days"
    table = _table(title, "requests", "storage", "together")
    for what, requests, storage in rows(facts, message_bytes=message_bytes, days=days):
        table.add_row(what, *(f"{each:,.2f}" for each in (requests, storage, requests + storage)))
    return table


def _spread_table(facts: Mapping[str, Any]) -> Table:
    table = _table(f"requests; {facts['prices']['what']}", "PUT/s computed", "counted", "dollars a GiB")
    for each in spread(facts):
        puts = ("" if puts is None else f"{puts:,.1f}" for puts in (each.puts_computed, each.puts_counted))
        table.add_row(each.what, *puts, f"{each.dollars_a_gib:,.4f}")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table("", title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="right")
    return table


if __name__ == "__main__":
    main()
