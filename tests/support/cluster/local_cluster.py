"""`mq local` as a process: a whole cluster, gone when the block ends.

    with LocalClusterProcess(tmp_path, "--brokers", "2") as cluster:
        httpx.get(f"{cluster.urls[0]}/v1/cluster")
        os.kill(cluster.pid("broker-1"), signal.SIGKILL)

It ends with the thread that made it: make it on one that stays.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.broker.broker_process import broker_environment

STOP_SECONDS = 60.0


class LocalClusterProcess:
    """Brokers on free ports, sessions of a second. Entering the context waits until all is ready."""

    def __init__(self, data: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "mq.cli.main", "local", "--data", str(data), "--json"]
        defaults = ["--port", "0", "--session-timeout", "1"]
        self.process = subprocess.Popen(
            [*command, *defaults, *arguments],
            env=broker_environment({}) | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.facts: dict[str, Any] = {}
        self.stderr = ""
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        assert self.process.stdout is not None
        told = self.process.stdout.readline()
        if not told:
            code = self.wait()
            raise AssertionError(f"mq local ended with {code}:\n{self.stderr}")
        self.facts = json.loads(told)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Its processes go with it.
        self.process.kill()
        self.wait()

    @property
    def urls(self) -> list[str]:
        """The brokers' addresses."""
        return [each["url"] for each in self.facts["brokers"]]

    @property
    def pids(self) -> list[int]:
        """The pids of all processes of the cluster."""
        s3 = [self.facts["s3"]] if self.facts["s3"] else []
        return [each["pid"] for each in (*self.facts["zookeepers"], *s3, *self.facts["brokers"])]

    def pid(self, broker: str) -> int:
        """The pid of a broker."""
        return next(int(each["pid"]) for each in self.facts["brokers"] if each["broker"] == broker)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the cluster. Returns its exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end and the rest of its output. Returns the exit code."""
        code = self.process.wait(STOP_SECONDS)
        self._reader.join(STOP_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as pipe:
            for line in pipe:
                self.stderr += line


def alive(pid: int) -> bool:
    """Whether a process exists. A zombie does not count."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
