"""Errors as `application/problem+json` (RFC 9457), with types that stay the same from version to version."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from filer import errors as filer_errors
from filer.positions import PositionExpired
from mq import errors

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One error answer. `retryable`: the same request again can help, and cannot store anything twice."""

    slug: str
    title: str
    status: int
    detail: str
    retryable: bool = False
    extras: dict[str, Any] = field(default_factory=dict)

    def body(self) -> bytes:
        """The JSON document."""
        return orjson.dumps(
            {
                "type": f"urn:braidmq:{self.slug}",
                "title": self.title,
                "status": self.status,
                "detail": self.detail,
                "retryable": self.retryable,
                **self.extras,
            }
        )

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Response headers, without the length."""
        headers = [(b"content-type", MEDIA_TYPE.encode())]
        if self.retryable:
            headers.append((b"retry-after", str(RETRY_AFTER_SECONDS).encode()))
        return headers


_OWNER_SILENT = "The owner of a segment does not answer as it should"
_KINDS: Sequence[tuple[type[Exception], str, str, int, bool]] = (
    # The first that matches counts: subclasses stand before what they derive from.
    (errors.Malformed, "invalid-request", "The request does not parse", 400, False),
    (errors.InvalidReference, "invalid-reference", "The reference cannot be used", 422, False),
    (filer_errors.InvalidName, "invalid-name", "The name is not allowed", 422, False),
    (filer_errors.InvalidConfig, "invalid-config", "The configuration is not valid", 422, False),
    (filer_errors.InvalidMarker, "invalid-marker", "The marker is not valid", 400, False),
    (filer_errors.LoadRefused, "load-refused", "The files of the load are not what they should be", 422, False),
    (errors.NameTaken, "name-taken", "The name is another file's", 412, False),
    (filer_errors.InvalidInput, "invalid-request", "The request makes no sense", 422, False),
    (PositionExpired, "position-expired", "The position is older than what is kept", 410, False),
    (errors.BodyTooLarge, "body-too-large", "The body is too large", 413, False),
    (errors.BodyTimeout, "request-timeout", "The body did not arrive in time", 408, True),
    (errors.UnsupportedMedia, "unsupported-media-type", "The media type is not understood", 415, False),
    (errors.FrontStoreFull, "front-store-full", "The broker has no room for more just now", 429, True),
    (errors.CopyRefused, "copy-refused", "The segment is being sealed", 409, False),
    (errors.CopyGap, "copy-gap", "Messages are missing before these", 409, True),
    (errors.OutOfTouch, "out-of-touch", "The follower has lost touch with the cluster", 503, True),
    (errors.Forbidden, "forbidden", "Not allowed", 403, False),
    (errors.NoOtherBroker, "no-other-broker", "There is no other broker to take over", 409, False),
    (errors.TransitionUnderWay, "transition-under-way", "The topic is changing its shape", 409, True),
    (errors.Draining, "draining", "The broker is shutting down", 503, True),
    (errors.PublishIncomplete, "publish-incomplete", "Only a part of the request was stored", 503, False),
    (filer_errors.SequenceExpired, "sequence-expired", "The sequence is too old to be told apart", 409, False),
    (filer_errors.SegmentMoved, "segment-moved", "The segment has another owner", 503, True),
    (errors.OwnerSilent, "owner-silent", _OWNER_SILENT, 503, True),
    # Of a publish: one without an id could be stored twice if it were sent again.
    (errors.PeerSilent, "owner-silent", _OWNER_SILENT, 503, False),
    (errors.PeerUnreachable, "broker-unreachable", "Another broker does not answer", 503, True),
    (errors.PeerFailed, "broker-refused", "Another broker refuses the request", 502, False),
    (
        filer_errors.StoreError,
        "store-unavailable",
        "The store, or the owner of the segment, does not answer as it should",
        503,
        False,
    ),
)


def problem_of(error: Exception) -> Problem:
    """The answer to an error; what is not foreseen is a 500 that gives nothing away."""
    if isinstance(error, errors.NotFound):
        return Problem(f"{error.what}-not-found", f"There is no such {error.what}", 404, str(error))
    if isinstance(error, errors.Conflict):
        return Problem(error.kind, "The request contradicts what stands", 409, str(error), extras=_extras(error))
    if isinstance(error, errors.Repeatable):
        return replace(problem_of(error.cause), retryable=True)
    for kind, slug, title, status, retryable in _KINDS:
        if isinstance(error, kind):
            return Problem(slug, title, status, str(error), retryable, _extras(error))
    return Problem("internal", "Something went wrong in the broker", 500, "see the broker's log")


def _extras(error: Exception) -> dict[str, Any]:
    if isinstance(error, errors.PublishIncomplete):
        return {"positions": [_position(p) for p in error.positions]}
    if isinstance(error, errors.BodyTooLarge):
        return {"limit_bytes": error.limit_bytes, "upload": error.upload}
    if isinstance(error, errors.PositionTooOld):
        return {"earliest": error.earliest}
    if isinstance(error, errors.SegmentNotOpen):
        return {"successors": list(error.successors)}
    return {}


def _position(position: Any) -> dict[str, int]:
    return {"segment": position.segment, "offset": position.offset, "count": position.count}
