"""The messages that a client may send over a socket, parsed to requests. Pure.

A text message is a JSON object. A binary one is such an object on a line of its own, with an Arrow stream behind it.
The object has one field that names the request, and the fields that go with it.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from filer.errors import InvalidInput
from filer.format.requests import RequestId
from filer.nearest import unknown_name
from mq.base import exact_json
from mq.base.errors import Malformed
from mq.bodies.json_body import WHOLE_BYTES
from mq.http import producer_sequence

Id = int | str
"""A client's name for a request; the answer has it."""
MOST_ID, MOST_ID_CHARACTERS = 2**53 - 1, 64
HEAD_BYTES = 64 * 1024
"""The longest line in front of an Arrow stream."""
ARROW = "arrow"
PUBLISH, SUBSCRIBE, UNSUBSCRIBE, CREDIT = "publish", "subscribe", "unsubscribe", "credit"
ACK, RELEASE, EXTEND, COMMIT, LET_GO = "ack", "release", "extend", "commit", "let_go"
FIELDS: Mapping[str, Collection[str]] = {
    PUBLISH: ("acks", *producer_sequence.PARAMETERS),
    SUBSCRIBE: (),
    UNSUBSCRIBE: (),
    CREDIT: ("subscription",),
    ACK: ("group",),
    RELEASE: ("group",),
    EXTEND: ("group",),
    COMMIT: ("subscription",),
    LET_GO: ("subscription",),
}
"""The kinds of requests, and the fields that go with each besides `id`."""
_KINDS = FIELDS.keys()
_PLAIN_FIELDS = {"key", "value"}
NO_FIELDS: Mapping[str, Any] = {}
"""The fields of a publish of one message that has only strings, and nothing about its delivery."""
_NAMED = r'"[^"\\\x00-\x1f\x80-\xff]{0,250}"'
# A large message is not parsed at once. Its fields in front of the messages are short, and come first.
_LARGE_HEAD = re.compile(
    rf"\s{{0,64}}\{{(?:\s{{0,64}}{_NAMED}\s{{0,64}}:\s{{0,64}}(?:{_NAMED}|-?\d{{1,20}})\s{{0,64}},){{0,6}}"
    rf'\s{{0,64}}"{PUBLISH}"\s{{0,64}}:\s{{0,64}}\[\s*'.encode()
)
_LARGE_FIELD = f'"{PUBLISH}"'.encode()


class BadMessage(Exception):
    """A message that is no valid request. `id` is that of the request, if it can be read."""

    def __init__(self, error: InvalidInput, id_: Id | None = None) -> None:
        super().__init__(str(error))
        self.error, self.id = error, id_


@dataclass(slots=True)
class Request:
    """A request: `kind` names the field whose value is `asked`; `fields` are the others.

    `arrow` has the messages to publish if they are an Arrow stream. In a large text they begin at `start`.
    """

    id: Id | None
    kind: str
    asked: Any
    fields: Mapping[str, Any]
    size_bytes: int
    text: bytes = b""
    start: int = 0
    arrow: memoryview | None = None


def parse_text(data: bytes) -> Request:
    """The request of a text message. Raises `BadMessage`."""
    if len(data) > WHOLE_BYTES:
        return _large(data)
    return _plain(data) or _other(data) or _request(_object(data), len(data))


def may_publish(data: bytes) -> bool:
    """Whether a message may be a publish, by a quick look. It misses a field's name that is escaped."""
    return _LARGE_FIELD in data


def parse_binary(data: bytes) -> Request:
    """The request of a binary message. Raises `BadMessage`."""
    end = data.find(b"\n", 0, HEAD_BYTES)
    if end < 0:
        raise BadMessage(
            Malformed(
                f"a binary message begins with a line of JSON of at most {HEAD_BYTES} bytes, such as "
                '{"id": 1, "publish": "arrow"}, and an Arrow stream follows it'
            )
        )
    request = _request(_object(data[:end]), len(data))
    if request.kind != PUBLISH or request.asked != ARROW:
        raise BadMessage(InvalidInput(f'a binary message is a publish: {{"{PUBLISH}": "{ARROW}"}}'), request.id)
    request.arrow = memoryview(data)[end + 1 :]
    return request


