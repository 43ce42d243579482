"""What every kind of body is turned into."""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa

from filer.errors import InvalidInput
from filer.schema import KeyType, ValueType, rows_schema
from filer.uploads import Claim

JSON_HEADER = ("content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Rows:
    """The messages of one publish, in the columns of `rows_schema`; `claims` are references to be verified, by row."""

    batch: pa.RecordBatch
    claims: Sequence[tuple[int, Claim]] = ()


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column types a topic takes."""

    key_type: KeyType
    value_type: ValueType

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows."""
        return rows_schema(self.key_type, self.value_type)


def check_json_values(values: pa.Array, first_row: int = 0) -> None:
    """Raises `InvalidInput` naming the first row whose value is not JSON text; nulls pass."""
    for row, value in enumerate(values.to_pylist()):
        if value is not None:
            check_json_text(value, f"row {row + first_row}")


def check_json_text(value: str | bytes, where: str) -> None:
    """Raises `InvalidInput` where a value is not JSON text."""
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{where}: the topic takes JSON values, and this one is not JSON: {error}") from error
