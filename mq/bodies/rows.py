"""The rows to which every body is decoded, and checks of their values."""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa

from filer.errors import InvalidInput
from filer.format.schema import KeyType, ValueType, rows_schema
from filer.uploads import Claim
from mq.base.json_size import MOST_PARSED_BYTES, parsed_bytes_in_steps
from mq.limits.steps import Steps, at_once

MOST_HEADERS = 1000
"""Of one message. Each takes some 200 bytes when it is read as JSON, and may take nine in a body."""
JSON_HEADER = ("content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Rows:
    """The messages of one publish, in the columns of `rows_schema`. `claims` are the unverified references, by row."""

    batch: pa.RecordBatch
    claims: Sequence[tuple[int, Claim]] = ()


@dataclass(frozen=True, slots=True)
class Columns:
    """The column types of a topic, and when the rows came."""

    key_type: KeyType
    value_type: ValueType
    received_us: int = 0

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return rows_schema(self.key_type, self.value_type)


def check_json_values(values: pa.Array, first_row: int = 0) -> None:
    """Raise `InvalidInput` with the first row whose value is not JSON text. Null is allowed."""
    for row, value in enumerate(values.to_pylist()):
        if value is not None:
            check_json_text(value, f"row {row + first_row}")


def check_json_text(value: str | bytes, where: str) -> None:
    """Raise `InvalidInput` if the value is not JSON text, or would take too much memory to find out."""
    check_parsed_size(value.encode() if isinstance(value, str) else value, where)
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{where}: the topic's values must be JSON, but this one is not JSON: {error}") from error


def check_parsed_size(text: bytes, where: str) -> None:
    """Raise `InvalidInput` if a JSON text takes too much memory while it is parsed."""
    at_once(parsed_size_checked(text, where))


def parsed_size_checked(text: bytes, where: str) -> Steps[None]:
    """As `check_parsed_size`, a step at a time."""
    if (yield from parsed_bytes_in_steps(text)) > MOST_PARSED_BYTES:
        raise InvalidInput(
            f"{where}: JSON of so many lists, objects and strings takes more than {MOST_PARSED_BYTES} bytes of memory "
            "while it is read: send fewer messages in a request, or Arrow"
        )


def check_header_count(most: int, where: str) -> None:
    """Raise `InvalidInput` if a message has too many headers."""
    if most > MOST_HEADERS:
        raise InvalidInput(f"{where}: a message has at most {MOST_HEADERS} headers, not {most}")
