"""The rows of a publish request: an Arrow stream, or a JSON document of a few messages."""

import json
from base64 import b64decode
from typing import Any

import httpx
import pyarrow as pa


def published_rows(request: httpx.Request) -> list[dict[str, Any]]:
    """The rows as an Arrow table gives them: `key`, `value`, and the other columns that the request has."""
    if request.headers["content-type"] == "application/json":
        return [_row(message) for message in json.loads(request.content)["messages"]]
    with pa.ipc.open_stream(request.content) as stream:
        rows: list[dict[str, Any]] = stream.read_all().to_pylist()
    return rows


def _row(message: dict[str, Any]) -> dict[str, Any]:
    headers = [(name, b64decode(each["base64"])) for name, each in message.get("headers", {}).items()]
    return {
        "key": b64decode(message["key_base64"]) if "key_base64" in message else None,
        "value": b64decode(message["value_base64"]) if "value_base64" in message else message["value"],
        "headers": headers or None,
    }
