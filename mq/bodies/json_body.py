"""Decodes JSON and NDJSON bodies of publishes. They are for people and curl; programs send Arrow."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from filer.errors import InvalidInput
from filer.format.schema import REF
from filer.nearest import unknown_name
from filer.times import parse_rfc3339
from filer.uploads import Claim
from mq.base import exact_json
from mq.base.errors import Malformed
from mq.bodies.rows import JSON_HEADER, Columns, Rows, check_header_count, check_json_text, check_parsed_size

MESSAGE_FIELDS = ("key", "key_base64", "value", "value_base64", "ref", "headers", "event_time")
MOST_LINES = 200_000
"""Each message takes several hundred bytes while a body is read."""
REF_FIELDS = ("upload", "size", "etag", "sha256")


def decode_json(body: bytes, columns: Columns) -> Rows:
    """The rows of `{"messages": [...]}`. Raises `Malformed` or `InvalidInput`, which name the wrong message."""
    check_parsed_size(body, "the body")
    document = _parse(body, "the body")
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise InvalidInput('the body must be an object {"messages": [...]}')
    for name in document:
        if name != "messages":
            raise InvalidInput(unknown_name("field", name, ["messages"]))
    messages = document["messages"]
    return _to_rows(((f"messages[{n}]", message) for n, message in enumerate(messages)), columns)


def decode_json_value(body: bytes, columns: Columns, fields: Mapping[str, Any]) -> Rows:
    """The row of a body that is the `value` of one message; `fields` are the others. Errors as `decode_json`.

    A document of messages is refused: it would be stored as one value, which nobody means.
    """
    check_parsed_size(body, "the body")
    value = _parse(body, "the body")
    if isinstance(value, dict) and list(value) == ["messages"] and isinstance(value["messages"], list):
        raise InvalidInput(
            "a key in the query is for a body that is a single value; this one is a document of messages, and each "
            "of them has its own key"
        )
    return _to_rows([("the body", {**fields, "value": value})], columns)


def decode_ndjson(body: bytes, columns: Columns) -> Rows:
    """The rows of a body with one message per line. Blank lines are skipped. Errors as `decode_json`, with the line."""
    if body.count(b"\n") > MOST_LINES:
        raise InvalidInput(f"the body has more than {MOST_LINES} lines: send fewer messages in a request, or Arrow")
    return _to_rows(_lines(body), columns)


def _lines(body: bytes) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(body.split(b"\n"), start=1):
        if line and not line.isspace():
            where = f"line {number}"
            check_parsed_size(line, where)
            yield where, _parse(line, where)


def _parse(data: bytes, where: str) -> Any:
    try:
        return exact_json.loads(data)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"{where} is not valid JSON: {error}") from error


def _to_rows(messages: Iterable[tuple[str, Any]], columns: Columns) -> Rows:
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times: list[int | None] = []
    headers: list[list[tuple[str, bytes]] | None] = []
    claims: list[tuple[int, Claim]] = []
    for where, message in messages:
        if not isinstance(message, dict):
            raise InvalidInput(f"{where}: a message must be an object with fields of {', '.join(MESSAGE_FIELDS)}")
        _check_fields(message, where)
        named = _headers(message.get("headers"), where)
        value, is_json = _value(message, where)
        if is_json and columns.value_type != "json":
            named.append(JSON_HEADER)
        if "ref" in message:
            claims.append((len(keys), _claim(message["ref"], where)))
        keys.append(_key(message, where))
        values.append(value)
        times.append(_event_time(message.get("event_time"), where))
        headers.append(named or None)
        check_types(keys[-1], value, columns, where)
    schema = columns.schema
    arrays = [
        pa.array(keys, schema.field("key").type),
        pa.array(values, schema.field("value").type),
        pa.array(times, schema.field("event_time").type),
        pa.array(headers, schema.field("headers").type),
        pa.nulls(len(keys), REF),
    ]
    return Rows(pa.RecordBatch.from_arrays(arrays, schema=schema), claims)


def check_types(key: bytes | None, value: bytes | None, columns: Columns, where: str) -> None:
    """Raise `InvalidInput` if the key or the value does not fit the topic's column types."""
    if columns.key_type == "string" and key is not None:
        _check_utf8(key, "key", where)
    if columns.value_type == "string" and value is not None:
        _check_utf8(value, "value", where)
    if columns.value_type == "json" and value is not None:
        check_json_text(value, where)


def _check_utf8(data: bytes, what: str, where: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where}: the topic's {what}s must be strings, but this {what} is not UTF-8") from error


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


def _value(message: Mapping[str, Any], where: str) -> tuple[bytes | None, bool]:
    """The bytes to store, and whether they are JSON text. A string is stored as it is, not as JSON."""
    if "value_base64" in message:
        return decode_base64(message["value_base64"], f"{where}: value_base64"), False
    value = message.get("value")
    if value is None:
        return None, False
    if isinstance(value, str):
        return _encode(value, where), False
    try:
        # A copy: what orjson returns holds on to the kilobytes in which it was written.
        return bytes(memoryview(exact_json.dumps(value))), True
    except TypeError as error:
        raise InvalidInput(f"{where}: the value is nested too deeply: send it as a string of JSON text") from error


def _encode(text: str, where: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{where}: a lone surrogate is not valid Unicode") from error


def decode_base64(text: Any, where: str) -> bytes:
    """The bytes of strict standard base64. Raises `InvalidInput`."""
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


def parse_time(text: Any, where: str) -> int:
    """Microseconds since the epoch of an RFC 3339 time; raises `InvalidInput`."""
    wanted = f"{where} must be an RFC 3339 time with an offset, such as 2026-01-31T12:00:00Z, not {text!r:.80}"
    if not isinstance(text, str):
        raise InvalidInput(wanted)
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise InvalidInput(wanted) from error


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
        raise InvalidInput(f"{where}: ref lacks 'upload', the id that POST …/uploads returned")
    return Claim(ref["upload"], ref.get("size"), ref.get("etag"), ref.get("sha256"))
