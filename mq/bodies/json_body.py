"""Decodes JSON and NDJSON bodies of publishes. They are for people and curl; programs send Arrow."""

import base64
import binascii
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from filer.errors import InvalidInput, Remedy
from filer.format.nulls import null_column
from filer.format.schema import REF, MessageSchema
from filer.json_texts import check_parsed_size, parsed_size_checked
from filer.nearest import unknown_name
from filer.segment.next_file import Single
from filer.uploads import Claim
from mq.base import exact_json
from mq.base.errors import Malformed
from mq.bodies.delivery_times import DELIVERY_FIELDS, delivery_headers
from mq.bodies.rows import (
    JSON_HEADER,
    Rows,
    check_header_count,
    check_headers,
    check_ref_count,
)
from mq.bodies.times import parse_time
from mq.limits.steps import STEP_BYTES, Steps

MESSAGE_FIELDS = ("key", "key_base64", "value", "value_base64", "ref", "headers", "event_time", *DELIVERY_FIELDS)
MOST_LINES = 200_000
"""Each message takes several hundred bytes while a body is read."""
_KEY_AND_VALUE = {"key", "value"}
REF_FIELDS = ("upload", "size", "etag", "sha256")
WHOLE_BYTES = 64 * 1024
"""A document up to this is parsed at once."""
_FIRST_MESSAGE = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"messages"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*')
_BEHIND_MESSAGE = re.compile(r"[ \t\r\n]*([,\]])[ \t\r\n]*")
_END = re.compile(r"[ \t\r\n]*\}[ \t\r\n]*\Z")
# A message and a header cost as much as so many bytes of a value.
_MESSAGE_BYTES, _HEADER_BYTES = 2048, 512
# Joining the batches of a long body at once would hold up all requests: each piece of a column takes its time.
_JOINED_BATCHES = 64


def decode_json(body: bytes, schema: MessageSchema, received_us: int = 0) -> Steps[Rows]:
    """Return the rows of `{"messages": [...]}`. Raises `Malformed` or `InvalidInput`, which name the wrong message."""
    if len(body) <= WHOLE_BYTES:
        return (yield from rows_of(_of_document(body), schema, received_us))
    start = _FIRST_MESSAGE.match(body)
    if start is None:
        yield from parsed_size_checked(body, "the body")
        raise InvalidInput('the body must be an object {"messages": [...]}, and begin with that')
    return (yield from rows_of_long(body, start.end(), schema, received_us))


def rows_of_long(body: bytes, start: int, schema: MessageSchema, received_us: int = 0) -> Steps[Rows]:
    """Return the rows of a long document whose last field is a list of messages. The first begins at `start`.

    Up to there all is ASCII. Errors as `decode_json`.
    """
    yield from parsed_size_checked(body, "the body")
    return (yield from rows_of(_one_by_one(body, start), schema, received_us))


def decode_json_value(
    body: bytes, schema: MessageSchema, fields: Mapping[str, Any], received_us: int = 0
) -> Steps[Rows]:
    """Return the row of a body that is the `value` of one message; `fields` are the others. Errors as `decode_json`.

    Refuses a document of messages: it would be stored as one value, which is never meant.
    """
    check_parsed_size(body, "the body")
    value = _parse(body, "the body")
    if isinstance(value, dict) and list(value) == ["messages"] and isinstance(value["messages"], list):
        raise InvalidInput(
            "a key in the query is for a body that is a single value; this one is a document of messages, and each "
            "of them has its own key"
        )
    # The body is the value, also if it is null. In a document of messages, null would mean that there is no value.
    given = orjson.Fragment(b"null") if value is None else value
    return rows_of([("the body", {**fields, "value": given})], schema, received_us)


def decode_ndjson(body: bytes, schema: MessageSchema, received_us: int = 0) -> Steps[Rows]:
    """Return the rows of a body with one message a line. Skips blank lines. Errors as `decode_json`, with the line."""
    if body.count(b"\n") > MOST_LINES:
        raise InvalidInput(f"the body has more than {MOST_LINES} lines: send fewer messages in a request, or Arrow")
    return rows_of(_lines(body), schema, received_us)


def _lines(body: bytes) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(io.BytesIO(body), start=1):
        if not line.isspace():
            where = f"line {number}"
            check_parsed_size(line, where)
            yield where, _parse(line, where)


