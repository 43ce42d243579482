"""Reads the JSON bodies of requests, except those of publishes, within bounds."""

from collections.abc import AsyncIterable
from typing import Any

from fastapi import Request
from starlette.types import Scope

from mq.base.errors import BodyTooLarge
from mq.forms.json_form import M, checked_body
from mq.forms.shallow_json import object_of
from mq.http.routes import match_of

JSON_MAX_BYTES = 64 * 1024


async def parse_body(request: Request, model: type[M], *, empty: bytes = b"", most_bytes: int = JSON_MAX_BYTES) -> M:
    """The body of a request; `empty` stands for no body.

    Raises `InvalidInput` that names the field and the right form, `Malformed` and `BodyTooLarge`.
    """
    return checked_body(await parse_object(request, model.EXAMPLE, empty=empty, most_bytes=most_bytes), model)


async def parse_object(
    request: Request, example: str, *, empty: bytes = b"", most_bytes: int = JSON_MAX_BYTES
) -> dict[str, Any]:
    """The body of a request as a JSON object with any fields. Raises as `parse_body`."""
    return object_of(await read_body(request, most_bytes) or empty, example)


async def read_body(request: Request, most_bytes: int = JSON_MAX_BYTES) -> bytes:
    """The body of a request. The framework would read one of any size into memory. Raises `BodyTooLarge`."""
    return await gathered(request.stream(), request.scope, most_bytes)


async def gathered(chunks: AsyncIterable[bytes], scope: Scope, most_bytes: int = JSON_MAX_BYTES) -> bytes:
    """As `read_body`, for a request with that scope."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > most_bytes:
            message = f"the body is larger than {most_bytes} bytes: upload payloads separately"
            raise BodyTooLarge(message, most_bytes, topic_of(scope))
    return bytes(body)


def topic_of(scope: Scope) -> str | None:
    """The topic that a request is about, or a group of it; None for any other request."""
    match = match_of(scope)
    return match.need.topic if match.route is not None and match.route.named == "topic" and match.need.topic else None
