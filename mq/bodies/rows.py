"""The rows that every body is decoded to, and checks of their values."""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa

from filer.errors import InvalidInput
from filer.format.headers import wrong_headers
from filer.json_texts import LARGE_BYTES, not_json, parsed_size_checked
from filer.uploads import Claim
from mq.limits.steps import STEP_BYTES, STEP_ROWS, Steps

MOST_HEADERS = 1000
"""The most of one message. Each takes some 200 bytes when it is read as JSON, and may take nine in a body."""
MOST_REFS = 10_000
"""The most of one request. Each is looked up in the store, one after the other."""
_SMALL_CHARS = LARGE_BYTES // 4
"""A value of so many characters has at most `LARGE_BYTES`, and is parsed without a look at its size."""
CHECKED_ROWS = 4 * STEP_ROWS
"""Values of JSON are checked in a fraction of the time that it takes to decode a message."""
JSON_HEADER = ("content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Rows:
    """The messages of one publish, in the columns that producers give. `claims` are the unverified references, by row.

    `grown_bytes`: how many bytes they have more than their body.
    """

    batch: pa.RecordBatch
    claims: Sequence[tuple[int, Claim]] = ()
    grown_bytes: int = 0


def json_values_checked(values: pa.Array) -> Steps[None]:
    """Raise `InvalidInput` with the first row whose value is not JSON text. Null is allowed. A step at a time."""
    step_bytes = 0
    for start in range(0, len(values), CHECKED_ROWS):
        if start:
            yield
        row = start
        try:
            for row, value in enumerate(values.slice(start, CHECKED_ROWS).to_pylist(), start):
                if value is None:
                    continue
                if len(value) > _SMALL_CHARS:
                    yield from parsed_size_checked(value.encode(), _row_of_request(row))
                orjson.loads(value)
                step_bytes += len(value)
                if step_bytes >= STEP_BYTES:
                    yield
                    step_bytes = 0
        except orjson.JSONDecodeError as error:
            raise not_json(_row_of_request(row), error) from error


def _row_of_request(row: int) -> str:
    return f"row {row} of the request"


def check_header_count(most: int, where: str) -> None:
    """Raise `InvalidInput` if a message has too many headers."""
    if most > MOST_HEADERS:
        raise InvalidInput(f"{where}: a message has at most {MOST_HEADERS} headers, not {most}")


def check_ref_count(count: int) -> None:
    """Raise `InvalidInput` if a request has too many references."""
    if count > MOST_REFS:
        raise InvalidInput(f"a request has at most {MOST_REFS} messages with a ref: send several requests")


def check_headers(headers: Sequence[tuple[str, bytes]], where: str) -> None:
    """Raise `InvalidInput` if the headers of a message have a name twice, or a time that cannot be read."""
    if (reason := wrong_headers(headers)) is not None:
        raise InvalidInput(f"{where}: {reason}")


def json_string(text: bytes, where: str, *, most_bytes: int) -> bytes:
    """Return a text as a JSON string. Raises `InvalidInput` if it is no text, or takes more than `most_bytes`."""
    try:
        written = orjson.dumps(text.decode())
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where}: it is declared as text, and is not UTF-8: {error}") from error
    if len(written) > most_bytes:
        raise InvalidInput(
            f"{where}: as a JSON string, this text takes more than {most_bytes} bytes: send it as bytes of JSON text"
        )
    return written
