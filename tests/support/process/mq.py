"""Run the command line as a separate process, as a shell would."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import pytest

from tests.support.broker.broker_process import broker_environment
from tests.support.process.last_account import TELLS_ITS_STACKS, last_account
from tests.support.process.processes import end_with_us
from tests.support.spark.spark_python import quick_python


def mq(*arguments: str, timeout_seconds: float = 180) -> bytes:
    """Return what `mq` prints on stdout. Fails the test with its stderr if the exit code is not 0."""
    done = subprocess.run(
        [sys.executable, "-m", "mq.cli.main", *arguments],
        env=broker_environment({"PYSPARK_PYTHON": quick_python()}),
        capture_output=True,
        timeout=timeout_seconds,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


class MqProcess:
    """`mq` as a process that a test writes to, reads from and interrupts. It is killed at the end of the block."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mq.cli.main", *arguments],
            env=broker_environment({"PYSPARK_PYTHON": quick_python(), **TELLS_ITS_STACKS}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # A parent that ignores SIGINT, as background jobs of a shell do, would hand that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        end_with_us(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        with suppress(BrokenPipeError), self._process:
            pass

    def write(self, data: bytes) -> None:
        """Write to its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def end_input(self) -> None:
        """Close its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def interrupt(self) -> None:
        """Send SIGINT to it and to all its children, as Ctrl-C in a terminal does."""
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """Send SIGTERM to it alone."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to it alone."""
        self._process.kill()

    def wait(self, timeout_seconds: float) -> int:
        """Its exit code. If it does not end in time, the test fails with what it does instead."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            pass
        assert self._process.stderr is not None
        pytest.fail(f"it did not end within {timeout_seconds} s\n{last_account(self._process, self._process.stderr)}")

    def stdout_line(self) -> bytes:
        """The next line on stdout; empty at the end."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close_stdout(self) -> None:
        """Stop reading, as `head` does."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stdout(self) -> bytes:
        """The rest of stdout."""
        assert self._process.stdout is not None
        return self._process.stdout.read()

    def stderr_line(self) -> bytes:
        """The next line on stderr; empty at the end."""
        assert self._process.stderr is not None
        return self._process.stderr.readline()

    def stderr(self) -> bytes:
        """The rest of stderr."""
        assert self._process.stderr is not None
        return self._process.stderr.read()


def mq_process(*arguments: str) -> MqProcess:
    """Start `mq` with those arguments."""
    return MqProcess(arguments)
