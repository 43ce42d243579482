"""Tables as lines of text, for the programs of commands and of jobs.

For a table that fits, this is enough: rich takes longer to import than a broker takes to answer.
"""

import unicodedata
from collections.abc import Sequence

_BETWEEN = " " * 3
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def table_lines(names: Sequence[str], rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> list[str]:
    """The names of the columns, a rule, and the rows. Cells stand to the left of their column, or to the right."""
    widths = [max(map(text_width, column)) for column in zip(names, *rows, strict=True)]
    lines = [_line(row, widths, to_the_right) for row in (names, *rows)]
    return [lines[0], "─" * (sum(widths) + len(_BETWEEN) * (len(widths) - 1)), *lines[1:]]


def with_bold_names(lines: Sequence[str]) -> list[str]:
    """The lines of a table with the names of its columns in bold, as terminals show it."""
    return [f"{_BOLD}{lines[0]}{_PLAIN}", *lines[1:]]


def text_width(text: str) -> int:
    """How many columns of a terminal a printable text takes: characters of East Asia take two, accents none."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _line(row: Sequence[str], widths: Sequence[int], to_the_right: Sequence[bool]) -> str:
    cells = []
    for text, width, is_right in zip(row, widths, to_the_right, strict=True):
        space = " " * (width - text_width(text))
        cells.append(space + text if is_right else text + space)
    return _BETWEEN.join(cells).rstrip()
