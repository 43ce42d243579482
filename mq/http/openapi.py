"""Adds the hot paths, which FastAPI does not serve, to its OpenAPI document."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from mq.forms.formats import PUBLISH_FORMATS
from mq.http.producer_sequence import MAX_SEQUENCE, PRODUCER_PATTERN
from mq.http.remedies import WORDS

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_TOPIC = {"name": "topic", "in": "path", "required": True, "schema": {"type": "string"}}
_PROBLEM = {
    "description": "What is wrong, and what would be right.",
    "content": {
        "application/problem+json": {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "detail", "retryable"],
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "detail": {"type": "string"},
                    "retryable": {"type": "boolean"},
                    "request_id": {"type": "string"},
                    "remedy": {
                        "type": "object",
                        "description": "What to do about it, for a program that says so in words of its own.",
                        "required": ["kind", "fault"],
                        "properties": {
                            "kind": {"type": "string", "enum": sorted(WORDS)},
                            "fault": {"type": "string", "description": "The detail, without what to do about it."},
                            "topic": {"type": "string"},
                            "topic_group": {"type": "string"},
                            "group": {"type": "string"},
                            "message": {"type": "string"},
                        },
                    },
                },
            }
        }
    },
}
_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_TIME = {"type": "string", "format": "date-time"}


def _stored(properties: dict[str, Any]) -> dict[str, Any]:
    """The responses of an upload whose answer has these fields."""
    schema = {"type": "object", "required": [*properties], "properties": properties}
    created = {"description": "Stored.", "content": {"application/json": {"schema": schema}}}
    return {"201": created, "4XX": _PROBLEM, "503": _PROBLEM}


_POSITIONS = {
    "type": "object",
    "required": ["positions"],
    "properties": {
        "positions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["segment", "offset", "count"],
                "properties": {"segment": _COUNT, "offset": _COUNT, "count": _COUNT},
            },
        }
    },
}
_PUBLISH = {
    "tags": ["messages"],
    "summary": "Publish",
    "description": (
        "Store messages. The answer comes when they are durable. Rows of one segment keep the order of the request. "
        "A request with `producer` and `sequence` can be repeated: it is stored once, and a repeat gets the positions "
        "of the first time."
    ),
    "operationId": "publish",
    "parameters": [
        _TOPIC,
        {"name": "acks", "in": "query", "schema": {"enum": ["stored", "replicated"]}},
        {
            "name": "producer",
            "in": "query",
            "description": "An id that the publisher has chosen; needs `sequence`. It belongs to the principal.",
            "schema": {"type": "string", "pattern": PRODUCER_PATTERN},
        },
        {
            "name": "sequence",
            "in": "query",
            "description": "A number that grows with each request of the producer; needs `producer`.",
            "schema": {"type": "integer", "minimum": 0, "maximum": MAX_SEQUENCE},
        },
        {"name": "key", "in": "query", "description": "The key of a body that is one value.", "schema": _TEXT},
        {"name": "key_base64", "in": "query", "description": "The same, as base64.", "schema": _TEXT},
        {
            "name": "delay_seconds",
            "in": "query",
            "description": "Queue groups do not hand out a body that is one value before.",
            "schema": {"type": "number", "minimum": 0},
        },
        {"name": "deliver_at", "in": "query", "description": "The same, as a time.", "schema": _TIME},
        {"name": "expires_at", "in": "query", "description": "Nor after this time.", "schema": _TIME},
    ],
    "requestBody": {
        "content": {
            **{each.media_type: {"schema": each.publish_schema} for each in PUBLISH_FORMATS.values()},
            "application/octet-stream": _BINARY,
        }
    },
    "responses": {
        "200": {"description": "Stored.", "content": {"application/json": {"schema": _POSITIONS}}},
        "4XX": _PROBLEM,
        "503": _PROBLEM,
    },
}
_UPLOAD = {
    "tags": ["uploads"],
    "summary": "Upload a payload",
    "description": "Stores a payload if the store is a local directory. The body is the payload.",
    "operationId": "upload",
    "parameters": [_TOPIC, {"name": "upload", "in": "path", "required": True, "schema": {"type": "string"}}],
    "requestBody": {"content": {"application/octet-stream": _BINARY}},
    "responses": _stored({"upload": _TEXT, "size": _COUNT, "etag": _TEXT, "sha256": _TEXT}),
}
_LOAD_FILE = {
    "tags": ["loads"],
    "summary": "Upload a file of a bulk load",
    "description": (
        "Stores a file of a bulk load if the store is a local directory. The body is the file. The same bytes can be "
        "sent again; other bytes are refused (412)."
    ),
    "operationId": "uploadLoadFile",
    "parameters": [
        _TOPIC,
        {"name": "load", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "segment", "in": "path", "required": True, "schema": _COUNT},
        {"name": "base_offset", "in": "path", "required": True, "schema": _COUNT},
    ],
    "requestBody": {"content": {"application/octet-stream": _BINARY}},
    "responses": _stored({"segment": _COUNT, "base_offset": _COUNT, "size": _COUNT, "etag": _TEXT}),
}


def describe_hot_paths(app: FastAPI) -> None:
    """Add the endpoints that the dispatcher serves itself to `/openapi.json`."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            document["paths"].setdefault("/v1/topics/{topic}/messages", {})["post"] = _PUBLISH
            document["paths"]["/v1/topics/{topic}/uploads/{upload}"] = {"put": _UPLOAD}
            document["paths"]["/v1/topics/{topic}/loads/{load}/files/{segment}/{base_offset}"] = {"put": _LOAD_FILE}
            for path in document["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
                    operation["responses"]["4XX"] = _PROBLEM
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
