"""Run a program that puts load on a server, and see what the server uses while the program counts.

Such a program says `began` when it begins to count, and then one line of JSON: what it counted.
"""

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness.process_use import Use, used_by
from bench.harness.server_process import BenchFailed

BEGAN = "began"
TIMEOUT_SECONDS = 300.0
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Counted:
    """What the program told, and what the server used from `began` to then."""

    told: Mapping[str, Any]
    use: Use

    @property
    def per_second(self) -> float:
        """Messages a second."""
        return float(self.told["messages"] / self.told["seconds"])

    @property
    def processor_us(self) -> float:
        """The server's processor time for a message."""
        return self.use.processor_seconds / float(self.told["messages"]) * 1e6


def run_counted(command: Sequence[str], *, server: int, environment: Mapping[str, str] | None = None) -> Counted:
    """Run it to its end."""
    with begun_program(command, server=server, environment=environment) as told:
        return told()


@contextlib.contextmanager
def begun_program(
    command: Sequence[str], *, server: int, environment: Mapping[str, str] | None = None
) -> Iterator[Callable[[], Counted]]:
    """Run it; yields, once it has begun to count, how to wait for what it tells at its end.

    Raises `BenchFailed`, with the end of what it wrote to stderr, if it fails or takes too long.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            cwd=_ROOT,
            env=os.environ | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        output = process.stdout
        late = threading.Timer(TIMEOUT_SECONDS, process.kill)
        late.start()

        def told() -> Counted:
            with used_by(server) as use:
                line = output.readline()
            output.read()
            if process.wait() or not line.startswith("{"):
                errors.seek(0)
                raise BenchFailed(f"{' '.join(command[-8:])} ended with {process.returncode}: {errors.read()[-500:]}")
            return Counted(json.loads(line), use)

        try:
            # Where it ends before it has begun, `told` finds out why.
            for line in output:
                if line.strip() == BEGAN:
                    break
            yield told
        finally:
            late.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
            output.close()
