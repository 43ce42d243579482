"""A process of a local cluster. It logs to its own file, and ends with the process that started it."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from filer.errors import BraidError

LOG_END_LINES = 20
_LOG_END_BYTES = 16 * 1024
_PR_SET_PDEATHSIG = 1


class ProcessFailed(BraidError):
    """A process of the local cluster did not start, or ended unexpectedly."""


class ToolMissing(BraidError):
    """A program or package that a local cluster needs is not installed."""


class ChildProcess:
    """A process that can be started again after its end. The output of all its runs is appended to the file `log`.

    Ctrl-C in a terminal does not reach it: the parent decides in which order processes end. On Linux it is killed when
    the thread that started it ends, even by SIGKILL; on other systems it stays.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None) -> None:
        self.name, self.command, self.log = name, list(command), log
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start_bytes = 0

    @property
    def started(self) -> bool:
        """Whether it was ever started."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process id of its newest run."""
        return self._newest().pid

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit code; the negative number of a signal that ended it; None while it runs."""
        return self._newest().poll()

    def start(self) -> None:
        """Start it. Raises `ProcessFailed` if the program cannot be run."""
        assert not self.running, f"{self.name} is running already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._log_start_bytes = output.tell()
            try:
                self._process = subprocess.Popen(
                    self.command,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                    preexec_fn=_end_with_parent(),
                )
            except OSError as error:
                raise ProcessFailed(f"{self.name} cannot be started: {self.command[0]}: {error.strerror}") from error

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL, and wait until it has ended. This works for a stopped process, too."""
        if self.running:
            self.send(signal.SIGKILL)
            self._newest().wait()

    def output(self) -> str:
        """Return all that its newest run has logged so far."""
        with self.log.open("rb") as log:
            log.seek(self._log_start_bytes)
            return log.read().decode(errors="replace")

    def log_end(self) -> str:
        """Return the last lines of its log."""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_END_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-LOG_END_LINES:])

    def _newest(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, f"{self.name} has not been started"
        return self._process


def how_it_ended(returncode: int) -> str:
    """Return an exit code in words."""
    return f"exit code {returncode}" if returncode >= 0 else f"signal {signal.Signals(-returncode).name}"


def _end_with_parent() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    # Looked up before the fork: the child only has to make two system calls.
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # The parent ended before the line above took effect.
            os.kill(os.getpid(), signal.SIGKILL)

    return in_child
