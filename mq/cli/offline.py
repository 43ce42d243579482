"""What commands share that work on a store without a broker."""

import sys
from pathlib import Path

from rich import progress as bars
from rich.console import Console

from filer.errors import InvalidInput


def check_directory(url: str) -> None:
    """Raise `InvalidInput` for a directory that is not there: opening it as a store would make it."""
    path = url.removeprefix("file://")
    if "://" not in path and not Path(path).is_dir():
        raise InvalidInput(f"there is no directory {path!r}: name the store with --store")


def progress_bar() -> bars.Progress:
    """Shows how many objects were read, if somebody is looking."""
    return bars.Progress(
        bars.SpinnerColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.description}"),
        console=Console(file=sys.stderr),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
