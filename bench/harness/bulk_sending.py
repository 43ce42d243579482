"""Start the process that sends many messages (`bench/harness/bulk_sender.py`)."""

import os
import subprocess
import sys
from pathlib import Path

from bench.harness.publishing import TOPIC
from bench.harness.server_process import BenchFailed

VALUE_BYTES = 200
INLINE, LOADED = "inline", "loaded"


def send(variant: str, url: str, messages: int, segments: int) -> float:
    """Send messages of `VALUE_BYTES`; return the seconds that it took. Raises `BenchFailed`."""
    numbers = map(str, (messages, VALUE_BYTES, segments))
    command = [sys.executable, "-m", "bench.harness.bulk_sender", variant, url, TOPIC, *numbers]
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'clients'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BenchFailed(f"the sender ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return float(done.stdout)
