"""How fast a queue group is worked through: claims and durable acks of 200 B messages, as Arrow and as JSON.

    .venv/bin/python -m bench.claims --seconds 5
    .venv/bin/python -m bench.claims --seconds 5 --beside-nats

One group of one `mq serve` on a directory in memory. A few consumers claim, read what they get, and ack all of it; an
ack is answered once it is stored. Beside it, NATS JetStream: a durable consumer with explicit acks, by its own bench.
"""

import argparse
import http.client
import os
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson
import pyarrow as pa

from bench.harness.server_process import BenchFailed, measured_broker
from bench.peers.nats import claimed_per_second, nats
from braidmq import Client

ARROW = "application/vnd.apache.arrow.stream"
MESSAGE_BYTES, BATCH_ROWS = 200, 10_000
TOPIC, GROUP = "claims", "workers"
PEER_MESSAGES = 500_000


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of consumer: how much it claims at a time, in which form, and what is to be reached."""

    name: str
    most: int
    media_type: str
    target_per_second: int


CASES = (
    Case("Arrow, 1,000 at a time", 1_000, ARROW, 100_000),
    Case("JSON, 100 at a time", 100, "application/json", 20_000),
)


@dataclass(slots=True)
class Measured:
    """What the consumers of a run have done."""

    acked: int = 0
    claim_ms: list[float] = field(default_factory=list)
    ack_ms: list[float] = field(default_factory=list)


def fill(url: str, messages: int) -> None:
    """Publish so many messages."""
    values = pa.array([os.urandom(MESSAGE_BYTES) for _ in range(BATCH_ROWS)], pa.binary())
    keys = pa.array([b"%d" % (row % 1000) for row in range(BATCH_ROWS)], pa.binary())
    with Client(url) as client:
        client.create_topic(TOPIC)
        for _ in range(-(-messages // BATCH_ROWS)):
            client.publish_table(TOPIC, pa.table({"key": keys, "value": values}), key="key", value="value")


def consume(url: str, case: Case, until_seconds: float, measured: Measured, lock: threading.Lock) -> None:
    """Claim and ack until then. Raises `BenchFailed` if there is nothing left, or an ack is not accepted."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    path = f"/v1/topics/{TOPIC}/groups/{GROUP}"
    claim = orjson.dumps({"max": case.most, "wait": 5})
    while time.monotonic() < until_seconds:
        began = time.monotonic()
        claims = _claims(_post(connection, f"{path}/claims", claim, case.media_type), case)
        claimed = time.monotonic()
        if not claims:
            raise BenchFailed("all messages are done: publish more of them (--messages)")
        body = orjson.dumps({"messages": [{"claim": each["claim"]} for each in claims]})
        sent = time.monotonic()
        answer = orjson.loads(_post(connection, f"{path}/acks", body, "application/json"))
        ended = time.monotonic()
        with lock:
            measured.acked += answer["accepted"]
            measured.claim_ms.append((claimed - began) * 1000)
            measured.ack_ms.append((ended - sent) * 1000)
    connection.close()


def _claims(content: bytes, case: Case) -> list[dict[str, object]]:
    """The claims of an answer, all of whose messages are looked at."""
    if case.media_type == ARROW:
        with pa.ipc.open_stream(content) as stream:
            table = stream.read_all()
        content = table.schema.metadata[b"braid-claims"]
    claims: list[dict[str, object]] = orjson.loads(content)["claims"]
    return claims


def _post(connection: http.client.HTTPConnection, path: str, body: bytes, accept: str) -> bytes:
    connection.request("POST", path, body, {"content-type": "application/json", "accept": accept})
    response = connection.getresponse()
    content = response.read()
    if response.status != 200:
        raise BenchFailed(f"{path}: {response.status} {content[:300]!r}")
    return content


def measure(case: Case, *, seconds: float, messages: int, consumers: int) -> tuple[Measured, float]:
    """Run a case on a new broker; returns what was done, and in how many seconds."""
    with measured_broker() as (url, pid):
        fill(url, messages)
        sys.stderr.write(f"{case.name}: broker {pid}\n")
        measured, lock = Measured(), threading.Lock()
        began = time.monotonic()
        until = began + seconds
        threads = [threading.Thread(target=consume, args=(url, case, until, measured, lock)) for _ in range(consumers)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return measured, time.monotonic() - began


def main() -> None:
    """Measure, and print a table."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=5.0)
    options.add_argument("--consumers", type=int, default=2)
    options.add_argument("--messages", type=int, default=1_000_000)
    options.add_argument("--only", choices=["arrow", "json"])
    options.add_argument("--beside-nats", action="store_true", help="in the same run (needs Go)")
    given = options.parse_args()
    rates: list[float] = []
    print("| case | acked | target | claim p50 | ack p50 | ack p99 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for case in CASES:
        if given.only is not None and not case.name.lower().startswith(given.only):
            continue
        done, took = measure(case, seconds=given.seconds, messages=given.messages, consumers=given.consumers)
        ack_ms = statistics.quantiles(done.ack_ms, n=100)
        rates.append(done.acked / took)
        print(
            f"| {case.name} | {done.acked / took:,.0f}/s | {case.target_per_second:,}/s "
            f"| {statistics.median(done.claim_ms):.1f} ms | {ack_ms[49]:.1f} ms | {ack_ms[98]:.1f} ms |"
        )
    if given.beside_nats:
        print_peer(rates[0], consumers=given.consumers)


def print_peer(ours_per_second: float, *, consumers: int) -> None:
    """Measure NATS with as many consumers, and print how many times as fast the first of ours is."""
    programs = nats()
    print("\n| NATS JetStream, 1,000 at a time | acked | ours, as many times as fast |")
    print("| --- | ---: | ---: |")
    for double_ack, messages in ((False, PEER_MESSAGES), (True, PEER_MESSAGES // 10)):
        rate = claimed_per_second(
            programs,
            messages=messages,
            message_bytes=MESSAGE_BYTES,
            consumers=consumers,
            batch=1_000,
            double_ack=double_ack,
        )
        what = "each ack answered" if double_ack else "acks not answered"
        print(f"| {what} | {rate:,.0f}/s | {ours_per_second / rate:.1f} |")


if __name__ == "__main__":
    main()
