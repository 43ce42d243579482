"""Starting the process that sends many messages (`bench/bulk_sender.py`)."""

import os
import subprocess
import sys
from pathlib import Path

from bench.publishing import TOPIC
from bench.server_process import BenchFailed

VALUE_BYTES = 200
INLINE, LOADED = "inline", "loaded"


def send(way: str, url: str, messages: int, segments: int) -> float:
    """Send so many messages of `VALUE_BYTES`; the seconds that it took. Raises `BenchFailed`."""
    numbers = map(str, (messages, VALUE_BYTES, segments))
    command = [sys.executable, "-m", "bench.bulk_sender", way, url, TOPIC, *numbers]
    root = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'clients'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BenchFailed(f"the sender ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return float(done.stdout)
