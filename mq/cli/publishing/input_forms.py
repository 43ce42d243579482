"""The forms of an input of `mq publish`: its format, and the fields for each part of a message."""

from dataclasses import dataclass
from typing import Literal, get_args

from mq.cli.failures import CommandFailed
from mq.cli.publishing.input_stream import COMPRESSED

Format = Literal["lines", "ndjson", "csv", "parquet", "raw", "messages"]

_ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".txt": "lines",
    ".log": "lines",
    ".json": "raw",
}


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a record that become the key and the value. Without `value`, the value is the record as JSON."""

    key: str | None = None
    value: str | None = None


def format_of(name: str) -> Format:
    """The format for the ending of a file name. Raises `CommandFailed` for an unknown ending."""
    plain = name.lower()
    for ending in COMPRESSED:
        plain = plain.removesuffix(ending)
    for ending, form in _ENDINGS.items():
        if plain.endswith(ending):
            return form
    raise CommandFailed(f"the name {name!r} does not tell the format: give --format {', '.join(get_args(Format))}")