def _of_document(body: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the messages of a small document, parsed at once."""
    document = _parse(body, "the body")
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise InvalidInput(
            'the body must be an object {"messages": [...]}; with ?key=… in the address it is the value of one message'
        )
    for name in document:
        if name != "messages":
            raise InvalidInput(unknown_name("field", name, ["messages"]))
    return ((f"messages[{number}]", message) for number, message in enumerate(document["messages"]))


def _one_by_one(body: bytes, start: int) -> Iterator[tuple[str, Any]]:
    """Yield the messages of a large document, parsed one by one: parsed at once, they would hold up all requests."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"the body is not valid JSON: {error}") from error
    # Up to `start` all is ASCII: that many bytes are as many characters.
    place, number, more = start, 0, text[start : start + 1] != "]"
    while more:
        where = f"messages[{number}]"
        try:
            message, end = exact_json.loads_at(text, place)
        except orjson.JSONDecodeError as error:
            raise Malformed(f"the body is not valid JSON: {where}: {error}") from error
        yield where, message
        behind = _BEHIND_MESSAGE.match(text, end)
        if behind is None:
            raise Malformed(f"the body is not valid JSON: behind {where} there is neither a comma nor a bracket")
        place, more, number = behind.end(), behind[1] == ",", number + 1
    if _END.match(text, place if number else place + 1) is None:
        raise InvalidInput('the body must be an object {"messages": [...]}, with nothing beside it')


def _parse(data: bytes, where: str) -> Any:
    try:
        return exact_json.loads(data)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"{where} is not valid JSON: {error}") from error


