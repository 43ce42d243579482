"""A program and its child processes, which SIGKILL ends together: for example Spark's Java process and its driver."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.process.processes import end_with_us

_PATIENCE_SECONDS = 300.0
# Of what takes seconds.
_POLL_SECONDS = 0.05


class ProcessGroup:
    """A command in a group of its own, its stdin a pipe. Leaving the context kills whatever is left.

    What it prints and logs goes to the file `log`, which the failures of tests show. It runs in `folder`.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], log: Path, folder: Path | None = None
    ) -> None:
        self._command, self._env, self._log, self._folder = command, env, log, folder

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._env,
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end_with_us(self._process.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()

    @property
    def log(self) -> str:
        """What the program has printed and logged."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL to all of them at once, and wait until the program is gone."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def finish(self) -> None:
        """End its stdin and wait for it; fails the test unless it ends with 0."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=_PATIENCE_SECONDS)
        assert self._process.returncode == 0, self.log

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds. Fails the test if the program ends first."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            assert self._process.poll() is None and time.monotonic() < deadline, self.log
            time.sleep(_POLL_SECONDS)

    def until_logged(self, pattern: str) -> str:
        """Wait until a line of the log matches, and return the match."""
        self.until(lambda: re.search(pattern, self.log) is not None)
        found = re.search(pattern, self.log)
        assert found is not None
        return found[0]


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module."""
    return [sys.executable, "-m", module, *arguments]
