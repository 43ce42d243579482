"""The bytes of an answer to a publish: as uvicorn writes them for the ASGI app."""

from collections.abc import Sequence
from functools import lru_cache

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from filer import request_ids
from mq.http.reply import Reply

Headers = Sequence[tuple[bytes, bytes]]
_ID = request_ids.HEADER.encode()


def fast_answer(default_headers: Headers, reply: Reply, request_id: str, *, keep_alive: bool) -> bytes:
    """Return the whole answer. The broker has made or checked all headers."""
    body, status, headers = reply
    begin = _begin(status, tuple(default_headers), tuple(headers))
    close = b"" if keep_alive else b"connection: close\r\n"
    return b"%b%b\r\ncontent-length: %d\r\n%b\r\n%b" % (begin, request_id.encode(), len(body), close, body)


@lru_cache(maxsize=64)
def _begin(status: int, *headers: Headers) -> bytes:
    """Return the head up to the value of the request's id. It is the same for all answers of a second."""
    lines = (b"%b: %b\r\n" % header for some in headers for header in some)
    return b"%b%b%b: " % (STATUS_LINE[status], b"".join(lines), _ID)
