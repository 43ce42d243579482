"""The HTTP calls of bulk loads: their paths, bodies and names."""

import re
from typing import Any

import orjson

from braidmq.errors import InvalidArgument
from braidmq.names import topic_path
from braidmq.transport.transport import Call

_LOAD_ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}\Z")


def load_path(topic: str, load: str) -> str:
    """Return the path of a bulk load on its broker."""
    return f"{topic_path(topic)}/loads/{load}"


def post_json(path: str, document: Any, wait_seconds: float = 0.0) -> Call:
    """Return a POST of a JSON document."""
    headers = {"content-type": "application/json"}
    return Call("POST", path, content=orjson.dumps(document), headers=headers, wait_seconds=wait_seconds)


def check_load_name(load: str) -> None:
    """Raise `InvalidArgument` unless this can be the name of a bulk load."""
    if not isinstance(load, str) or not _LOAD_ID.match(load):
        raise InvalidArgument(f"load is {str(load)[:80]!r}: use 1 to 64 of A-Z a-z 0-9 . _ -, but not '.' or '..'")
