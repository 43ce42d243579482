"""Shared by commands that work on a store without a broker."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from filer.errors import InvalidInput


def check_directory(url: str) -> None:
    """Raise `InvalidInput` for a directory that does not exist: opening it as a store would create it."""
    path = url.removeprefix("file://")
    if "://" not in path and not Path(path).is_dir():
        raise InvalidInput(f"there is no directory {path!r}: name the store with --store")


class CheckProgress:
    """A context that shows on stderr how many objects were checked, and the last one, if stderr is a terminal."""

    def __init__(self, what: str) -> None:
        self._done = 0
        self._bars = None
        if sys.stderr.isatty():
            # Imported here: it takes longer than a check of a small topic.
            from rich import progress as bars
            from rich.console import Console

            self._bars = bars.Progress(
                bars.SpinnerColumn(),
                bars.MofNCompleteColumn(),
                bars.TextColumn("{task.description}"),
                console=Console(file=sys.stderr),
                transient=True,
            )
            self._task = self._bars.add_task(what, total=None)

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def checked(self, text: str, done: int | None = None) -> None:
        """Show the text, and that one more object was checked, or `done` in all."""
        self._done = self._done + 1 if done is None else done
        if self._bars is not None:
            self._bars.update(self._task, completed=self._done, description=text)
