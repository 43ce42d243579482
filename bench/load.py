"""Load by `wrk`: one request sent over and over, on some connections, for some seconds."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.server_process import BenchFailed

ARROW = "application/vnd.apache.arrow.stream"
RAW = "application/octet-stream"
_SCRIPT = Path(__file__).with_name("post_file.lua")
_KEYS = 1000


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What wrk saw: answered requests, in how many seconds, and how long one waited for its answer."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float


def check_wrk() -> None:
    """Raise `BenchFailed` where there is no wrk."""
    if shutil.which("wrk") is None:
        raise BenchFailed("wrk is not installed, and it is what makes the load: apt-get install wrk")


def run_wrk(url: str, body: Path, content_type: str, *, connections: int, seconds: float) -> LoadResult:
    """Post the file's bytes for (whole) `seconds`; raises `BenchFailed` where any request failed."""
    duration = f"{max(1, round(seconds))}s"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{duration}", "--timeout", "30s", "-s", str(_SCRIPT), url]
    environment = os.environ | {"BODY": str(body), "TYPE": content_type}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    result = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    if done.returncode or result is None:
        raise BenchFailed(f"wrk ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    seen = json.loads(result.removeprefix("RESULT "))
    if seen["failed"] or not seen["requests"]:
        raise BenchFailed(f"of {seen['requests']} requests to {url}, {seen['failed']} failed: nothing to compare")
    return LoadResult(seen["requests"], seen["seconds"], seen["p50_ms"], seen["p99_ms"])


def write_batch(path: Path, count: int, size_bytes: int) -> None:
    """One Arrow IPC stream of `count` messages of `size_bytes` random bytes each."""
    with pa.OSFile(str(path), "wb") as sink:
        batch = random_batch(count, size_bytes)
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)


def random_batch(count: int, size_bytes: int) -> pa.RecordBatch:
    """Messages whose values do not compress, under a thousand keys."""
    keys = pa.array([b"user-%d" % (row % _KEYS) for row in range(count)], pa.binary())
    values = pa.array([os.urandom(size_bytes) for _ in range(count)], pa.binary())
    return pa.record_batch([keys, values], ["key", "value"])
