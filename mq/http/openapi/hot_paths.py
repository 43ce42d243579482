"""The endpoints that the dispatcher serves itself, which FastAPI does not know."""

from collections.abc import Mapping
from typing import Any

from mq.forms.formats import FORMATS, JSON
from mq.http.openapi.answers import BINARY, TEXT
from mq.http.openapi.messages import OutgoingMessage, PublishBody
from mq.http.openapi.schemas import Schema, reference
from mq.http.producer_sequence import MAX_SEQUENCE, PRODUCER_PATTERN
from mq.http.routes import LOAD_FILE, PUBLISH, UPLOAD, Route

_COUNT: Schema = {"type": "integer", "minimum": 0}
_TIME: Schema = {**TEXT, "format": "date-time"}


def _in(place: str, name: str, description: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "in": place, "description": description, "required": place == "path", "schema": schema}


_TOPIC = _in("path", "topic", "The topic.", TEXT)
_LINES: Schema = {**TEXT, "description": "A message a line.", "x-line": reference(OutgoingMessage)}
_BODIES: Mapping[str, Schema] = {
    **{each.media_type: BINARY if not each.is_json else _LINES for each in FORMATS if each.decode},
    JSON: reference(PublishBody),
    "application/octet-stream": {**BINARY, "description": "One value, as it is."},
    "text/plain": {**TEXT, "description": "One value, as it is."},
}
HOT_PATHS: Mapping[Route, dict[str, Any]] = {
    PUBLISH: {
        "tags": ["messages"],
        "description": (
            "Store messages. The answer comes when they are durable. Rows of one segment keep the order of the "
            "request. A request with `producer` and `sequence` can be repeated: it is stored once, and a repeat gets "
            "the positions of the first time. With `key` or `key_base64` a body of JSON is the value of one message. A "
            "body of any type that is not listed is one value; headers `Braid-Header-…` are its headers."
        ),
        "parameters": [
            _TOPIC,
            _in("query", "acks", "When to answer.", {**TEXT, "enum": ["stored", "replicated"]}),
            _in(
                "query",
                "producer",
                "An id that the publisher has chosen; needs `sequence`. It belongs to the principal.",
                {**TEXT, "pattern": PRODUCER_PATTERN},
            ),
            _in(
                "query",
                "sequence",
                "A number that grows with each request of the producer; needs `producer`.",
                {**_COUNT, "maximum": MAX_SEQUENCE},
            ),
            _in("query", "key", "The key of a body that is one value.", TEXT),
            _in("query", "key_base64", "The same, as base64.", TEXT),
            _in(
                "query",
                "delay_seconds",
                "Queue groups do not hand out a body that is one value before.",
                {"type": "number", "minimum": 0},
            ),
            _in("query", "deliver_at", "The same, as a time.", _TIME),
            _in("query", "expires_at", "Nor after this time.", _TIME),
            _in("header", "Braid-Value", "Of one value that is text, in a topic of JSON.", {**TEXT, "enum": ["text"]}),
        ],
        "requestBody": {"required": True, "content": {name: {"schema": each} for name, each in _BODIES.items()}},
    },
    UPLOAD: {
        "tags": ["uploads"],
        "description": "Store a payload, if the store is a local directory. The body is the payload.",
        "parameters": [_TOPIC, _in("path", "upload", "The id of the upload.", TEXT)],
        "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": BINARY}}},
    },
    LOAD_FILE: {
        "tags": ["loads"],
        "description": (
            "Store a file of a bulk load, if the store is a local directory. The body is the file. The same bytes can "
            "be sent again; other bytes are refused (412)."
        ),
        "parameters": [
            _TOPIC,
            _in("path", "load", "The name of the bulk load.", TEXT),
            _in("path", "segment", "The segment.", _COUNT),
            _in("path", "base_offset", "The offset of the file's first message.", _COUNT),
        ],
        "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": BINARY}}},
    },
}
"""What they take. Their answers are with those of all endpoints."""
HOT_BODIES = (PublishBody, OutgoingMessage)
