"""Errors as `application/problem+json` (RFC 9457). Their types stay the same from version to version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from filer import errors as filer_errors
from filer import request_ids
from filer.topic.positions import PositionExpired
from mq.base import errors
from mq.base.problem_kinds import ProblemKind
from mq.http.remedies import detail_of, extension_of

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1
UNAUTHENTICATED = 401
_URN = "urn:braidmq:"


@dataclass(frozen=True, slots=True)
class Problem:
    """One error answer. `retryable`: a repeated request may succeed, and cannot store anything twice."""

    slug: str
    title: str
    status: int
    detail: str
    retryable: bool = False
    extras: dict[str, Any] = field(default_factory=dict)
    retry_after_seconds: int = RETRY_AFTER_SECONDS

    def document(self) -> dict[str, Any]:
        """The content of the JSON document. It names the request that is being served."""
        request_id = request_ids.current()
        return {
            "type": f"{_URN}{self.slug}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "retryable": self.retryable,
            **({} if request_id is None else {"request_id": request_id}),
            **self.extras,
        }

    def body(self) -> bytes:
        """The JSON document."""
        return orjson.dumps(self.document())

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Response headers, without the length."""
        headers = [(b"content-type", MEDIA_TYPE.encode())]
        if self.status == UNAUTHENTICATED:
            headers.append((b"www-authenticate", b"Bearer"))
        if self.retryable:
            headers.append((b"retry-after", str(self.retry_after_seconds).encode()))
        return headers


_OWNER_SILENT = "The owner of a segment does not answer properly"
_KINDS: Sequence[tuple[type[Exception], ProblemKind, str, int, bool]] = (
    # The first match counts, so subclasses come before their base classes.
    (errors.Malformed, "invalid-request", "The request cannot be parsed", 400, False),
    (errors.InvalidReference, "invalid-reference", "The reference cannot be used", 422, False),
    (filer_errors.InvalidName, "invalid-name", "The name is not allowed", 422, False),
    (filer_errors.InvalidConfig, "invalid-config", "The configuration is not valid", 422, False),
    (filer_errors.InvalidMarker, "invalid-marker", "The marker is not valid", 400, False),
    (filer_errors.LoadRefused, "load-refused", "The files of the bulk load are not valid", 422, False),
    (errors.TopicExists, "topic-exists", "The topic exists", 412, False),
    (errors.PolicyChanged, "policy-changed", "The policy has been changed meanwhile", 412, False),
    (errors.PreconditionMissing, "precondition-missing", "The request does not say of which version", 428, False),
    (errors.NameTaken, "name-taken", "Another file has this name", 412, False),
    (filer_errors.InvalidInput, "invalid-request", "The request is not valid", 422, False),
    (PositionExpired, "position-expired", "The messages at the position have expired", 410, False),
    (errors.BodyTooLarge, "body-too-large", "The body is too large", 413, False),
    (errors.BodyTimeout, "request-timeout", "The body did not arrive in time", 408, True),
    (errors.UnsupportedMedia, "unsupported-media-type", "The media type is not supported", 415, False),
    (errors.FrontStoreFull, "front-store-full", "The broker has no room for more messages at the moment", 429, True),
    (errors.ReadsFull, "reads-full", "The broker has no room for another answer at the moment", 429, True),
    (errors.TooManyStreams, "too-many-streams", "There are too many subscriptions at the moment", 429, True),
    (errors.TooManyUploads, "too-many-uploads", "There are too many uploads at the moment", 429, True),
    (errors.QuotaExceeded, "quota-exceeded", "The principal's quota is used up at the moment", 429, True),
    (errors.TooManyVerifications, "too-many-verifications", "Too many topics are being checked", 429, True),
    (errors.CopyRefused, "copy-refused", "The segment is being sealed", 409, False),
    (errors.CopyGap, "copy-gap", "Messages are missing before these", 409, True),
    (errors.OutOfTouch, "out-of-touch", "The follower has lost touch with the cluster", 503, True),
    (errors.InternalTopic, "internal-topic", "The topic is the brokers' own", 403, False),
    (errors.Unauthenticated, "unauthenticated", "No credential that is accepted", UNAUTHENTICATED, False),
    (errors.Forbidden, "forbidden", "Not allowed", 403, False),
    (errors.AuditFailed, "audit-failed", "The audit trail cannot be written", 503, False),
    (errors.NoOtherBroker, "no-other-broker", "There is no other broker to take over", 409, False),
    (errors.TransitionUnderWay, "transition-under-way", "Other transitions of the topic are under way", 409, True),
    (errors.Draining, "draining", "The broker is shutting down", 503, True),
    (errors.PublishIncomplete, "publish-incomplete", "Only a part of the request was stored", 503, False),
    (filer_errors.DataMissing, "data-missing", "An object of the topic is gone from the store", 503, False),
    (filer_errors.CorruptFile, "data-damaged", "An object on the store is damaged", 503, False),
    (filer_errors.SequenceExpired, "sequence-expired", "The sequence is too old to recognise a repetition", 409, False),
    (filer_errors.ProducerTaken, "producer-taken", "The producer belongs to another principal", 409, False),
    (filer_errors.SegmentMoved, "segment-moved", "The segment has another owner", 503, True),
    (errors.OwnerSilent, "owner-silent", _OWNER_SILENT, 503, True),
    # A publish without an id could be stored twice if it were repeated.
    (errors.PeerSilent, "owner-silent", _OWNER_SILENT, 503, False),
    (errors.PeerUnreachable, "broker-unreachable", "Another broker does not answer", 503, True),
    (errors.PeerFailed, "broker-refused", "Another broker refuses the request", 502, False),
    # The store got no request.
    (filer_errors.StoreUnreached, "store-unavailable", "The store cannot be reached", 503, True),
    (
        filer_errors.StoreError,
        "store-unavailable",
        "The store, or the owner of the segment, does not answer properly",
        503,
        False,
    ),
)
SLUGS = (*dict.fromkeys(slug for _, slug, _, _, _ in _KINDS), "topic-not-found", "internal")
"""The types of problems that publishes have."""


