"""Why a broker ends a connection, and what it answers the client."""

from dataclasses import dataclass
from http import HTTPStatus

from filer import request_ids
from mq.base.problem_kinds import ProblemKind
from mq.http.problems import Problem


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection is ended: a name for the metric, and the problem that the client gets, if it gets any."""

    reason: str
    problem: Problem | None = None

    def answer(self, request_id: str) -> bytes:
        """Return the answer to a request with that id, or to a part of one; empty if there is none."""
        if self.problem is None:
            return b""
        problem = self.problem
        with request_ids.within(request_id):
            body = problem.body()
        headers = [
            *problem.headers(),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            (request_ids.HEADER.encode(), request_id.encode()),
        ]
        status = b"HTTP/1.1 %d %b\r\n" % (problem.status, HTTPStatus(problem.status).phrase.encode())
        return status + b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n" + body


def _refusal(
    reason: str, slug: ProblemKind, title: str, status: int, detail: str, *, retryable: bool = False
) -> Refusal:
    return Refusal(reason, Problem(slug, title, status, detail, retryable))


_NO_ROOM = "The broker takes no more connections at the moment"
_LATE = "The request did not arrive in time"
_LARGE = "The headers of the request are too large"

NO_ROOM = _refusal(
    "no-room", "too-many-connections", _NO_ROOM, 503, "all connections of this broker are in use", retryable=True
)
ADDRESS = _refusal(
    "address", "too-many-connections", _NO_ROOM, 503, "this address has too many connections already", retryable=True
)
HEAD_LATE = _refusal(
    "head-late", "request-timeout", _LATE, 408, "the headers did not arrive in time; nothing was done", retryable=True
)
BODY_LATE = _refusal(
    "body-late",
    "request-timeout",
    _LATE,
    408,
    "the body stalled, or came too slowly; nothing of this request was stored",
    retryable=True,
)
CROWDED = _refusal(
    "crowded",
    "too-many-connections",
    _NO_ROOM,
    503,
    "bodies that have arrived and cannot be read yet take all the room for such; nothing of this request was stored",
    retryable=True,
)
HEAD_TOO_LARGE = _refusal(
    "head", "headers-too-large", _LARGE, 431, "the headers are larger than this broker takes (--max-head-bytes)"
)
TOO_MANY_HEADERS = _refusal(
    "head", "headers-too-large", _LARGE, 431, "the request has more headers than this broker takes"
)
URI_TOO_LONG = _refusal(
    "uri", "uri-too-long", "The URI is too long", 414, "no path of this broker, and no query, is that long"
)
FRAMING = _refusal(
    "framing",
    "invalid-request",
    "The request cannot be parsed",
    400,
    "the chunks of the body are too small, or their extensions or trailers too long: send chunks of some kilobytes",
)
NOT_A_URL = _refusal(
    "not-http",
    "invalid-request",
    "The request cannot be parsed",
    400,
    "the address has a character that must be percent-encoded, as all that are not ASCII, or does not begin with /: "
    "?key=%C5%91 is the key 'ő', and curl encodes it in --url-query 'key=ő'",
)
NOT_HTTP = _refusal("not-http", "invalid-request", "The request cannot be parsed", 400, "this is not valid HTTP/1.1")
HOST = _refusal(
    "not-http",
    "invalid-request",
    "The request cannot be parsed",
    400,
    "a request of HTTP/1.1 has exactly one header Host: give the host and port of the broker's address in it",
)
TRANSFER_ENCODING = _refusal(
    "not-http",
    "invalid-request",
    "The request cannot be parsed",
    400,
    "the only transfer encoding of a body is chunked, given once, over HTTP/1.1; a compressed body says so in "
    "Content-Encoding",
)
VERSION = _refusal(
    "not-http", "invalid-request", "The request cannot be parsed", 400, "this is neither HTTP/1.1 nor HTTP/1.0"
)
NO_PROXY = _refusal(
    "not-http",
    "invalid-request",
    "The request cannot be parsed",
    400,
    "a broker is no proxy, and takes no CONNECT: is its address set as that of one?",
)
NOT_TLS = _refusal(
    "tls",
    "invalid-request",
    "The request cannot be parsed",
    400,
    "this port speaks TLS, and the request came without: its address begins with https://",
)
# These get no answer: an answer is under way already, or there was no request.
TOO_FAR_AHEAD = Refusal("ahead")
ANSWER_LATE = Refusal("answer-late")
GAVE_WAY = Refusal("gave-way")
IDLE = Refusal("idle")
TLS_FAILED = Refusal("tls")
# The client's certificate has expired. The client gets the reason when it connects again.
CERTIFICATE_EXPIRED = Refusal("certificate")

COUNTED = (
    NO_ROOM,
    ADDRESS,
    HEAD_LATE,
    BODY_LATE,
    CROWDED,
    HEAD_TOO_LARGE,
    TOO_MANY_HEADERS,
    URI_TOO_LONG,
    FRAMING,
    NOT_HTTP,
    TOO_FAR_AHEAD,
    ANSWER_LATE,
    GAVE_WAY,
    TLS_FAILED,
    CERTIFICATE_EXPIRED,
)
"""All but `IDLE`, which is how connections usually end."""
