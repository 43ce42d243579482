"""The schema of a topic's messages: the columns of its files (docs/design.md §4), and its keys and values."""

from functools import cache
from typing import ClassVar, Final, Literal

import orjson
import pyarrow as pa

from filer.errors import InvalidInput
from filer.json_texts import check_json_text

KeyType = Literal["binary", "string"]
ValueType = Literal["binary", "string", "json"]

TIMESTAMP = pa.timestamp("us", "UTC")
HEADERS = pa.map_(pa.string(), pa.binary())
REF = pa.struct([("uri", pa.string()), ("size", pa.int64()), ("etag", pa.string()), ("sha256", pa.string())])
OFFSET_FIELD = pa.field("_offset", pa.int64(), nullable=False)
TIMESTAMP_FIELD = pa.field("_timestamp", TIMESTAMP, nullable=False)
TOPIC_FIELD = pa.field("_topic", pa.string(), nullable=False)
"""The member of a topic group to which a message belongs: the last column, in the files of topic groups alone."""
JSON_TYPE = pa.json_(pa.string())
"""The logical type of JSON values in files, for Parquet readers."""


class MessageSchema:
    """The schema of a topic's messages. `of` makes one for each kind of topic, and returns the same one again.

    `id`: topics with the same one accept each other's messages. `published` are the columns that producers give; `rows`
    also has the member, in a topic group; `log` are those that the broker holds and gives to readers: the rows with
    their offsets and times. `no_messages` is an empty table of these. It is kept, because Arrow takes longer to make
    one than to read messages from memory.

    This class is for topics with values that are bytes. A subclass is another kind of values.
    """

    __slots__ = (
        "_has_text_keys",
        "id",
        "is_grouped",
        "key_type",
        "log",
        "no_messages",
        "published",
        "rows",
        "value_type",
    )

    takes_all_values: ClassVar[bool] = True
    is_json: ClassVar[bool] = False
    """Whether each value is JSON text, so that no header has to say it."""
    _value_column: ClassVar[pa.DataType] = pa.binary()

    def __init__(self, key_type: KeyType, value_type: ValueType, *, grouped: bool) -> None:
        self.id: Final = f"{key_type}/{value_type}"
        self.key_type: Final = key_type
        self.value_type: Final = value_type
        self.is_grouped: Final = grouped
        self._has_text_keys: Final = key_type == "string"
        key = pa.string() if self._has_text_keys else pa.binary()
        fields = {"key": key, "value": self._value_column, "event_time": TIMESTAMP, "headers": HEADERS, "_ref": REF}
        self.published: Final = pa.schema(fields)
        self.rows: Final = self.published.append(TOPIC_FIELD) if grouped else self.published
        self.log: Final = pa.schema([OFFSET_FIELD, TIMESTAMP_FIELD, *self.rows])
        self.no_messages: Final = self.log.empty_table()

    @staticmethod
    def of(key_type: KeyType = "binary", value_type: ValueType = "binary", *, grouped: bool = False) -> "MessageSchema":
        """The schema of topics with these settings. `grouped`: of a topic group."""
        return _schema(key_type, value_type, grouped)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _schema, (self.key_type, self.value_type, self.is_grouped)

    def __repr__(self) -> str:
        return f"<MessageSchema {self.id}{' grouped' if self.is_grouped else ''}>"

    def check(self, key: bytes | None, value: bytes | None, where: str) -> None:
        """Raise `InvalidInput` if the topic does not accept the key or the value."""
        if self._has_text_keys and key is not None:
            _check_utf8(key, "key", where)

    def first_wrong(self, values: pa.Array) -> tuple[int, str] | None:
        """The first value that the topic does not accept: its row, and what it is. (Arrow has checked texts.)"""
        return None

    def in_file(self, table: pa.Table) -> pa.Table:
        """The table with the types that Parquet readers see. In memory values of JSON are strings.

        (Arrow supports few operations on extension types.)
        """
        return table


class _OfText(MessageSchema):
    __slots__ = ()

    takes_all_values = False
    _value_column = pa.string()

    def check(self, key: bytes | None, value: bytes | None, where: str) -> None:
        super().check(key, value, where)
        if value is not None:
            _check_utf8(value, "value", where)


class _OfJson(MessageSchema):
    __slots__ = ()

    takes_all_values = False
    is_json = True
    _value_column = pa.string()

    def check(self, key: bytes | None, value: bytes | None, where: str) -> None:
        super().check(key, value, where)
        if value is not None:
            check_json_text(value, where)

    def first_wrong(self, values: pa.Array) -> tuple[int, str] | None:
        for row, value in enumerate(values.to_pylist()):
            try:
                if value is not None:
                    orjson.loads(value)
            except orjson.JSONDecodeError as error:
                return row, f"not JSON: {error}"
        return None

    def in_file(self, table: pa.Table) -> pa.Table:
        position = table.schema.get_field_index("value")
        chunks = [pa.ExtensionArray.from_storage(JSON_TYPE, chunk) for chunk in table["value"].chunks]
        return table.set_column(position, "value", pa.chunked_array(chunks, JSON_TYPE))


_KINDS: dict[ValueType, type[MessageSchema]] = {"binary": MessageSchema, "string": _OfText, "json": _OfJson}


@cache
def _schema(key_type: KeyType, value_type: ValueType, grouped: bool) -> MessageSchema:
    return _KINDS[value_type](key_type, value_type, grouped=grouped)


OF_BYTES: Final = MessageSchema.of()
"""The schema of topics with default settings for keys and values."""


def _check_utf8(data: bytes, what: str, where: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where}: the topic's {what}s must be strings, but this {what} is not UTF-8") from error
