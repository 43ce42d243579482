"""A progress bar on the terminal."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from rich import progress as bars
from rich.console import Console
from rich.table import Column

# All columns together fit on a terminal of 80 characters.
_NAME_WIDTH, _BAR_WIDTH = 16, 10


class ProgressBar:
    """The bar of one input, on stderr. It disappears when it ends."""

    def __init__(self, name: str) -> None:
        self._bars = bars.Progress(
            bars.TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=_NAME_WIDTH)),
            bars.BarColumn(bar_width=_BAR_WIDTH),
            bars.TaskProgressColumn(),
            bars.TextColumn("{task.fields[messages]:,} messages, {task.fields[per_second]:,.0f}/s"),
            bars.TimeRemainingColumn(),
            bars.TextColumn("left"),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._bars.add_task(Path(name).name, total=None, messages=0, per_second=0)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def draw(self, done: int, total: int | None, messages: int) -> None:
        """Show how much of the total is done, in bytes or rows, and how many messages were published."""
        self._bars.update(
            self._task,
            completed=done,
            total=total,
            messages=messages,
            per_second=messages / (self._bars.tasks[self._task].elapsed or 1),
        )