def problem_of(error: Exception) -> Problem:
    """The answer to an error. An unforeseen error is a 500 that reveals nothing."""
    if isinstance(error, errors.NotFound):
        title = f"There is no such {error.what.replace('-', ' ')}"
        return Problem(f"{error.what}-not-found", title, 404, detail_of(error), extras=_extras(error))
    if isinstance(error, errors.Conflict):
        title = "The request conflicts with the current state"
        return Problem(error.kind, title, 409, detail_of(error), extras=_extras(error))
    if isinstance(error, errors.PeerProblem):
        return _passed_on(error.document)
    if isinstance(error, errors.Repeatable):
        return replace(problem_of(error.cause), retryable=True)
    for kind, slug, title, status, retryable in _KINDS:
        if isinstance(error, kind):
            pause = error.retry_after_seconds if isinstance(error, errors.QuotaExceeded) else RETRY_AFTER_SECONDS
            return Problem(slug, title, status, detail_of(error), retryable, _extras(error), pause)
    return Problem("internal", "Something went wrong in the broker", 500, "see the broker's log")


def _passed_on(document: Mapping[str, Any]) -> Problem:
    """The problem of another broker, as it is."""
    known = ("type", "title", "status", "detail", "retryable", "request_id")
    extras = {name: value for name, value in document.items() if name not in known}
    slug, title, detail = (str(document[name]) for name in ("type", "title", "detail"))
    return Problem(slug.removeprefix(_URN), title, document["status"], detail, document["retryable"], extras)


def _extras(error: Exception) -> dict[str, Any]:
    if isinstance(error, filer_errors.StoreError) and error.cause is not None:
        return {"cause": error.cause}
    if isinstance(error, errors.PublishIncomplete):
        return {"positions": [_position(p) for p in error.positions]}
    if isinstance(error, errors.BodyTooLarge):
        path = {} if error.topic is None else {"upload": f"/v1/topics/{error.topic}/uploads"}
        return {"limit_bytes": error.limit_bytes, **path, **extension_of(error)}
    if isinstance(error, filer_errors.UnreadableObject):
        told = {
            "key": error.key,
            "segment": error.segment,
            "offset": error.offset,
            "next_offset": error.next_offset,
            "next": error.next_marker,
        }
        return {name: value for name, value in told.items() if value is not None}
    if isinstance(error, errors.QuotaExceeded):
        used = {} if error.used is None else {"used": error.used}
        return {"limit": error.limit, "value": error.value, **used}
    if isinstance(error, errors.PositionTooOld):
        return {"earliest": error.earliest}
    if isinstance(error, errors.SegmentNotOpen):
        return {"successors": list(error.successors)}
    return extension_of(error)


def _position(position: Any) -> dict[str, int]:
    return {"segment": position.segment, "offset": position.offset, "count": position.count}
