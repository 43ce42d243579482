"""Publishing, as a ratio to the floor: each case on both servers, round after round in a random order."""

import contextlib
import os
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from bench.harness.server_process import BenchFailed, broker, floor_server, scratch_folder
from bench.harness.wrk import ARROW, RAW, WrkResult, run_wrk, write_batch

TOPIC = "bench"
SINGLE_BYTES = 100


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request, and the share of the floor's throughput that it should reach.

    A request has `batch` messages in Arrow, or one raw message if `batch` is None.
    """

    name: str
    what: str
    batch: int | None
    size_bytes: int
    segments: int
    connections: int
    target: float

    @property
    def messages_per_request(self) -> int:
        """The number of messages in one request."""
        return self.batch or 1


CASES = (
    Case("arrow-1k", "Arrow 1,000 x 1 KiB, 1 segment", 1_000, 1024, 1, 4, 0.75),
    Case("arrow-100b", "Arrow 10,000 x 100 B, 1 segment", 10_000, 100, 1, 4, 0.75),
    Case("arrow-1k-4", "Arrow 1,000 x 1 KiB, 4 segments", 1_000, 1024, 4, 4, 0.50),
    Case("arrow-100b-4", "Arrow 10,000 x 100 B, 4 segments", 10_000, 100, 4, 4, 0.50),
    Case("single-64", "single raw messages, 64 connections", None, SINGLE_BYTES, 1, 64, 0.60),
    Case("single-1", "single raw messages, 1 connection", None, SINGLE_BYTES, 1, 1, 0.55),
)


@dataclass(slots=True)
class Compared:
    """Messages a second of either side, round by round."""

    case: Case
    floor: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The ratio of the medians."""
        return statistics.median(self.ours) / statistics.median(self.floor)


def compare(
    cases: Sequence[Case], *, rounds: int, seconds: float, show_progress: Callable[[str], None]
) -> list[Compared]:
    """Measure every case `rounds` times on both sides, after one round that does not count.

    Each side gets a new process and an empty folder each time, so that old data slows down neither. Within a round the
    order is random, so that changes in the speed of the machine affect both.
    """
    compared = [Compared(case) for case in cases]
    sides = [(one, is_floor) for one in compared for is_floor in (True, False)]
    for number in range(rounds + 1):
        random.shuffle(sides)
        for one, is_floor in sides:
            show_progress(f"round {number} of {rounds}: {one.case.name}, {'floor' if is_floor else 'broker'}")
            rate = _on_floor(one.case, seconds) if is_floor else _on_broker(one.case, seconds)
            if number:
                (one.floor if is_floor else one.ours).append(rate)
    return compared


def _on_floor(case: Case, seconds: float) -> float:
    with floor_server() as url:
        result = run_case(case, f"{url}/{'single' if case.batch is None else 'batch'}", seconds)
    return case.messages_per_request * result.requests / result.seconds


def _on_broker(case: Case, seconds: float) -> float:
    with broker() as (url, _):
        topic = f"{url}/v1/topics/{TOPIC}"
        httpx.put(topic, json={"segments": case.segments, "acks": "stored"}).raise_for_status()
        result = run_case(case, f"{topic}/messages", seconds)
        acknowledged, stored = case.messages_per_request * result.requests, stored_messages(topic)
        if stored < acknowledged:
            raise BenchFailed(f"{case.name}: {acknowledged} messages acknowledged, {stored} stored")
    return acknowledged / result.seconds


def run_case(case: Case, url: str, seconds: float) -> WrkResult:
    """Warm up for a second, then measure."""
    with prepared_body(case) as (body, content_type):
        run_wrk(url, body, content_type, connections=case.connections, seconds=1)
        return run_wrk(url, body, content_type, connections=case.connections, seconds=seconds)


@contextlib.contextmanager
def prepared_body(case: Case) -> Iterator[tuple[Path, str]]:
    """The body of each request of a case, as a file, and its content type."""
    with scratch_folder() as folder:
        body = folder / "body"
        if case.batch is None:
            body.write_bytes(os.urandom(case.size_bytes))
        else:
            write_batch(body, case.batch, case.size_bytes)
        yield body, RAW if case.batch is None else ARROW


def stored_messages(topic: str) -> int:
    """How many messages the files of the topic hold."""
    count, after = 0, None
    while True:
        page = httpx.get(f"{topic}/files", params={"limit": 10_000, **({"after": after} if after else {})}, timeout=60)
        document = page.raise_for_status().json()
        count += sum(int(file["count"]) for file in document["files"])
        if (after := document["next"]) is None:
            return count
