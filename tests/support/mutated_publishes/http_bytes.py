"""Requests to publish, as bytes: plain ones, such as differ in a thing or two, and mutated ones."""

import gzip
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.support.mutated_publishes.sides import MOST_BYTES

MESSAGES = "/v1/topics/t/messages"


def request(
    target: str = MESSAGES,
    body: bytes = b"value",
    headers: Sequence[str] = (),
    *,
    method: str = "POST",
    host: str | None = "127.0.0.1:8080",
    length: str | None = None,
    version: str = "1.1",
) -> bytes:
    lines = [
        f"{method} {target} HTTP/{version}",
        *([] if host is None else [f"Host: {host}"]),
        *headers,
        f"Content-Length: {len(body) if length is None else length}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


TARGETS = [
    *(
        f"{MESSAGES}?{query}"
        for query in (
            "key=k",
            "key=k&key=j",
            "key=%C3%BC",
            "key=%FF",
            "key=a+b",
            "key=",
            "key_base64=a2V5",
            "key_base64=!",
            "key=a&key_base64=a2V5",
            "acks=stored",
            "acks=replicated",
            "acks=x",
            "producer=p&sequence=1",
            "producer=p&sequence=2",
            "producer=p",
            "sequence=-1&producer=p",
            "deliver_at=2040-01-01T00:00:00Z",
            "deliver_at=2040-01-01T00:00:00Z&delay_seconds=1",
            "expires_at=2040-01-01T00:00:00Z",
            "expires_at=soon",
            "delay_seconds=-1",
            "nonsense=1",
            "",
            "&",
            "key",
            "key=a#b",
            "key=a~b.c_d-e",
            "key=a:b",
            "key=a;b",
            "key=%zz",
            "key=" + "a" * 1000,
            "a?b",
        )
    ),
    f"{MESSAGES}/",
    f"{MESSAGES}#x",
    f"/{MESSAGES}",
    f"http://127.0.0.1{MESSAGES}",
    "/v1/topics/json/messages",
    "/v1/topics/json/messages?key=k",
    "/v1/topics/none/messages",
    "/v1/topics/%74/messages",
    "/v1/topics/a%2Fb/messages",
    "/v1/topics/../messages",
    "/v1/topics//messages",
    "*",
    "127.0.0.1:80",
]
BODIES = [b"", b"1", b'{"a": 1}', b"{", b'{"messages": [{"value": 1}]}', b"x" * (MOST_BYTES + 1), gzip.compress(b"v")]
HEADERS = [
    "Accept: */*",
    "Accept: */* ",
    "Accept:\t*/*",
    "Accept: a\tb",
    "User-Agent: x",
    "Cookie: a=b",
    "Connection: keep-alive",
    "Connection: Keep-Alive",
    "Connection: close",
    "Connection: keep-alive, close",
    "Connection: upgrade\r\nUpgrade: x",
    "Upgrade: h2c",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    "Connection: upgrade\r\nUpgrade: websocket",
    "Content-Type: application/octet-stream",
    "Content-Type: text/plain; charset=utf-8",
    "Content-Type: Application/JSON",
    "Content-Type: application/x-ndjson",
    "Content-Type: application/vnd.apache.arrow.stream",
    "Content-Type: application/x-www-form-urlencoded",
    "Content-Type:",
    "Content-Encoding: gzip",
    "Content-Encoding: identity",
    "Content-Encoding: br",
    "Content-Length: 1",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Expect: 100-continue",
    "Expect: x",
    "Host: localhost",
    "Origin: http://127.0.0.1:8080",
    "Origin: http://evil.example",
    "Sec-Fetch-Site: cross-site",
    "Sec-Fetch-Mode: cors",
    "X-Forwarded-For: 1.2.3.4",
    "Forwarded: for=1.2.3.4",
    "Via: 1.1 x",
    "X-Real-IP: 1.2.3.4",
    "X-Request-Id: mine",
    "X-Request-Id: not valid",
    "X-Request-Id:",
    "Braid-Header-A: b",
    "Braid-Header-: b",
    "Braid-Header-A: \xfc",
    "Braid-Header-A: b\r\nBraid-Header-A: c",
    "Braid-Header-A: b\r\nbraid-header-a: b",
    "Braid-Header-Braid-Deliver-At: 2040-01-01T00:00:00Z",
    "braid-header-BRAID-deliver-AT: 2040-01-01T00:00:00+02:00",
    "Braid-Header-Braid-Deliver-At: soon",
    "BRAID-HEADER-BRAID-DELIVER-AT: 1",
    "Braid-Header-Braid-Expires-At: 2040-01-01T00:00:00Z",
    "braid-header-braid-EXPIRES-at: ",
    "Braid-Value: text",
    "braid-value: text ",
    "Braid-Value: Text",
    "Braid-Value: json",
    "Braid-Value: text\r\nBraid-Value: text",
    "Content-Type: text/plain\r\nContent-Type: application/json",
    "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "X y: z",
    "X: a\r\n b",
]
DEVIATIONS: dict[str, Sequence[Any]] = {
    "target": TARGETS,
    "body": BODIES,
    "headers": [[header] for header in HEADERS],
    "method": ["GET", "PUT", "HEAD", "OPTIONS", "DELETE", "post", "CONNECT"],
    "host": ["localhost", "[::1]:1", "evil.example", "", None],
    "length": ["3", "0", "+3", "3, 3", "99"],
    "version": ["1.0", "0.9", "2.0"],
}
_DRAWN: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.sampled_from(values) for name, values in DEVIATIONS.items()},
    "target": st.one_of(st.just(MESSAGES), st.sampled_from(TARGETS)),
    "body": st.one_of(st.binary(max_size=40), st.sampled_from(BODIES)),
    "headers": st.lists(st.sampled_from(HEADERS), max_size=2),
}


