"""Prints results on stdout, as text for people or JSON for machines, and progress on stderr."""

import contextlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from filer.plain_tables import table_lines


def print_json(answer: Any) -> None:
    """Print one JSON document on one line."""
    _write(orjson.dumps(answer).decode() + "\n")


def print_lines(*lines: str) -> None:
    """Print text for people."""
    _write("".join(f"{line}\n" for line in lines))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Columns that hold only numbers are aligned to the right."""
    cells = [list(row) for row in rows]
    numeric = [bool(cells) and all(isinstance(row[at], int | float) for row in cells) for at in range(len(columns))]
    print_lines(*table_lines(columns, [[_shown(cell) for cell in row] for row in cells], numeric))


def size(size_bytes: float) -> str:
    """Return a number of bytes in a suitable unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, singular or plural."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def say(line: str) -> None:
    """Print a line about the progress of the job on stderr."""
    sys.stderr.write(f"mq: {line}\n")
    sys.stderr.flush()


def discard_stdout() -> None:
    """Discard the rest of the output buffers."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _shown(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
