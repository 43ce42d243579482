"""What a client may send: whatever it sends is a request, or is refused with words."""

import base64
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mq.base import exact_json
from mq.bodies.json_body import WHOLE_BYTES
from mq.http.problems import problem_of
from mq.http.sockets.requests import (
    FIELDS,
    HEAD_BYTES,
    PUBLISH,
    BadMessage,
    Request,
    messages_of,
    parse_binary,
    parse_text,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["id", *FIELDS, "acks", "producer", "sequence", "group", "subscription", "x"])
NEARLY = st.dictionaries(NAMES, JSON | st.integers(0, 9), max_size=4)


def told(data: bytes, *, is_text: bool) -> Request | BadMessage:
    try:
        return parse_text(data) if is_text else parse_binary(data)
    except BadMessage as bad:
        return bad


def check(found: Request | BadMessage) -> None:
    if isinstance(found, BadMessage):
        assert problem_of(found.error).status in (400, 422)
        assert str(found.error)
        return
    assert found.kind in FIELDS
    assert found.fields.keys() <= set(FIELDS[found.kind])
    assert found.id is not None or found.kind == "credit"


@given(st.binary(max_size=200), st.booleans())
@example(b'{"id":1,"publish":{"value":"\xff"}}', True)
@example(b"", False)
def test_any_bytes_are_a_request_or_are_refused(data: bytes, is_text: bool) -> None:
    check(told(data, is_text=is_text))


@given(JSON | NEARLY, st.booleans(), st.binary(max_size=20))
def test_any_json_is_a_request_or_is_refused(document: Any, is_text: bool, behind: bytes) -> None:
    text = exact_json.dumps(document)
    check(told(text if is_text else text + b"\n" + behind, is_text=is_text))


@given(st.integers(0, 2**53 - 1), st.dictionaries(st.sampled_from(["key", "value"]), st.text(), max_size=2))
def test_the_short_way_finds_what_the_long_way_finds(id_: int, message: dict[str, str]) -> None:
    text = orjson.dumps({"id": id_, "publish": message})
    # An integer of a field that is not known to the short way, and changes nothing.
    long = orjson.dumps({"id": id_, "publish": message, "acks": "stored"})
    short_way, long_way = parse_text(text), parse_text(long)
    assert (short_way.id, short_way.asked) == (long_way.id, long_way.asked)


@pytest.mark.parametrize(
    "text",
    [
        b'{"id":1,"publish":{"value":"a","value":"b"}}',
        b'{"id":1,"id":2,"publish":{"value":"a"}}',
        b'{"id":1,"publish":{"value":"a"},"publish":{"value":"b"}}',
    ],
)
def test_a_name_that_comes_twice_is_refused(text: bytes) -> None:
    bad = told(text, is_text=True)
    assert isinstance(bad, BadMessage)
    assert "twice" in str(bad.error)


def test_numbers_stay_as_they_were_written() -> None:
    request = parse_text(b'{"id":1,"publish":[{"value":112.50},{"value":1e2}]}')
    assert [exact_json.dumps(message["value"]) for _, message in messages_of(request)] == [b"112.50", b"1e2"]


@pytest.mark.parametrize(
    ("text", "id_", "part"),
    [
        (b'{"id":7}', 7, "asks for one of"),
        (b'{"id":7,"publsh":{}}', 7, "did you mean 'publish'"),
        (b'{"id":7,"publish":{},"ack":{}}', 7, "publish and ack"),
        (b'{"id":7,"publish":{},"ack_s":1}', 7, "did you mean 'acks'"),
        (b'{"publish":{"value":"x"}}', None, "needs an id"),
        (b'{"id":-1,"publish":{"value":"x"}}', None, "id is"),
        (b'{"id":true,"publish":{"value":"x"}}', None, "id is"),
        (b'{"id":"","publish":{"value":"x"}}', None, "id is"),
        (b'{"id":9007199254740992,"publish":{"value":"x"}}', None, "id is"),
        (b'{"id":1.5,"publish":{"value":"x"}}', None, "id is"),
        (b"[]", None, "is an object"),
        (b"nonsense", None, "not valid JSON"),
    ],
)
def test_what_is_wrong_is_told_with_the_id_if_there_is_one(text: bytes, id_: int | None, part: str) -> None:
    bad = told(text, is_text=True)
    assert isinstance(bad, BadMessage)
    assert bad.id == id_
    assert part in str(bad.error)


LONG = base64.b64encode(bytes(WHOLE_BYTES)).decode()


def test_of_a_long_list_only_the_head_is_parsed() -> None:
    text = orjson.dumps({"id": "a", "producer": "p", "sequence": 3, "publish": [{"value": LONG}]})
    request = parse_text(text)
    assert (request.id, request.kind, request.fields) == ("a", PUBLISH, {"producer": "p", "sequence": 3})
    assert request.text[request.start :].startswith(b'{"value":')


@pytest.mark.parametrize(
    ("document", "part"),
    [
        ({"publish": [{"value": LONG}], "id": 1}, "needs an id"),
        ({"id": 1, "publish": {"value": LONG}}, "last field"),
        ({"id": 1, "ack": {"messages": [LONG]}}, "last field"),
        ([LONG], "last field"),
    ],
)
def test_a_long_text_of_another_kind_is_refused(document: Any, part: str) -> None:
    bad = told(orjson.dumps(document), is_text=True)
    assert isinstance(bad, BadMessage)
    assert part in str(bad.error)


@given(st.binary(min_size=0, max_size=64))
def test_a_long_text_with_any_head_is_a_request_or_is_refused(head: bytes) -> None:
    check(told(b'{"id":1,' + head + b'"publish":[{"value":"' + LONG.encode() + b'"}]}', is_text=True))


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"ARROW1", "begins with a line of JSON"),
        (b" " * HEAD_BYTES + b"\n", "begins with a line of JSON"),
        (b'{"id":1,"publish":[]}\n', "arrow"),
        (b'{"id":1,"credit":5}\n', "arrow"),
    ],
)
def test_a_binary_message_is_a_publish_of_arrow(data: bytes, part: str) -> None:
    bad = told(data, is_text=False)
    assert isinstance(bad, BadMessage)
    assert part in str(bad.error)


def test_behind_the_line_is_the_arrow_stream() -> None:
    request = parse_binary(b'{"id":1,"publish":"arrow"}\nrest\nof it')
    assert request.arrow is not None
    assert bytes(request.arrow) == b"rest\nof it"
