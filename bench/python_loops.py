"""How fast a Python loop publishes and reads: `producer.send` and `for message in client.browse()`, one at a time.

    .venv/bin/python -m bench.python_loops --seconds 5

One `mq serve` on a directory in memory, and the blocking client in this process: both share the machine's processors.
Messages have 200 B and a key, and go into 1 or 4 segments. The time of publishing ends when all are acknowledged.
Receipts are dropped, or kept to the end.
"""

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from bench.harness.client_loops import KEYS, LOOK_EVERY, VALUE_BYTES, processor_seconds
from bench.harness.server_process import BenchFailed, measured_broker
from braidmq import Client

TOPIC = "loops"


@dataclass(frozen=True, slots=True)
class Case:
    """Into how many segments, and what is done with the receipts."""

    segments: int
    receipts: str

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{_segments(self.segments)}, receipts {self.receipts}"


def _segments(count: int) -> str:
    return f"{count} segment{'s' if count > 1 else ''}"


CASES = (Case(1, "dropped"), Case(1, "kept"), Case(4, "dropped"))


def measure_reading(segments: int, messages: int) -> tuple[float, float]:
    """How many messages a second are looked at, and this process's microseconds of processor time for each."""
    with measured_broker() as (url, _), Client(url) as client:
        client.create_topic(TOPIC, segments=segments)
        value = [os.urandom(VALUE_BYTES) for _ in range(messages)]
        client.publish_table(
            TOPIC, pa.table({"k": [f"{n % KEYS}" for n in range(messages)], "v": value}), key="k", value="v"
        )
        began_cpu_seconds, began_seconds = processor_seconds(), time.monotonic()
        read_bytes = sum(len(message.value or b"") for message in client.browse(TOPIC))
        took_seconds, cpu_seconds = time.monotonic() - began_seconds, processor_seconds() - began_cpu_seconds
    if read_bytes != messages * VALUE_BYTES:
        raise BenchFailed(f"{read_bytes} bytes were read of {messages} messages")
    return messages / took_seconds, cpu_seconds / messages * 1e6


def measure(case: Case, seconds: float) -> tuple[float, float]:
    """How many messages a second were acknowledged, and this process's microseconds of processor time for each."""
    values = [os.urandom(VALUE_BYTES) for _ in range(KEYS)]
    keys = [b"%d" % number for number in range(KEYS)]
    with measured_broker() as (url, _), Client(url) as client:
        client.create_topic(TOPIC, segments=case.segments)
        began_cpu_seconds = processor_seconds()
        began_seconds = time.monotonic()
        until_seconds = began_seconds + seconds
        sent, kept = 0, []
        with client.producer(TOPIC) as producer:
            while time.monotonic() < until_seconds:
                for number in range(LOOK_EVERY):
                    at = (sent + number) % KEYS
                    receipt = producer.send(values[at], key=keys[at])
                    if case.receipts == "kept":
                        kept.append(receipt)
                sent += LOOK_EVERY
        took_seconds = time.monotonic() - began_seconds
        cpu_seconds = processor_seconds() - began_cpu_seconds
        for receipt in kept:
            receipt.result()
    return sent / took_seconds, cpu_seconds / sent * 1e6


def main() -> None:
    """Measure, and print a table."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--read", type=int, default=500_000, help="messages that are read (500,000)")
    given = options.parse_args()
    print("| case | messages | this process, processor time a message |")
    print("| --- | ---: | ---: |")
    for case in CASES:
        _print(f"send, {case.name}", [measure(case, given.seconds) for _ in range(given.rounds)])
    for segments in (1, 4):
        _print(f"read, {_segments(segments)}", [measure_reading(segments, given.read) for _ in range(given.rounds)])


def _print(what: str, measured: Sequence[tuple[float, float]]) -> None:
    rate, cost_us = (statistics.median(figures) for figures in zip(*measured, strict=True))
    print(f"| {what} | {rate:,.0f}/s | {cost_us:.1f} us |")


if __name__ == "__main__":
    main()
