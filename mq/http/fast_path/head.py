"""The part of a request's head that the fast path understands: all of it, or nothing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from filer import request_ids
from mq.forms.formats import PUBLISH_FORMATS
from mq.http.endpoints.publish import HEADER_PREFIX, VALUE_HEADER, PublishRequest, refuse_forms
from mq.security.authorization import AUTHORIZATION

_TARGET = re.compile(rb"(/v1/topics/([A-Za-z0-9._-]{1,200})/messages)(?:\?([^#]*))?\Z")
_REQUEST_ID = request_ids.HEADER.encode()
# With any value of these a publish is the same, or the guard, the publish endpoint or the parser checks the value.
_UNDERSTOOD = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"accept-language",
        AUTHORIZATION,
        b"cache-control",
        b"connection",
        b"content-length",
        b"content-type",
        b"host",
        b"pragma",
        b"sec-fetch-mode",
        b"user-agent",
        VALUE_HEADER,
        _REQUEST_ID,
    }
)


@dataclass(slots=True)
class Head:
    """The head of a publish of one message of `size_bytes`. `request_id` is the client's, if it gives a valid one.

    `headers_allowed`: the guard allows the headers; whether it allows the rest is not known.
    `authorization` is the value of the header of that name.
    """

    path: str
    topic: str
    headers: Sequence[tuple[bytes, bytes]]
    size_bytes: int
    request: PublishRequest
    request_id: str | None
    headers_allowed: bool = False
    authorization: bytes | None = None


def read_head(target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Head | None:
    """The head of a POST to that target; None if any part of it is not understood. The names are in lower case."""
    match = _TARGET.match(target)
    given_id: bytes | None = None
    authorization: bytes | None = None
    if match is None:
        return None
    for name, value in headers:
        if name not in _UNDERSTOOD and not name.startswith(HEADER_PREFIX):
            return None
        if name == _REQUEST_ID and given_id is None:
            given_id = value
        elif name == AUTHORIZATION:
            if authorization is not None:
                return None
            authorization = value
    path, topic, query = match.groups(b"")
    try:
        request = PublishRequest(headers, query)
        refuse_forms(request.content_type, topic.decode())
    except Exception:
        # The ASGI app meets the same error, and answers it.
        return None
    if request.declared_bytes is None or request.content_type in PUBLISH_FORMATS:
        return None
    id_ = None if given_id is None else request_ids.taken(given_id, of_broker=False)
    return Head(
        path.decode(), topic.decode(), headers, request.declared_bytes, request, id_, authorization=authorization
    )
