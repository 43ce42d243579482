"""How far an input of `mq publish` has been published. It has been read further."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from mq.cli.publishing.batches import Batch

if TYPE_CHECKING:
    from mq.cli.publishing.progress_bar import ProgressBar


class Mark(NamedTuple):
    """After so many rows of the input, its source is done up to `done`, in bytes or in rows."""

    rows: int
    done: int


class Progress:
    """The progress through one input. Draws nothing unless `shown`."""

    def __init__(self, name: str, *, shown: bool) -> None:
        self._bar = _bar(name) if shown else None
        self._drawn = ExitStack()
        self._total: int | None = None
        self._passed, self._ahead = Mark(0, 0), deque[Mark]()
        self._rows = self._messages = 0

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._drawn.enter_context(self._bar)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._drawn.close()

    def follow(self, batches: Iterator[Batch], total: int | None, done: Callable[[int], int]) -> Iterator[Batch]:
        """The batches, in the thread that reads them. `done` returns the part of `total` behind so many batches."""
        self._total = total
        self._draw(Mark(0, 0))
        rows = 0
        for count, batch in enumerate(batches, 1):
            rows += batch.table.num_rows
            self._ahead.append(Mark(rows, done(count)))
            yield batch

    def advance(self, rows: int, messages: int) -> None:
        """Draw that so many rows of all are processed, and so many messages published by that."""
        self._rows, self._messages = rows, messages
        while self._ahead and self._ahead[0].rows <= rows:
            self._passed = self._ahead.popleft()
        self._draw(self._ahead[0] if self._ahead else self._passed)

    def _draw(self, upcoming: Mark) -> None:
        if self._bar is not None:
            self._bar.draw(done_between(self._passed, upcoming, self._rows), self._total, self._messages)


def done_between(passed: Mark, upcoming: Mark, rows: int) -> int:
    """How much is done behind so many rows, between two marks: rows of a batch are about equally large."""
    if upcoming.rows <= passed.rows:
        return passed.done
    return passed.done + (upcoming.done - passed.done) * (rows - passed.rows) // (upcoming.rows - passed.rows)


def _bar(name: str) -> "ProgressBar":
    # Imported here: if no bar is drawn, the command starts sooner.
    from mq.cli.publishing.progress_bar import ProgressBar

    return ProgressBar(name)
