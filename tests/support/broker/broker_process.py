"""A real broker as a separate process: `mq serve` on a free port, with a store that outlives it.

    with BrokerProcess(data=tmp_path / "data") as broker:
        httpx.get(f"{broker.url}/v1/topics")
        broker.kill()
        broker.start()      # the same store, another incarnation, another port unless one was given

It sees no BRAIDMQ_* variable of the caller's environment; `env` adds to it.
"""

import os
import queue
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx

from mq.base.listening_sign import url_told
from tests.support.process.forked_process import ForkedProcess
from tests.support.process.processes import end_with_us

ROOT = Path(__file__).parents[3]
START_SECONDS = 120.0
STOP_SECONDS = 45.0
"""Past a broker's own `drain_timeout` of 30 s: it says then what it could not finish."""
_LOG_LINES = 5000


class BrokerFailedToStart(Exception):
    """The process ended, or did not become ready in time; the message holds what it logged."""


class BrokerProcess:
    """`mq serve` as a subprocess. Entering the context starts it, leaving it kills whatever is left.

    `data` is its local directory, `store` an address instead; `args` are further flags. `module` is run as by
    `python -m` (a test may put one of its own around `mq.cli.main`). It is forked from a process that has imported
    everything. With `forked=False` it is an interpreter of its own: `python`, in the folder `folder`. `start` with
    `wait=False` does not wait until it is ready: read `returncode` and `log` after `wait`.
    With `--tls-cert` it is asked whether it is ready by `tls`.
    """

    def __init__(
        self,
        *,
        data: Path | None = None,
        store: str | None = None,
        port: int = 0,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        module: str = "mq.cli.main",
        forked: bool = True,
        python: str = sys.executable,
        folder: Path | None = None,
        tls: ssl.SSLContext | bool = True,
    ) -> None:
        storage = ["--data", str(data)] if data is not None else []
        storage += ["--store", store] if store is not None else []
        self.module, self.arguments, self.forked = module, ["serve", *storage, "--port", str(port), *args], forked
        self.env, self.python, self.folder = broker_environment(env or {}), python, folder
        self.url, self.tls = "", tls
        self._process: subprocess.Popen[str] | ForkedProcess | None = None
        self._printed: deque[str] = deque(maxlen=_LOG_LINES)
        self._logged: deque[str] = deque(maxlen=_LOG_LINES)
        self._readers: list[threading.Thread] = []
        self._addresses: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.running:
            self.cont()
            self.kill()

    @property
    def process(self) -> "subprocess.Popen[str] | ForkedProcess":
        """The newest process, running or not."""
        assert self._process is not None, "the broker has not been started"
        return self._process

    @property
    def running(self) -> bool:
        """Whether there is a process that has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit code; negative for a signal; None while it runs."""
        return self.process.poll()

    @property
    def output(self) -> str:
        """What it has printed on stdout, over all its lives (the newest lines)."""
        return "\n".join(self._printed)

    @property
    def log(self) -> str:
        """What it has written to stderr, over all its lives (the newest lines)."""
        return "\n".join(self._logged)

    def start(self, *, wait: bool = True, timeout_seconds: float = START_SECONDS) -> Self:
        """Start a process, and wait until it is ready; raises `BrokerFailedToStart`."""
        assert not self.running, "the broker is running already"
        self._process = ForkedProcess(self.module, self.arguments, env=self.env) if self.forked else self._interpreter()
        end_with_us(self._process.pid)
        addresses = self._addresses = queue.SimpleQueue()
        self._readers = [
            self._follow(self._process.stdout, self._printed, addresses),
            self._follow(self._process.stderr, self._logged, None),
        ]
        if wait:
            self.wait_ready(timeout_seconds=timeout_seconds)
        return self

    def wait_ready(self, *, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until it is ready, after a `start` that did not; raises `BrokerFailedToStart`."""
        self._wait_ready(self._addresses, time.monotonic() + timeout_seconds)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.wait()

    def terminate(self, *, timeout_seconds: float = STOP_SECONDS) -> int:
        """SIGTERM, and wait until it has drained; its exit code."""
        self.process.terminate()
        return self.wait(timeout_seconds=timeout_seconds)

    def stop(self) -> None:
        """SIGSTOP: it stops and keeps its connections."""
        self.process.send_signal(signal.SIGSTOP)

    def cont(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> Self:
        """SIGKILL and start again on the same store."""
        if self.running:
            self.kill()
        return self.start()

    def wait(self, *, timeout_seconds: float = STOP_SECONDS) -> int:
        """Wait for its end and the rest of its output. Returns the exit code. Raises `subprocess.TimeoutExpired`."""
        code = self.process.wait(timeout_seconds)
        for reader in self._readers:
            reader.join(timeout_seconds)
        return code

    def _interpreter(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [self.python, "-m", self.module, *self.arguments],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def _wait_ready(self, addresses: "queue.SimpleQueue[str]", deadline: float) -> None:
        self.url = ""
        while time.monotonic() < deadline and self.running:
            try:
                self.url = self.url or addresses.get(timeout=0.02)
            except queue.Empty:
                continue
            if _is_ready(self.url, self.tls):
                return
            time.sleep(0.01)
        if self.running:
            self.kill()
        self.wait()
        raise BrokerFailedToStart(f"exit code {self.returncode}; it logged:\n{self.log}")

    def _follow(
        self, pipe: IO[str] | None, lines: deque[str], addresses: "queue.SimpleQueue[str] | None"
    ) -> threading.Thread:
        assert pipe is not None

        def read() -> None:
            with pipe:
                for line in pipe:
                    lines.append(line.rstrip("\n"))
                    if addresses is not None and (url := url_told(line)) is not None:
                        addresses.put(url)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread


def broker_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """An environment in which this checkout runs, whatever is installed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("BRAIDMQ_")}
    paths = [str(ROOT), str(ROOT / "clients"), env.get("PYTHONPATH", "")]
    return env | {"PYTHONPATH": os.pathsep.join(path for path in paths if path), **extra}


def _is_ready(url: str, tls: ssl.SSLContext | bool) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5, verify=tls).status_code == 200
    except httpx.TransportError:
        return False
