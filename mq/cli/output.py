"""Output on stdout: tables for people, JSON for machines."""

import os
import select
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import orjson

from filer.clock import Clock
from filer.plain_tables import table_lines, text_width, with_bold_names
from mq.cli.failures import say
from mq.cli.streams import OutputClosed, OutputFailed, discard_stdout
from mq.cli.terminal_text import TerminalText

_WITHOUT_BOLD = (None, "", "dumb", "unknown")
_LOOK_SECONDS = 0.2


def print_json(answer: Any) -> None:
    """Print one JSON document on one line."""
    write_text(orjson.dumps(answer, option=orjson.OPT_UTC_Z) + b"\n")


def print_deleted(name: str, what: str, *, as_json: bool) -> None:
    """Report that the object of this name is deleted; `what` describes it."""
    if as_json:
        print_json({"deleted": name})
    else:
        print_lines(f"{what} is deleted")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Columns that hold only numbers are aligned to the right.

    On a terminal the names of the columns are bold, and a table that is too wide is folded. Elsewhere it is whole.
    """
    cells = [list(row) for row in rows]
    numeric = [bool(cells) and all(isinstance(row[at], int | float) for row in cells) for at in range(len(columns))]
    texts = [[shown(cell) for cell in row] for row in cells]
    lines = table_lines(columns, texts, numeric)
    if sys.stdout.isatty():
        if max(map(text_width, lines)) > shutil.get_terminal_size().columns:
            _print_folded(columns, texts, numeric)
            return
        if os.environ.get("TERM") not in _WITHOUT_BOLD:
            lines = with_bold_names(lines)
    _write_lines(lines)


def _print_folded(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    # Imported here: it takes longer than the rest of a short command.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, is_numeric in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if is_numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    _write_lines(line.rstrip() for line in capture.get().splitlines())


def print_lines(*lines: str) -> None:
    """Print lines of text."""
    write_text("".join(f"{line}\n" for line in lines).encode())


def _write_lines(lines: Iterable[str]) -> None:
    """Print lines of a table. Its cells are `shown`, and its names may be bold."""
    write_out("".join(f"{line}\n" for line in lines).encode())


def shown(value: object) -> str:
    """Format a value for people. Characters that would control the terminal are escaped."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(value))


def size(size_bytes: float) -> str:
    """Format a number of bytes in a suitable unit."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size_bytes < 1024 or unit == "TiB":
            break
        size_bytes /= 1024
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"


def slots(key_range: tuple[int, int]) -> str:
    """Format a half-open key range as its first and last slot."""
    start, stop = key_range
    return f"{start}-{stop - 1}"


def write_out(block: bytes | memoryview) -> None:
    """Write to stdout and flush. Raises `OutputClosed` if the reader has closed it, and `OutputFailed`."""
    sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def write_text(block: bytes | memoryview) -> None:
    """As `write_out`, for data that others may have written: on a terminal it controls nothing."""
    write_out(TerminalText().shown(block) if sys.stdout.isatty() else block)


@contextmanager
def readers_or_none() -> Iterator[None]:
    """In the block, a server may print without a reader: it serves all the same."""
    try:
        yield
    except OutputClosed:
        discard_stdout()
    except OutputFailed as error:
        discard_stdout()
        say(f"{error}; serving all the same")


async def until_closed(clock: Clock) -> None:
    """Return once the reader of stdout has closed it; else never. A program that only waits would not notice it."""
    poll = select.poll()
    with suppress(OSError, ValueError):  # without a descriptor, as in tests, there is nothing to look at
        poll.register(sys.stdout.fileno(), 0)
    while not poll.poll(0):
        await clock.sleep(_LOOK_SECONDS)
