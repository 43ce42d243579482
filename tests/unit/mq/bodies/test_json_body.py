import base64
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.errors import InvalidInput
from filer.format.schema import MessageSchema
from filer.times import EARLIEST_US, LATEST_US, rfc3339
from mq.base.errors import Malformed
from mq.bodies import json_body
from mq.bodies.json_body import MOST_LINES, decode_json_value, single_message
from mq.bodies.rows import JSON_HEADER, MOST_HEADERS, Rows
from mq.bodies.times import parse_time
from mq.limits.steps import at_once

BINARY = MessageSchema.of()
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
HEADERS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)
MESSAGES = st.lists(
    st.fixed_dictionaries({"value": VALUES}, optional={"key": st.none() | st.text(), "headers": st.none() | HEADERS})
)


def decode_json(body: bytes, schema: MessageSchema) -> Rows:
    return at_once(json_body.decode_json(body, schema))


def decode_ndjson(body: bytes, schema: MessageSchema) -> Rows:
    return at_once(json_body.decode_ndjson(body, schema))


def expected_value(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


@given(MESSAGES)
def test_documents_and_lines_say_the_same(messages: list[dict[str, Any]]) -> None:
    rows = decode_json(orjson.dumps({"messages": messages}), BINARY)
    lines = decode_ndjson(b"\n".join(orjson.dumps(message) for message in messages), BINARY)
    assert rows.batch.equals(lines.batch)
    assert rows.batch.schema == BINARY.published
    assert rows.batch["value"].to_pylist() == [expected_value(m["value"]) for m in messages]
    assert rows.batch["key"].to_pylist() == [k.encode() if (k := m.get("key")) is not None else None for m in messages]
    for message, headers in zip(messages, rows.batch["headers"].to_pylist(), strict=True):
        named = [(name, value.encode()) for name, value in (message.get("headers") or {}).items()]
        if message["value"] is not None and not isinstance(message["value"], str):
            named.append(JSON_HEADER)
        assert (headers or []) == named


@given(st.binary(), st.binary())
def test_base64_is_exact(key: bytes, value: bytes) -> None:
    message = {"key_base64": base64.b64encode(key).decode(), "value_base64": base64.b64encode(value).decode()}
    rows = decode_json(orjson.dumps({"messages": [message]}), BINARY)
    assert (rows.batch["key"].to_pylist(), rows.batch["value"].to_pylist()) == ([key], [value])


@given(st.binary())
def test_any_bytes_are_rows_or_a_refusal(body: bytes) -> None:
    for decode in (decode_json, decode_ndjson):
        try:
            decode(body, BINARY)
        except InvalidInput as error:
            assert "the body" in str(error) or "line " in str(error) or "messages" in str(error)


def test_lines_are_counted_from_one_with_blank_ones() -> None:
    with pytest.raises(Malformed, match="line 4 is not valid JSON"):
        decode_ndjson(b'{"value":1}\n\n\r\n{"value":}\n', BINARY)
    with pytest.raises(InvalidInput, match=r"messages\[1\]: unknown field 'valeu': did you mean 'value'\?"):
        decode_json(b'{"messages":[{"value":1},{"valeu":1}]}', BINARY)


def test_names_of_megabytes_are_refused_at_once() -> None:
    name = "x" * 5_000_000
    with pytest.raises(InvalidInput, match="unknown field 'xxx") as caught:
        decode_ndjson(b'{"%b": 1}' % name.encode(), BINARY)
    assert len(str(caught.value)) < 500


def test_references_are_claims_yet_to_be_checked() -> None:
    body = b'{"value":1}\n{"ref":{"upload":"u","size":4,"etag":null}}\n{"ref":{"upload":"v"}}'
    rows = decode_ndjson(body, BINARY)
    assert [(row, claim.upload, claim.size_bytes, claim.etag) for row, claim in rows.claims] == [
        (1, "u", 4, None),
        (2, "v", None, None),
    ]
    assert rows.batch["value"].to_pylist() == [b"1", None, None]


@pytest.mark.parametrize(
    ("schema", "bad"), [(MessageSchema.of("string", "binary"), "key"), (MessageSchema.of("binary", "string"), "value")]
)
def test_types_of_the_topic(schema: MessageSchema, bad: str) -> None:
    message = {"key_base64": "/w==", "value_base64": "/w=="}
    with pytest.raises(InvalidInput, match=f"the topic's {bad}s must be strings"):
        decode_json(orjson.dumps({"messages": [message]}), schema)


def test_json_topics_take_json_without_a_header() -> None:
    schema = MessageSchema.of("binary", "json")
    rows = decode_json(b'{"messages":[{"value":{"a":1}},{"value":"[2]"},{"value":null}]}', schema)
    assert rows.batch["value"].to_pylist() == ['{"a":1}', '"[2]"', None]
    assert rows.batch["headers"].null_count == 3
    with pytest.raises(InvalidInput, match=r"messages\[0\]: the topic's values must be JSON"):
        decode_json(b'{"messages":[{"value_base64":"dGV4dA=="}]}', schema)


@pytest.mark.parametrize("text", ["123", "true", "null", "now", '"', "é\n", ""])
def test_a_string_in_a_topic_of_json_is_a_json_string(text: str) -> None:
    schema = MessageSchema.of("binary", "json")
    document, line = orjson.dumps({"messages": [{"value": text}]}), orjson.dumps({"value": text})
    single = single_message({"key": "k", "value": text}, schema, 0, "publish")
    assert single is not None and single.value is not None
    stored = [
        *decode_json(document, schema).batch["value"].to_pylist(),
        *decode_ndjson(line, schema).batch["value"].to_pylist(),
        *at_once(decode_json_value(orjson.dumps(text), schema, {})).batch["value"].to_pylist(),
        single.value.decode(),
    ]
    assert [orjson.loads(value) for value in stored] == [text] * 4


def test_null_as_a_body_is_a_value_and_in_a_message_it_is_none() -> None:
    schema = MessageSchema.of("binary", "json")
    assert at_once(decode_json_value(b" null", schema, {})).batch["value"].to_pylist() == ["null"]
    assert decode_ndjson(b'{"value":null}', schema).batch["value"].to_pylist() == [None]
    assert decode_ndjson(b'{"value_base64":"bnVsbA=="}', schema).batch["value"].to_pylist() == ["null"]


def test_headers_with_a_content_type_keep_it() -> None:
    rows = decode_ndjson(b'{"value":1,"headers":{"Content-Type":"application/x"}}', BINARY)
    assert rows.batch["headers"].to_pylist() == [[("Content-Type", b"application/x")]]


# -- times -----------------------------------------------------------------------------------------------------


@given(st.integers(EARLIEST_US, LATEST_US))
def test_times_are_shown_as_they_were_given(time_us: int) -> None:
    shown = rfc3339(time_us)
    assert len(shown) == 27 and shown.endswith("Z")
    assert parse_time(shown, "event_time") == time_us


@given(st.datetimes(timezones=st.timezones()), st.integers(-23, 23))
def test_offsets_are_understood(moment: datetime, hours: int) -> None:
    micros = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    shifted = micros + hours * 3_600_000_000
    if EARLIEST_US <= micros <= LATEST_US and EARLIEST_US <= shifted <= LATEST_US:
        local = rfc3339(shifted).removesuffix("Z")
        sign = "-" if hours < 0 else "+"
        assert parse_time(f"{local}{sign}{abs(hours):02}:00", "event_time") == micros


@given(st.text() | st.integers() | st.none())
def test_other_things_are_no_times(text: Any) -> None:
    with pytest.raises(InvalidInput, match="such as 2026-01-31T12:00:00Z"):
        parse_time(text, "event_time")


LISTS = b"[[]" + b",[]" * 700_000 + b"]"


@pytest.mark.parametrize(
    ("decode", "body", "wrong"),
    [
        (decode_json, b'{"messages":[{"value":%b}]}' % LISTS, "the body: JSON of so many lists"),
        (decode_ndjson, b'{"value":1}\n{"value":%b}' % LISTS, "line 2: JSON of so many lists"),
        (decode_ndjson, b"\n" * (MOST_LINES + 1), f"more than {MOST_LINES} lines"),
        (
            decode_json,
            orjson.dumps({"messages": [{"value": 1, "headers": {str(n): "" for n in range(MOST_HEADERS + 1)}}]}),
            f"at most {MOST_HEADERS} headers, not {MOST_HEADERS + 1}",
        ),
    ],
    ids=["document", "line", "lines", "headers"],
)
def test_what_takes_far_more_memory_than_its_size_is_refused(decode: Any, body: bytes, wrong: str) -> None:
    with pytest.raises(InvalidInput, match=wrong):
        decode(body, MessageSchema.of())


def test_a_value_holds_no_more_memory_than_its_bytes() -> None:
    body = b'{"messages":[%b]}' % b",".join([b'{"value":1}'] * 20_000)
    tracemalloc.start()
    try:
        decode_json(body, MessageSchema.of())
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 20_000 * 1024


# -- large documents, whose messages are parsed one by one ------------------------------------------------------

PADDING = {"value": "x" * 70_000}


@given(MESSAGES, st.sampled_from(["", " ", "\n\t "]))
def test_large_documents_say_the_same_as_lines(messages: list[dict[str, Any]], space: str) -> None:
    messages = [*messages, PADDING]
    inner = f"{space},{space}".join(orjson.dumps(message).decode() for message in messages)
    body = f'{space}{{{space}"messages"{space}:{space}[{space}{inner}{space}]{space}}}{space}'.encode()
    lines = decode_ndjson(b"\n".join(orjson.dumps(message) for message in messages), BINARY)
    assert decode_json(body, BINARY).batch.equals(lines.batch)


@pytest.mark.parametrize(
    ("body", "error", "wrong"),
    [
        (b'{"messages":[%b,{"value":}]}', Malformed, r"the body is not valid JSON: messages\[1\]: "),
        (b'{"messages":[%b,{"value":NaN}]}', Malformed, r"the body is not valid JSON: messages\[1\]: "),
        (b'{"messages":[%b,]}', Malformed, r"the body is not valid JSON: messages\[1\]: "),
        (b'{"messages":[%b {"value":1}]}', Malformed, r"behind messages\[0\] there is neither"),
        (b'{"messages":[%b', Malformed, r"behind messages\[0\] there is neither"),
        (b'{"messages":[%b]', InvalidInput, "with nothing beside it"),
        (b'{"messages":[%b],"more":1}', InvalidInput, "with nothing beside it"),
        (b'{"messages":[%b]}}', InvalidInput, "with nothing beside it"),
        (b'{"messages":[]%b}', InvalidInput, "with nothing beside it"),
        (b'{"messages":[%b,' + b"[" * 100_000, Malformed, r"messages\[1\]: nested too deeply"),
        (b"[%b]", InvalidInput, "and begin with that"),
        (b'{"messages":[%b,"\xff"]}', Malformed, "the body is not valid JSON"),
    ],
)
def test_what_is_wrong_with_a_large_document_is_told(body: bytes, error: type[Exception], wrong: str) -> None:
    with pytest.raises(error, match=wrong):
        decode_json(body.replace(b"%b", orjson.dumps(PADDING)), BINARY)


def test_a_large_document_of_no_messages_has_none() -> None:
    assert decode_json(b'{"messages":[' + b" " * 70_000 + b"]}", BINARY).batch.num_rows == 0


@pytest.mark.parametrize("decode", [json_body.decode_json, json_body.decode_ndjson])
def test_others_go_first_while_many_messages_are_decoded(decode: Any) -> None:
    messages = [{"value": n, "headers": {str(h): "" for h in range(n % 50)}} for n in range(5_000)]
    lines = decode is json_body.decode_ndjson
    body = b"\n".join(map(orjson.dumps, messages)) if lines else orjson.dumps({"messages": messages})
    steps = decode(body, BINARY)
    turns = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            rows = end.value
            break
        turns += 1
    assert rows.batch["value"].to_pylist() == [str(n).encode() for n in range(5_000)]
    assert turns > 5_000 // 64, "some 64 messages without headers are a step, or fewer with"
