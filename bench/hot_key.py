"""What one hot key costs all others of a queue group with `order: key`.

    .venv/bin/python -m bench.hot_key --rounds 3

A topic has messages of 10,000 keys. Consumers claim and ack until those of all but the hot key are done, with that key
and without it by turns: with it, nine of ten messages are its own. Printed is how many of the others are acked in a
second, and the ratio. The messages of the others are the same in both.
"""

import argparse
import http.client
import random
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson
import pyarrow as pa

from bench.harness.process_use import processor_seconds
from bench.harness.server_process import BenchFailed, measured_broker
from braidmq import Client

KEYS, HOT_PARTS = 10_000, 9
MESSAGE_BYTES, BATCH_ROWS, CLAIMED = 200, 10_000, 1_000
ARROW = "application/vnd.apache.arrow.stream"
TOPIC, GROUP = "keys", "workers"
HOT = b"hot"
TARGET = 0.5


@dataclass(slots=True)
class Measured:
    """What is done by now."""

    others_left: int
    hot: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def fill(url: str, others: int, *, hot: bool) -> None:
    """Publish so many messages of the other keys, at random among those of the hot one."""
    chance = random.Random(1)
    keys = [b"%d" % chance.randrange(1, KEYS) for _ in range(others)]
    if hot:
        keys += [HOT] * (others * HOT_PARTS)
        chance.shuffle(keys)
    values = pa.array([chance.randbytes(MESSAGE_BYTES) for _ in range(BATCH_ROWS)], pa.binary())
    with Client(url) as client:
        client.create_topic(TOPIC, key_type="binary")
        client.group(TOPIC, GROUP).create(order="key")
        for start in range(0, len(keys), BATCH_ROWS):
            batch = pa.array(keys[start : start + BATCH_ROWS], pa.binary())
            client.publish_table(
                TOPIC, pa.table({"key": batch, "value": values.slice(0, len(batch))}), key="key", value="value"
            )


def consume(url: str, measured: Measured, until_seconds: float) -> None:
    """Claim and ack until all messages of the others are done. Raises `BenchFailed` if an ack is not accepted."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    path = f"/v1/topics/{TOPIC}/groups/{GROUP}"
    claim = orjson.dumps({"max": CLAIMED, "wait": 1, "scattered": True})
    while measured.others_left > 0 and time.monotonic() < until_seconds:
        with pa.ipc.open_stream(_post(connection, f"{path}/claims", claim, ARROW)) as stream:
            table = stream.read_all()
        claims = orjson.loads(table.schema.metadata[b"braid-claims"])["claims"]
        if not claims:
            continue
        hot = table["key"].to_pylist().count(HOT)
        body = orjson.dumps({"messages": [{"claim": each["claim"]} for each in claims]})
        answer = orjson.loads(_post(connection, f"{path}/acks", body, "application/json"))
        if answer["accepted"] != table.num_rows:
            raise BenchFailed(f"{answer['lost']} acks were lost")
        with measured.lock:
            measured.others_left -= table.num_rows - hot
            measured.hot += hot
    connection.close()


def _post(connection: http.client.HTTPConnection, path: str, body: bytes, accept: str) -> bytes:
    connection.request("POST", path, body, {"content-type": "application/json", "accept": accept})
    response = connection.getresponse()
    content = response.read()
    if response.status != 200:
        raise BenchFailed(f"{path}: {response.status} {content[:300]!r}")
    return content


class Rates(NamedTuple):
    """Messages of the others and of the hot key acked in a second, and what one of the others cost the broker."""

    others: float
    hot: float
    processor_us: float


def measure(others: int, consumers: int, *, hot: bool, most_seconds: float) -> Rates:
    """Work through a topic with a new broker."""
    with measured_broker() as (url, pid):
        fill(url, others, hot=hot)
        sys.stderr.write(f"{'with' if hot else 'without'} the hot key: broker {pid}\n")
        measured, began, used_seconds = Measured(others), time.monotonic(), processor_seconds(pid)
        threads = [
            threading.Thread(target=consume, args=(url, measured, began + most_seconds)) for _ in range(consumers)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        took = time.monotonic() - began
        done = max(others - measured.others_left, 1)
        used_us = (processor_seconds(pid) - used_seconds) * 1e6
        return Rates(done / took, measured.hot / took, used_us / done)


def main() -> None:
    """Measure in turns, and print medians and their ratio."""
    options = argparse.ArgumentParser()
    options.add_argument("--others", type=int, default=60_000, help="messages of the other keys")
    options.add_argument("--consumers", type=int, default=2)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--most-seconds", type=float, default=30.0, help="a run ends after this time in any case")
    given = options.parse_args()
    alone: list[Rates] = []
    beside: list[Rates] = []
    for _ in range(given.rounds):
        for rates, hot in ((alone, False), (beside, True)):
            rates.append(measure(given.others, given.consumers, hot=hot, most_seconds=given.most_seconds))
    without, with_hot = (Rates(*map(statistics.median, zip(*rates, strict=True))) for rates in (alone, beside))
    print("| | others alone | beside the hot key | ratio | target |")
    print("| --- | ---: | ---: | ---: | ---: |")
    ratio = with_hot.others / without.others
    print(
        f"| messages of the others | {without.others:,.0f}/s | {with_hot.others:,.0f}/s | {ratio:.2f} | {TARGET:.2f} |"
    )
    print(f"| messages of the hot key | | {with_hot.hot:,.0f}/s | | |")
    print(f"| processor of one of the others | {without.processor_us:.0f} us | {with_hot.processor_us:.0f} us | | |")


if __name__ == "__main__":
    main()
