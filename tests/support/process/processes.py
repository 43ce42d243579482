"""Child processes of tests: their environment and their end."""

import atexit
import contextlib
import functools
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

REPOSITORY = Path(__file__).parents[3]
STOP_SECONDS = 10
PATIENCE_SECONDS = 60.0
_GIVEN_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT = 10_000


def child_environment() -> dict[str, str]:
    """The environment of this process, with the packages of the repository on the Python path."""
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "clients")])
    return {**os.environ, "PYTHONPATH": path}


def end_with_us(pid: int) -> None:
    """Make sure that a process is killed when this one ends, even if this one is interrupted or killed."""
    watchdog = _watchdog()
    assert watchdog.stdin is not None
    watchdog.stdin.write(f"{pid}\n")
    watchdog.stdin.flush()


@functools.cache
def _watchdog() -> "subprocess.Popen[str]":
    watchdog = subprocess.Popen(
        [sys.executable, "-m", "tests.support.process.watchdog"],
        stdin=subprocess.PIPE,
        text=True,
        env=child_environment(),
        # What interrupts this process is not to interrupt the one that cleans up behind it.
        start_new_session=True,
    )
    atexit.register(_release, watchdog)
    return watchdog


def _release(watchdog: "subprocess.Popen[str]") -> None:
    assert watchdog.stdin is not None
    watchdog.stdin.close()
    watchdog.wait(STOP_SECONDS)


class Process(Protocol):
    """A process that can be ended: `subprocess.Popen`, or a class with the same methods."""

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


def stop(process: Process) -> None:
    """End a process, first with SIGTERM, then with SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(condition: Callable[[], bool], *, timeout_seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def free_port() -> int:
    """A port that is free, for programs that cannot choose one themselves or come back to theirs.

    The system gives no such port to others: neither to whoever asks for any, nor to a connection. So it stays free
    while a broker is away.
    """
    lowest_given = int(_GIVEN_PORTS.read_text().split()[0])
    while True:
        # Hypothesis seeds the other generator, in all workers alike.
        port = random.SystemRandom().randrange(_LOWEST_PORT, lowest_given)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