def deviations() -> Iterator[bytes]:
    """Each request that differs from a plain one in one thing, and one of two that go together."""
    for name, values in DEVIATIONS.items():
        yield from (request(**{name: value}) for value in values)
    yield request(version="1.0", headers=["Connection: keep-alive"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request that differs from a plain one in a thing or two."""
    names = draw(st.lists(st.sampled_from(sorted(_DRAWN)), max_size=2, unique=True))
    return request(**{name: draw(_DRAWN[name]) for name in names})


def head_of(data: bytes) -> bytes:
    """The request without its body, which does not come."""
    return data[: data.index(b"\r\n\r\n") + 4]


TOKENS = st.sampled_from(
    [
        b"\r\n",
        b"\n",
        b"\r",
        b"\x00",
        b" ",
        b"\t",
        b":",
        b"\r\n\r\n",
        b"\r\n ",
        b"\r\nContent-Length: 5",
        b"\r\nTransfer-Encoding: chunked",
        b"\r\nConnection: close",
        b"\r\nExpect: 100-continue",
        b"\r\nHost: evil.example",
        b"\r\nX: " + b"x" * 9000,
        b"0\r\n\r\n",
        b"5\r\nvalue\r\n",
        b"%00",
        b"%2F",
        b"?",
        b"#",
        b"&",
        b"\xff",
        b"\xc3\xbc",
        b"POST ",
        b" HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"x" * 70_000,
    ]
)
PLACES = st.integers(0, 2000)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Requests, of which some bytes are others, missing, elsewhere, or there twice."""
    data = b"".join(draw(st.lists(requests(), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(1, 3))):
        start, size_bytes = draw(PLACES) % (len(data) + 1), draw(st.sampled_from([0, 0, 1, 1, 1, 2, 4, 16, 64]))
        before, piece, after = data[:start], data[start : start + size_bytes], data[start + size_bytes :]
        how = draw(st.sampled_from(["other", "missing", "twice", "elsewhere", "token", "no more"]))
        if how == "other":
            piece = draw(st.binary(min_size=1, max_size=4))
        elif how == "token":
            piece += draw(TOKENS)
        elif how == "twice":
            piece += piece
        elif how == "elsewhere":
            place = draw(PLACES) % (len(after) + 1)
            piece, after = b"", after[:place] + piece + after[place:]
        elif how == "missing":
            piece = b""
        else:
            piece = after = b""
        data = before + piece + after
    return data


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    """The pieces."""
    places = sorted({0, len(data), *(each % (len(data) + 1) for each in at)})
    return [data[start:end] for start, end in pairwise(places)]


_ONE = st.one_of(requests(), requests(), requests().map(head_of), mutated())
_CUTS = st.one_of(st.just([]), st.lists(PLACES, max_size=3))
TALKS = st.lists(st.builds(cut, _ONE, _CUTS), min_size=1, max_size=3)
"""What a client sends on a connection, in pieces; it waits between two lists of them until all is answered."""
