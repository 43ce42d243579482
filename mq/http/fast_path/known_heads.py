"""Heads of requests that need no parser, since it has understood the same headers before.

Clients send the same headers with each publish, as far as the length is the same; only the target differs. A parser
parses each of them again. Here they are recognized by their bytes.

This is safe: the parser has read the bytes between the first line and the empty one before, in a request of the same
method and version. Its result for headers does not depend on the target, and it takes any target of the form that is
taken here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from filer import request_ids
from mq.http.endpoints.publish import PublishRequest
from mq.http.fast_path.head import Head

MOST_KNOWN, MOST_BYTES = 512, 2048
"""So many heads are known, of up to that size: a megabyte, whatever clients send."""
_END, _LINE_END = b"\r\n\r\n", b"\r\n"
_LINE = re.compile(
    rb"POST (/v1/topics/([A-Za-z0-9._-]{1,200})/messages)(?:\?([A-Za-z0-9._~=&%+:-]{0,1000}))? HTTP/1\.1\Z"
)
_PLAIN = bytes((0x09, *range(0x20, 0x7F)))
_REQUEST_ID = request_ids.HEADER.encode()


@dataclass(frozen=True, slots=True)
class _Headers:
    """Headers that were understood, and a request that has them and no query."""

    pairs: list[tuple[bytes, bytes]]
    size_bytes: int
    request: PublishRequest
    authorization: bytes | None

    def head(self, path: str, topic: str, request: PublishRequest) -> Head:
        """The head of a request with these headers."""
        return Head(path, topic, self.pairs, self.size_bytes, request, None, True, self.authorization)


class KnownHeads:
    """Remembers headers by their bytes. Only headers of a served publish are noted."""

    def __init__(self) -> None:
        self._headers: dict[bytes, _Headers] = {}
        self._targets: dict[bytes, tuple[str, str]] = {}

    def find(self, data: bytes) -> tuple[Head, int] | None:
        """The head of a whole request, and where its body begins; None if it is not known, or this is anything else."""
        end, line_end = data.find(_END), data.find(_LINE_END)
        if end < 0:
            return None
        known = self._headers.get(data[line_end:end])
        if known is None or len(data) != end + len(_END) + known.size_bytes:
            return None
        line = data[:line_end]
        if (target := self._targets.get(line)) is not None:
            path, topic = target
            return known.head(path, topic, known.request), end + len(_END)
        if (match := _LINE.match(line)) is None:
            return None
        path, topic, query = match[1].decode(), match[2].decode(), match[3]
        request = known.request
        if query:
            try:
                request = request.with_query(query)
            except Exception:
                # The ASGI app meets the same error, and answers it.
                return None
        else:
            self._note_target(line, path, topic)
        return known.head(path, topic, request), end + len(_END)

    def note(self, data: bytes, head: Head) -> None:
        """Note that the parser has made this head of the begin of these bytes, which are exactly one whole request."""
        end, line_end = data.find(_END), data.find(_LINE_END)
        if end > MOST_BYTES or len(data) != end + len(_END) + head.size_bytes or not _LINE.match(data[:line_end]):
            return
        lines = data[line_end + len(_LINE_END) : end].split(_LINE_END)
        if not _says(lines, head.headers) or any(name == _REQUEST_ID for name, _ in head.headers):
            return
        if len(self._headers) >= MOST_KNOWN:
            self._headers.clear()
        pairs = list(head.headers)
        request = PublishRequest(pairs, b"")
        self._headers[data[line_end:end]] = _Headers(pairs, head.size_bytes, request, head.authorization)

    def _note_target(self, line: bytes, path: str, topic: str) -> None:
        if len(self._targets) >= MOST_KNOWN:
            self._targets.clear()
        self._targets[line] = path, topic


def _says(lines: Sequence[bytes], headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether these lines are these headers, one each, and no byte in them could mean anything else."""
    parts = [line.partition(b":") for line in lines]
    return [*headers] == [(name.lower(), value.strip(b" \t")) for name, _, value in parts] and not any(
        value.translate(None, _PLAIN) for _, _, value in parts
    )
