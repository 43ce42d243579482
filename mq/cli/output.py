"""Tables for people, JSON for machines, both on stdout."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mq.cli.failures import OutputClosed

# Wide enough for any table: a pipe has no edge at which to wrap or cut.
_PIPE_WIDTH = 10_000


def print_json(answer: Any) -> None:
    """One JSON document on one line."""
    write_out(orjson.dumps(answer, option=orjson.OPT_UTC_Z) + b"\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; columns of numbers only are aligned to the right."""
    cells = [list(row) for row in rows]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, name in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[place], int | float) for row in cells)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(shown(cell)) for cell in row))
    _print(table)


def print_lines(*lines: str) -> None:
    """Text for people."""
    write_out("".join(f"{line}\n" for line in lines).encode())


def shown(value: object) -> str:
    """A value as people read it, without what would steer their terminal."""
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
    """A number of bytes in the unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size_bytes < 1024 or unit == "TiB":
            break
        size_bytes /= 1024
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"


def write_out(block: bytes | memoryview) -> None:
    """Write to stdout at once; raises `OutputClosed` where nobody reads it any more."""
    try:
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error


def _print(table: Table) -> None:
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    write_out("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()).encode())
