"""The columns of a segment file (docs/design.md §4), and of the rows that a producer publishes."""

from functools import cache
from typing import Literal

import pyarrow as pa

KeyType = Literal["binary", "string"]
ValueType = Literal["binary", "string", "json"]

TIMESTAMP = pa.timestamp("us", "UTC")
HEADERS = pa.map_(pa.string(), pa.binary())
REF = pa.struct([("uri", pa.string()), ("size", pa.int64()), ("etag", pa.string()), ("sha256", pa.string())])
OFFSET_FIELD = pa.field("_offset", pa.int64(), nullable=False)
TIMESTAMP_FIELD = pa.field("_timestamp", TIMESTAMP, nullable=False)
TOPIC_FIELD = pa.field("_topic", pa.string(), nullable=False)
"""The member of a topic group to which a message belongs: the last column, in the files of topic groups alone."""

_KEY_TYPES: dict[str, pa.DataType] = {"binary": pa.binary(), "string": pa.string()}
_VALUE_TYPES: dict[str, pa.DataType] = {"binary": pa.binary(), "string": pa.string(), "json": pa.string()}
JSON_TYPE = pa.json_(pa.string())
"""The logical type of JSON values in files, for Parquet readers."""


@cache
def rows_schema(key_type: KeyType, value_type: ValueType, *, grouped: bool = False) -> pa.Schema:
    """The columns that producers publish: those of a file without the two that the owner adds.

    JSON values are strings until they are written (`mark_json`): Arrow supports few operations on extension types.
    `grouped`: of a topic group, whose messages say to which of its members they belong.
    """
    return pa.schema(
        [
            ("key", _KEY_TYPES[key_type]),
            ("value", _VALUE_TYPES[value_type]),
            ("event_time", TIMESTAMP),
            ("headers", HEADERS),
            ("_ref", REF),
            *((TOPIC_FIELD,) if grouped else ()),
        ]
    )


@cache
def log_schema(key_type: KeyType, value_type: ValueType, *, grouped: bool = False) -> pa.Schema:
    """The columns that the broker holds and gives to readers: the rows with their offsets and timestamps."""
    return pa.schema([OFFSET_FIELD, TIMESTAMP_FIELD, *rows_schema(key_type, value_type, grouped=grouped)])


@cache
def no_messages(key_type: KeyType, value_type: ValueType, *, grouped: bool = False) -> pa.Table:
    """A table of those columns without a row. Arrow takes longer to make one than to read what is in memory."""
    return log_schema(key_type, value_type, grouped=grouped).empty_table()