class _Batch:
    """Columns of a few rows, as Python lists."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.times: list[int | None] = []
        self.headers: list[list[tuple[str, bytes]] | None] = []

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the same as Arrow, which takes far less memory."""
        arrays = [
            pa.array(self.keys, schema.field("key").type),
            pa.array(self.values, schema.field("value").type),
            pa.array(self.times, schema.field("event_time").type),
            pa.array(self.headers, schema.field("headers").type),
            null_column(len(self.keys), REF),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def single_message(message: Any, schema: MessageSchema, received_us: int, where: str) -> Single | None:
    """Return a message as it is stored by itself; None if it has a reference to look up. Raises `InvalidInput`."""
    if isinstance(message, dict) and message.keys() == _KEY_AND_VALUE:
        key, value = message["key"], message["value"]
        # Most messages are like this. Nothing is left to check, unless values have to be JSON.
        if isinstance(key, str) and isinstance(value, str) and not schema.is_json:
            return Single(_encode(key, where), _encode(value, where), None, None)
    _check_message(message, where)
    if "ref" in message:
        return None
    data, headers = _value_and_headers(message, schema, received_us, where)
    key_data = _key(message, where)
    schema.check(key_data, data, where)
    return Single(key_data, data, tuple(headers) or None, _event_time(message.get("event_time"), where))


def _check_message(message: Any, where: str) -> None:
    if not isinstance(message, dict):
        raise InvalidInput(f"{where}: a message must be an object with fields of {', '.join(MESSAGE_FIELDS)}")
    _check_fields(message, where)


def _value_and_headers(
    message: Mapping[str, Any], schema: MessageSchema, received_us: int, where: str
) -> tuple[bytes | None, list[tuple[str, bytes]]]:
    named = _headers(message.get("headers"), where)
    named += delivery_headers(message, named, received_us, where)
    if named:
        check_headers(named, where)
    value, is_json = _value(message, schema, where)
    if is_json and not schema.is_json and not any(name.lower() == JSON_HEADER[0] for name, _ in named):
        named.append(JSON_HEADER)
    return value, named


def rows_of(messages: Iterable[tuple[str, Any]], schema: MessageSchema, received_us: int = 0) -> Steps[Rows]:
    """Return the rows of messages, each of which comes with its place. Errors as `decode_json`."""
    blocks: list[pa.RecordBatch] = []
    done: list[pa.RecordBatch] = []
    batch, step_bytes = _Batch(), 0
    claims: list[tuple[int, Claim]] = []
    for row, (where, message) in enumerate(messages):
        _check_message(message, where)
        value, named = _value_and_headers(message, schema, received_us, where)
        if "ref" in message:
            claims.append((row, _claim(message["ref"], where)))
            check_ref_count(len(claims))
        batch.keys.append(_key(message, where))
        batch.values.append(value)
        batch.times.append(_event_time(message.get("event_time"), where))
        batch.headers.append(named or None)
        schema.check(batch.keys[-1], value, where)
        step_bytes += _MESSAGE_BYTES + len(value or b"") + _HEADER_BYTES * len(named)
        if step_bytes >= STEP_BYTES:
            done.append(batch.to_arrow(schema.published))
            batch, step_bytes = _Batch(), 0
            yield
            if len(done) >= _JOINED_BATCHES:
                blocks.append(_joined(done))
                done.clear()
                yield
    done.append(batch.to_arrow(schema.published))
    return Rows(_joined([*blocks, *done]), claims)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    joined: pa.RecordBatch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    return joined


def _check_fields(message: Mapping[str, Any], where: str) -> None:
    for name in message:
        if name not in MESSAGE_FIELDS:
            raise InvalidInput(f"{where}: {unknown_name('field', name, MESSAGE_FIELDS)}")
    if "key" in message and "key_base64" in message:
        raise InvalidInput(f"{where}: give key or key_base64, not both")
    given = [name for name in ("value", "value_base64", "ref") if name in message]
    if len(given) != 1:
        raise InvalidInput(
            f"{where}: give exactly one of value, value_base64 and ref, not {' and '.join(given) or 'none'}"
        )


def _key(message: Mapping[str, Any], where: str) -> bytes | None:
    if "key_base64" in message:
        return decode_base64(message["key_base64"], f"{where}: key_base64")
    key = message.get("key")
    if key is not None and not isinstance(key, str):
        raise InvalidInput(f"{where}: a key must be a string, or base64 in key_base64, not {type(key).__name__}")
    return None if key is None else _encode(key, where)


def _value(message: Mapping[str, Any], schema: MessageSchema, where: str) -> tuple[bytes | None, bool]:
    """Return the bytes to store, and whether they are JSON text. In a topic of JSON a string is a JSON string."""
    if "value_base64" in message:
        return decode_base64(message["value_base64"], f"{where}: value_base64"), False
    value = message.get("value")
    if value is None:
        return None, False
    if isinstance(value, str) and not schema.is_json:
        return _encode(value, where), False
    try:
        # A copy, since orjson's result keeps the kilobytes in which it was written.
        return bytes(memoryview(exact_json.dumps(value))), True
    except TypeError as error:
        raise InvalidInput(f"{where}: the value is nested too deeply: send it as JSON text in value_base64") from error


def _encode(text: str, where: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{where}: a lone surrogate is not valid Unicode") from error


def decode_base64(text: Any, where: str) -> bytes:
    """Return the bytes of strict standard base64. Raises `InvalidInput`."""
    if not isinstance(text, str):
        raise InvalidInput(f"{where} must be a string of base64")
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidInput(f"{where} is not valid base64 (standard alphabet, with padding)") from error


def _headers(headers: Any, where: str) -> list[tuple[str, bytes]]:
    if headers is None:
        return []
    if not isinstance(headers, dict):
        raise InvalidInput(f"{where}: headers must be an object of strings")
    check_header_count(len(headers), where)
    return [(_encode(name, where).decode(), _header(name, value, where)) for name, value in headers.items()]


def _header(name: str, value: Any, where: str) -> bytes:
    if isinstance(value, str):
        return _encode(value, where)
    if isinstance(value, dict) and list(value) == ["base64"]:
        return decode_base64(value["base64"], f"{where}: header {name!r}")
    raise InvalidInput(f'{where}: header {name!r} must be a string, or {{"base64": "…"}}')


def _event_time(text: Any, where: str) -> int | None:
    return None if text is None else parse_time(text, f"{where}: event_time")


def _claim(ref: Any, where: str) -> Claim:
    if not isinstance(ref, dict):
        raise InvalidInput(f'{where}: a ref must be an object {{"upload": id}}')
    for name in ref:
        if name not in REF_FIELDS:
            raise InvalidInput(f"{where}: {unknown_name('field of ref', name, REF_FIELDS)}")
    kinds = {"upload": str, "size": int, "etag": str, "sha256": str}
    for name, kind in kinds.items():
        if ref.get(name) is not None and (not isinstance(ref[name], kind) or isinstance(ref[name], bool)):
            raise InvalidInput(f"{where}: ref.{name} must be of type {kind.__name__}")
    if "upload" not in ref:
        raise InvalidInput(f"{where}: ref lacks 'upload'", Remedy("give-upload-id"))
    return Claim(ref["upload"], ref.get("size"), ref.get("etag"), ref.get("sha256"))
