"""Documents the hot paths, which FastAPI does not serve, in its OpenAPI document."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from mq.http.request_id import MAX_SEQUENCE, PRODUCER_PATTERN

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_TOPIC = {"name": "topic", "in": "path", "required": True, "schema": {"type": "string"}}
_PROBLEM = {
    "description": "What was wrong, and what would be right.",
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
                },
            }
        }
    },
}
_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}


def _stored(properties: dict[str, Any]) -> dict[str, Any]:
    """The responses of an upload, whose answer has all of these."""
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
_MESSAGE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "key": {"type": ["string", "null"]},
        "key_base64": {"type": "string", "contentEncoding": "base64"},
        "value": {"description": "Strings are stored as they are, other JSON values as JSON text."},
        "value_base64": {"type": "string", "contentEncoding": "base64"},
        "ref": {"type": "object", "required": ["upload"], "properties": {"upload": {"type": "string"}}},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "event_time": {"type": "string", "format": "date-time"},
    },
}
_PUBLISH = {
    "tags": ["messages"],
    "summary": "Publish",
    "description": (
        "Store messages; answered when they are durable. The rows of one segment keep the order of the request. With "
        "`producer` and `sequence` it may be sent again: it is stored once, and answered with the first positions."
    ),
    "operationId": "publish",
    "parameters": [
        _TOPIC,
        {"name": "acks", "in": "query", "schema": {"enum": ["stored", "replicated"]}},
        {
            "name": "producer",
            "in": "query",
            "description": "An id of the publisher's own; goes with `sequence`.",
            "schema": {"type": "string", "pattern": PRODUCER_PATTERN},
        },
        {
            "name": "sequence",
            "in": "query",
            "description": "A number that grows with each request of the producer; goes with `producer`.",
            "schema": {"type": "integer", "minimum": 0, "maximum": MAX_SEQUENCE},
        },
        {"name": "key", "in": "query", "description": "Of a raw body.", "schema": {"type": "string"}},
        {"name": "key_base64", "in": "query", "description": "Of a raw body.", "schema": {"type": "string"}},
    ],
    "requestBody": {
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["messages"],
                    "additionalProperties": False,
                    "properties": {"messages": {"type": "array", "items": _MESSAGE}},
                }
            },
            "application/x-ndjson": _BINARY,
            "application/vnd.apache.arrow.stream": _BINARY,
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
    "description": "Where uploads go when the store is a local directory: the body is the payload.",
    "operationId": "upload",
    "parameters": [_TOPIC, {"name": "upload", "in": "path", "required": True, "schema": {"type": "string"}}],
    "requestBody": {"content": {"application/octet-stream": _BINARY}},
    "responses": _stored({"upload": _TEXT, "size": _COUNT, "etag": _TEXT, "sha256": _TEXT}),
}
_LOAD_FILE = {
    "tags": ["loads"],
    "summary": "Upload a file of a load",
    "description": (
        "Where files of loads go when the store is a local directory: the body is the file. The very bytes that are "
        "there already are taken again; others are refused (412)."
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
    """Make `/openapi.json` speak of the endpoints that the dispatcher serves itself."""

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
