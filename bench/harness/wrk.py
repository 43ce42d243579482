"""Run `wrk`: it sends one request over and over, on several connections, for some seconds."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.harness.server_process import BenchFailed

ARROW = "application/vnd.apache.arrow.stream"
RAW = "application/octet-stream"
_SCRIPT = Path(__file__).parents[1] / "post_file.lua"
_KEYS = 1000


@dataclass(frozen=True, slots=True)
class WrkResult:
    """The result of wrk: answered requests, the duration, and percentiles of the latency."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float


def check_wrk() -> None:
    """Raise `BenchFailed` if wrk is not installed."""
    if shutil.which("wrk") is None:
        raise BenchFailed("wrk, which sends the requests, is not installed: apt-get install wrk")


def run_wrk(url: str, body: Path, content_type: str, *, connections: int, seconds: float) -> WrkResult:
    """Post the bytes of `body` for `seconds` (rounded). Raises `BenchFailed` if any request failed."""
    duration = f"{max(1, round(seconds))}s"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{duration}", "--timeout", "30s", "-s", str(_SCRIPT), url]
    environment = os.environ | {"BODY": str(body), "TYPE": content_type}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    result = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    if done.returncode or result is None:
        raise BenchFailed(f"wrk ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    counts = json.loads(result.removeprefix("RESULT "))
    if counts["failed"] or not counts["requests"]:
        raise BenchFailed(f"of {counts['requests']} requests to {url}, {counts['failed']} failed: nothing to compare")
    return WrkResult(counts["requests"], counts["seconds"], counts["p50_ms"], counts["p99_ms"])


def write_batch(path: Path, count: int, size_bytes: int) -> None:
    """One Arrow IPC stream of `count` messages of `size_bytes` random bytes each."""
    with pa.OSFile(str(path), "wb") as sink:
        batch = random_batch(count, size_bytes)
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)


def random_batch(count: int, size_bytes: int) -> pa.RecordBatch:
    """Messages with random values, which do not compress, under a thousand keys."""
    keys = pa.array([b"user-%d" % (row % _KEYS) for row in range(count)], pa.binary())
    values = pa.array([os.urandom(size_bytes) for _ in range(count)], pa.binary())
    return pa.record_batch([keys, values], ["key", "value"])
