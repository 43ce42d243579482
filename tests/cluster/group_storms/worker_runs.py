"""What handlers and commands of workers write down: a line as each begins, and one as it ends.

All append to one file, in one write for each line: the order of its lines is that of time, with no clock to ask.
"""

import itertools
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

COMMAND_FAILS = "1*[37]"
"""A pattern of deliveries and index: a command fails at the first delivery of some messages."""


class Line(NamedTuple):
    """`what` is `began`, `done` or `failed` of a run, or `dead`: by now that worker was killed."""

    what: str
    worker: str
    run: str = "-"
    key: str = "-"
    index: int = 0

    @property
    def written(self) -> bytes:
        """As it stands in the file."""
        return f"{self.what} {self.worker} {self.run} {self.key} {self.index}\n".encode()


def lines_of(text: str) -> list[Line]:
    """The lines of a file."""
    parts = (line.split() for line in text.splitlines())
    return [Line(what, worker, run, key, int(index)) for what, worker, run, key, index in parts]


class Runs:
    """The file, as one worker writes it. Any thread may."""

    def __init__(self, path: Path, worker: str) -> None:
        self._worker, self._numbers = worker, itertools.count()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def begin(self, value: str) -> "Line":
        """The run of a message begins."""
        key, index = value.split()
        line = Line("began", self._worker, str(next(self._numbers)), key, int(index))
        self._write(line)
        return line

    def end(self, begun: "Line", what: str) -> None:
        """It ends: `done` or `failed`."""
        self._write(begun._replace(what=what))

    def dead(self) -> None:
        """The worker was killed, and is gone."""
        self._write(Line("dead", self._worker))

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)

    def _write(self, line: Line) -> None:
        os.write(self._file, line.written)


def command(path: Path, worker: str) -> list[str]:
    """A command for `mq work` that does so."""
    script = (
        # Without a message mq work was killed before it had written it.
        'read key index; [ -n "$index" ] || exit 1; '
        f'note() {{ echo "$1 {worker} $$ $key $index" >> {shlex.quote(str(path))}; }}; note began; '
        f"case $MQ_DELIVERIES$index in {COMMAND_FAILS}) note failed; exit 1;; esac; note done"
    )
    return ["sh", "-c", script]


def done_in(lines: Iterable[Line]) -> int:
    """How many runs were done."""
    return sum(line.what == "done" for line in lines)
