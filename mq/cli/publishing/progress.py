"""A progress bar on the terminal."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from rich import progress as bars
from rich.console import Console
from rich.table import Column

from mq.cli.publishing.batches import Batch
from mq.cli.publishing.input_stream import InputStream

# All columns together fit on a terminal of 80 characters.
_NAME_WIDTH, _BAR_WIDTH = 16, 10


class Progress:
    """The progress through one input, measured in bytes or in rows. Draws nothing unless `shown`."""

    def __init__(self, name: str, *, shown: bool) -> None:
        self._name = name
        self._bars = bars.Progress(
            bars.TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=_NAME_WIDTH)),
            bars.BarColumn(bar_width=_BAR_WIDTH),
            bars.TaskProgressColumn(),
            bars.TextColumn("{task.fields[messages]:,} messages, {task.fields[per_second]:,.0f}/s"),
            bars.TimeRemainingColumn(),
            bars.TextColumn("left"),
            console=Console(file=sys.stderr),
            disable=not shown,
            transient=True,
        )
        self._task = self._bars.add_task(Path(name).name, total=None, messages=0, per_second=0)
        self._stream: InputStream | None = None
        self._rows = self._messages = 0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def follow(self, stream: InputStream) -> None:
        """Measure by the bytes read from `stream`."""
        self._stream = stream
        self._bars.update(self._task, total=stream.size_bytes)

    def count(self, batches: Iterator[Batch], total_rows: int) -> Iterator[Batch]:
        """Measure by the rows yielded."""
        self._bars.update(self._task, total=total_rows)
        for batch in batches:
            yield batch
            self._rows += batch.table.num_rows

    def update(self, published: int) -> None:
        """Draw the current state, after so many more messages were published."""
        self._messages += published
        self._bars.update(
            self._task,
            completed=self._rows if self._stream is None else self._stream.done_bytes,
            messages=self._messages,
            per_second=self._messages / (self._bars.tasks[self._task].elapsed or 1),
        )
