"""A Python program as a process that starts at once, forked from one that has imported it before.

    process = ForkedProcess("mq.cli.main", ["serve", "--port", "0"], env=environment)
    process.send_signal(signal.SIGSTOP)

Importing takes a broker longer than all else it does to start. A process of its own it is all the same: signals,
files and memory are, only its parent is another, `tests.support.process.fork_server`. Used like `subprocess.Popen`.
"""

import atexit
import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO

from tests.support.process.fork_server import NUMBER, Program
from tests.support.process.processes import STOP_SECONDS, child_environment


class ForkedProcess:
    """`python -m module`, with this process's working directory. Its stdout and stderr are pipes, to be closed.

    Where `stderr` is `subprocess.DEVNULL`, or a file to write to, there is nothing to be read from it.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        env: Mapping[str, str],
        stderr: int | IO[bytes] = subprocess.PIPE,
    ) -> None:
        self.returncode: int | None = None
        self._told = threading.Lock()
        program = Program(module, list(arguments), dict(env), str(Path.cwd()))
        self.stdout, out = _pipe()
        self.stderr: IO[str] | None
        self.stderr, err = _pipe() if stderr == subprocess.PIPE else (None, _file(stderr))
        self._status, theirs = socket.socketpair()
        with open(os.devnull, "rb") as nothing, out, err, theirs:
            files = [nothing.fileno(), out.fileno(), err.fileno(), theirs.fileno()]
            self.pid = _fork_server().start(program, files)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        with self._told:
            if self.returncode is None and wait([self._status], 0):
                with self._status:
                    self.returncode = _number(self._status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit code. Raises `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if timeout is not None and left is not None and left <= 0:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            # Where another thread is told the end, it has closed this.
            with contextlib.suppress(ValueError, OSError):
                wait([self._status], left)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal if it is running."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The server, which ends with this process."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._asking = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.process.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=child_environment(),
            )
        atexit.register(self._release)

    def start(self, program: Program, descriptors: Sequence[int]) -> int:
        """Fork a process with these files as stdin, stdout, stderr and the pipe for its end. Returns its id."""
        line = program.to_line()
        with self._asking:
            sent = socket.send_fds(self._control, [line], descriptors)
            self._control.sendall(line[sent:])
            return _number(self._control)

    def _release(self) -> None:
        self._control.close()
        self._process.wait(STOP_SECONDS)


_starting = threading.Lock()


@functools.cache
def _only_server() -> ForkServer:
    return ForkServer()


def _fork_server() -> ForkServer:
    with _starting:
        return _only_server()


def _pipe() -> tuple[IO[str], IO[bytes]]:
    read, write = os.pipe()
    return open(read, errors="replace"), open(write, "wb", buffering=0)


def _file(stderr: int | IO[bytes]) -> IO[bytes]:
    """Open a pipe end of our own, which is closed once the process has it."""
    return open(os.devnull if isinstance(stderr, int) else os.dup(stderr.fileno()), "wb", buffering=0)


def _number(status: socket.socket) -> int:
    told = status.recv(NUMBER.size, socket.MSG_WAITALL)
    assert len(told) == NUMBER.size, "the fork server has ended"
    (number,) = NUMBER.unpack(told)
    return int(number)
