"""How fast a Python loop publishes: `producer.send` of 200 B messages with keys, into 1 and into 4 segments.

    .venv/bin/python -m bench.producing --seconds 5

One `mq serve` on a directory in memory, and the blocking client in this process: both share the machine's processors.
The time ends when all messages are acknowledged. Receipts are dropped, or kept to the end.
"""

import argparse
import os
import resource
import statistics
import time
from dataclasses import dataclass

from bench.harness.server_process import measured_broker
from braidmq import Client

VALUE_BYTES, KEYS = 200, 1000
TOPIC = "producing"
_LOOK_EVERY = 256


@dataclass(frozen=True, slots=True)
class Case:
    """Into how many segments, and what is done with the receipts."""

    segments: int
    receipts: str

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.segments} segment{'s' if self.segments > 1 else ''}, receipts {self.receipts}"


CASES = (Case(1, "dropped"), Case(1, "kept"), Case(4, "dropped"))


def measure(case: Case, seconds: float) -> tuple[float, float]:
    """How many messages a second were acknowledged, and this process's microseconds of processor time for each."""
    values = [os.urandom(VALUE_BYTES) for _ in range(KEYS)]
    keys = [b"%d" % number for number in range(KEYS)]
    with measured_broker() as (url, _), Client(url) as client:
        client.create_topic(TOPIC, segments=case.segments)
        began_cpu_seconds = _processor_seconds()
        began_seconds = time.monotonic()
        until_seconds = began_seconds + seconds
        sent, kept = 0, []
        with client.producer(TOPIC) as producer:
            while time.monotonic() < until_seconds:
                for number in range(_LOOK_EVERY):
                    at = (sent + number) % KEYS
                    receipt = producer.send(values[at], key=keys[at])
                    if case.receipts == "kept":
                        kept.append(receipt)
                sent += _LOOK_EVERY
        took_seconds = time.monotonic() - began_seconds
        cpu_seconds = _processor_seconds() - began_cpu_seconds
        for receipt in kept:
            receipt.result()
    return sent / took_seconds, cpu_seconds / sent * 1e6


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure, and print a table."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    print("| case | acknowledged | this process, processor time a message |")
    print("| --- | ---: | ---: |")
    for case in CASES:
        rates, costs = zip(*(measure(case, given.seconds) for _ in range(given.rounds)), strict=True)
        print(f"| {case.name} | {statistics.median(rates):,.0f}/s | {statistics.median(costs):.1f} us |")


if __name__ == "__main__":
    main()