def _plain(data: bytes) -> Request | None:
    """A publish of one message whose fields are strings, as most are: by a parser that is several times as fast.

    None for all others. Only numbers, and names that come twice, need `exact_json`.
    """
    if not may_publish(data):
        return None
    try:
        document = orjson.loads(data)
        id_, message = document["id"], document[PUBLISH]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return None
    if len(document) != 2 or type(id_) is not int or id_ > MOST_ID or id_ < 0 or type(message) is not dict:
        return None
    if not message.keys() <= _PLAIN_FIELDS or not all(type(value) is str for value in message.values()):
        return None
    if not exact_json.has_each_name_once(data, 2 + 2 * len(message)):
        return None
    return Request(id_, PUBLISH, message, NO_FIELDS, len(data))


def _other(data: bytes) -> Request | None:
    """A request that is no publish: its numbers need not stay as they are written, which takes ten times as long."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None  # `_object` raises the reason
    if not isinstance(document, dict) or PUBLISH in document or not exact_json.is_whole(data, document):
        return None
    return _request(document, len(data))


def _object(data: bytes) -> dict[str, Any]:
    try:
        document = exact_json.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadMessage(Malformed(f"the message is not valid JSON: {error}")) from error
    if not isinstance(document, dict):
        raise BadMessage(InvalidInput('a message is an object such as {"id": 1, "publish": {"value": "at dusk"}}'))
    return document


def _large(data: bytes) -> Request:
    """A long list of messages to publish, of which only the head is parsed."""
    head = _LARGE_HEAD.match(data)
    if head is None:
        raise BadMessage(
            InvalidInput(
                f"a text of more than {WHOLE_BYTES} bytes has to be a publish of a list, whose last field that is: "
                '{"id": 1, "publish": [...]}'
            )
        )
    document = _object(data[: head[0].rindex(_LARGE_FIELD)] + _LARGE_FIELD + b":[]}")
    request = _request(document, len(data))
    request.text, request.start = data, head.end()
    return request


def _request(document: dict[str, Any], size_bytes: int) -> Request:
    id_ = document.pop("id", None)
    if id_ is not None and not _is_id(id_):
        raise BadMessage(
            InvalidInput(
                f"id is a whole number from 0 to {MOST_ID}, or a string of 1 to {MOST_ID_CHARACTERS} characters"
            )
        )
    kinds = [name for name in document if name in _KINDS]
    if len(kinds) != 1:
        given = " and ".join(kinds) or next((unknown_name("field", name, FIELDS) for name in document), "nothing")
        raise BadMessage(InvalidInput(f"a message asks for one of {', '.join(FIELDS)}, not for {given}"), id_)
    kind = kinds[0]
    asked = document.pop(kind)
    if document:
        for name in document:
            if name not in FIELDS[kind]:
                known = ("id", kind, *FIELDS[kind])
                raise BadMessage(InvalidInput(unknown_name("field", name, known)), id_)
    if id_ is None and kind != CREDIT:
        raise BadMessage(InvalidInput(f'{kind} needs an id, which its answer has: {{"id": 1, "{kind}": …}}'))
    return Request(id_, kind, asked, document, size_bytes)


def _is_id(given: Any) -> bool:
    if isinstance(given, str):
        return 0 < len(given) <= MOST_ID_CHARACTERS
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= MOST_ID


def messages_of(request: Request) -> Iterator[tuple[str, Any]]:
    """The messages of a publish, each with its place in the request. Raises `InvalidInput`."""
    asked = request.asked
    if isinstance(asked, dict):
        return iter(((PUBLISH, asked),))
    if isinstance(asked, list):
        return ((f"{PUBLISH}[{number}]", message) for number, message in enumerate(asked))
    raise InvalidInput(f"{PUBLISH} is a message, or a list of messages")


def producer_of(request: Request) -> RequestId | None:
    """The producer and the sequence of a publish; None if it has none. Raises `InvalidInput`."""
    fields = request.fields
    if not fields:
        return None
    given = {"producer": text_of(request, "producer")}
    sequence = fields.get("sequence")
    if sequence is not None and (not isinstance(sequence, int) or isinstance(sequence, bool)):
        raise InvalidInput("sequence is a whole number")
    given["sequence"] = None if sequence is None else str(sequence)
    return producer_sequence.producer_sequence({name: text for name, text in given.items() if text is not None})


def acks_of(request: Request) -> str | None:
    """When a publish wants its answer. Raises `InvalidInput`."""
    return text_of(request, "acks")


def text_of(request: Request, name: str) -> str | None:
    """A field that is a text. Raises `InvalidInput`."""
    given = request.fields.get(name)
    if given is not None and not isinstance(given, str):
        raise InvalidInput(f"{name} must be a string")
    return given
