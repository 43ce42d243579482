"""JSON bodies of the endpoints that are no hot path: small, and bounded."""

from typing import Any

import orjson
from fastapi import Request

from mq.errors import BodyTooLarge, Malformed

JSON_MAX_BYTES = 64 * 1024


async def json_body(request: Request, *, empty: bytes = b"", most_bytes: int = JSON_MAX_BYTES) -> Any:
    """The parsed body, or `empty` parsed where there is none; raises `Malformed`, `BodyTooLarge`.

    The framework would read a body of any size into memory.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            topic = "/".join(request.url.path.split("/")[:4])
            message = f"the body is larger than {most_bytes} bytes, and payloads go elsewhere"
            raise BodyTooLarge(message, most_bytes, f"{topic}/uploads")
    try:
        return orjson.loads(body or empty)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the body is not valid JSON: {error}") from error
