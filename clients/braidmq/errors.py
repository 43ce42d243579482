"""Every failure of this client, arranged by what the caller can do. A class's docstring is its default message.

    BraidMQError
    ├── InvalidArgument              the call makes no sense; nothing was sent
    │   └── InvalidName              (also from the broker)
    ├── ClientClosed                 the client or the producer has been closed
    ├── NoConnection                 nothing answers at that address; nothing was sent     retryable
    ├── ConnectionBroken             the answer to a read or a repeatable call was lost    retryable
    ├── OutcomeUnknown               a publish was not acknowledged in time: stored or not
    │   └── PublishIncomplete        some segments have stored their rows: see `positions`
    ├── NotABroker                   something answers there, but it is not a BraidMQ broker
    ├── PayloadMismatch              a payload differs from its reference
    └── Refused                      the broker refused, with a problem document
        ├── NotFound
        │   ├── TopicNotFound
        │   ├── SegmentNotFound
        │   ├── UploadNotFound
        │   ├── LoadNotFound
        │   ├── GroupNotFound
        │   └── TopicGroupNotFound
        ├── InvalidRequest
        │   ├── InvalidConfig
        │   ├── InvalidMarker
        │   ├── InvalidReference
        │   └── LoadRefused          files of a bulk load are not valid
        ├── PositionExpired          older than retention kept: `earliest` is a marker to go on from
        ├── BodyTooLarge             `limit_bytes` says how large a request may be
        ├── Conflict
        │   ├── TopicExists          `create_topic(…, exist_ok=False)` wants a new one
        │   ├── PolicyChanged        the policy has changed meanwhile
        │   ├── SequenceExpired      the owner no longer knows whether it has stored this sequence
        │   ├── ProducerTaken        the producer's id belongs to another principal: choose another id
        │   ├── LoadCommitted        the load takes no more files and cannot be given up
        │   ├── ClaimLost            another consumer has the messages, or they are done
        │   ├── MemberFenced         another member of the group has the segments
        │   ├── MemberReplaced       another process has the same `member_id` now
        │   ├── InTopicGroup         ask this of the topic group
        │   ├── LoadOvertaken        a load reserved later was committed first: run it again
        │   └── FileTaken            an earlier run of a load had other messages
        ├── Unauthenticated          no token, or one that the broker does not accept
        ├── Forbidden                the token does not allow it
        ├── DataUnreadable           an object of the topic cannot be read: `key`, and `next` to go on behind it
        │   ├── DataMissing          it is gone
        │   └── DataDamaged          its bytes are not what was written
        ├── FrontStoreFull           the broker's memory is full: wait, then repeat         retryable
        ├── Unavailable              draining, segment moved, owner or store silent         retryable
        └── BrokerFailed             an error inside the broker

`retryable` says whether repeating the same call can help *and* cannot store anything twice. If the broker sent a
problem document, its `retryable` counts; the table above shows the usual case. The client itself retries everything
that may be retried: an error that reaches the user has outlasted those retries.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from braidmq.positions import PositionRange, Published
from filer.errors import BraidError


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem document (RFC 9457) as the broker sent it; `extras` are its non-standard members."""

    slug: str
    title: str
    status: int
    detail: str
    retryable: bool
    extras: dict[str, Any] = field(default_factory=dict)


class BraidMQError(BraidError):
    """Something went wrong between this client and its broker."""

    retryable: bool = False
    """Whether repeating the same call can help and cannot store anything twice."""

    published: Published | None = None
    """For calls that publish many messages: what was acknowledged before the failure."""

    tried_before: Mapping[str, "BraidMQError"] = MappingProxyType({})
    """The failures of other brokers' addresses that were tried before this one."""

    def __init__(
        self, message: str | None = None, *, problem: Problem | None = None, retry_after_seconds: float = 0.0
    ) -> None:
        super().__init__(message)
        self.problem = problem
        self.retry_after_seconds = retry_after_seconds
        if problem is not None:
            self.retryable = problem.retryable

    def __str__(self) -> str:
        message = super().__str__()
        if not self.tried_before:
            return message
        return f"{message}; before that: {'; '.join(map(str, self.tried_before.values()))}"

    @property
    def status(self) -> int | None:
        """The HTTP status of the broker's answer; None if there was none."""
        return None if self.problem is None else self.problem.status

    @property
    def request_id(self) -> str | None:
        """The id of the request, which its lines in the brokers' logs carry; None if no broker answered."""
        return None if self.problem is None else self.problem.extras.get("request_id")


class InvalidArgument(BraidMQError, ValueError):
    """The call makes no sense; nothing was sent."""


class InvalidName(InvalidArgument):
    """The name is not allowed."""


FORKED = (
    "this client was made before the process was forked, and its thread is not in this one: make a client in each "
    "process"
)


class ClientClosed(BraidMQError):
    """The client or the producer has been closed."""


class NoConnection(BraidMQError):
    """The broker cannot be reached; nothing was sent."""

    retryable = True


class ConnectionBroken(BraidMQError):
    """The connection broke before the answer was complete."""

    retryable = True


class OutcomeUnknown(BraidMQError):
    """The publish was not acknowledged: the messages may or may not be stored."""

    def __init__(
        self, message: str | None = None, *, problem: Problem | None = None, retry_after_seconds: float = 0.0
    ) -> None:
        super().__init__(message, problem=problem, retry_after_seconds=retry_after_seconds)
        # The broker's `retryable` is about this request with this sequence. A repeated call would be another request.
        self.retryable = False


class PublishIncomplete(OutcomeUnknown):
    """Part of the request was acknowledged; the outcome of the rest is unknown."""

    @property
    def positions(self) -> tuple[PositionRange, ...]:
        """The ranges that were acknowledged."""
        listed = self.problem.extras.get("positions", []) if self.problem is not None else []
        return tuple(PositionRange(each["segment"], each["offset"], each["count"]) for each in listed)


class NotABroker(BraidMQError):
    """Something answers at that address, but it is not a BraidMQ broker."""


class PayloadMismatch(BraidMQError):
    """The payload differs from its reference."""


class Refused(BraidMQError):
    """The broker refused the request."""


class NotFound(Refused):
    """It does not exist."""


class TopicNotFound(NotFound):
    """There is no topic of that name."""


class TopicGroupNotFound(NotFound):
    """There is no topic group of that name."""


class SegmentNotFound(NotFound):
    """The topic has no such segment."""


class UploadNotFound(NotFound):
    """The topic has no such upload."""


class LoadNotFound(NotFound):
    """The topic has no load of that name, or it was given up."""


class GroupNotFound(NotFound):
    """The topic has no consumer group of that name."""


class InvalidRequest(Refused):
    """The request is not valid."""


class InvalidConfig(InvalidRequest):
    """The settings of a topic or a group are not valid."""


class InvalidMarker(InvalidRequest):
    """The marker is not one of this topic."""


class InvalidReference(InvalidRequest):
    """The reference does not fit the upload it names."""


class LoadRefused(InvalidRequest):
    """Files of the bulk load are not valid; nothing of it was adopted."""


class PositionExpired(Refused):
    """The position is older than what retention keeps."""

    @property
    def earliest(self) -> str | None:
        """The marker of the earliest position that can be read."""
        return None if self.problem is None else self.problem.extras.get("earliest")


class BodyTooLarge(Refused):
    """The request is larger than the broker takes."""

    @property
    def limit_bytes(self) -> int | None:
        """The largest request body that the broker takes, in bytes."""
        return None if self.problem is None else self.problem.extras.get("limit_bytes")


class Conflict(Refused):
    """The request conflicts with the current state."""


class TopicExists(Conflict):
    """The topic exists, and `exist_ok=False` wants a new one."""


class PolicyChanged(Conflict):
    """The policy has been changed since it was read: read it again, and change that."""


class InTopicGroup(Conflict):
    """A topic that is a member of a topic group cannot do this by itself; or the name is that of the group."""


class SequenceExpired(Conflict):
    """The sequence is not among those that the owner remembers of this producer, and not newer than they are."""


class ProducerTaken(Conflict):
    """The producer's id belongs to another principal, which used it before in this topic: choose another id."""


class ClaimLost(Conflict):
    """The leases of claimed messages have run out, and the messages are with another consumer, or done."""


class MemberFenced(Conflict):
    """The segments are with another member of the stream group, or this start of the member is over."""


class MemberReplaced(Conflict):
    """Another process has joined the stream group under the same `member_id`: each needs one of its own."""


class LoadCommitted(Conflict):
    """The load has been committed: it takes no more files."""


class LoadOvertaken(Conflict):
    """A load that was reserved later has been committed: reserve and write this one again."""


class FileTaken(Conflict):
    """A file of the load exists with other bytes, or the load has been committed with more or fewer messages."""


class Unauthenticated(Refused):
    """The broker asks for a token, or does not accept the one it got."""


class Forbidden(Refused):
    """You are not allowed to do this."""


class DataUnreadable(Refused):
    """An object of the topic cannot be read. Other messages can: reading can go on behind it."""

    @property
    def key(self) -> str | None:
        """The object's key on the store; putting it back mends this."""
        return None if self.problem is None else self.problem.extras.get("key")

    @property
    def segment(self) -> int | None:
        """The segment whose messages the object holds."""
        return None if self.problem is None else self.problem.extras.get("segment")

    @property
    def next_offset(self) -> int | None:
        """The segment's first offset behind the object."""
        return None if self.problem is None else self.problem.extras.get("next_offset")

    @property
    def next(self) -> str | None:
        """The marker behind the object, for a reader of the whole topic that gives its messages up."""
        return None if self.problem is None else self.problem.extras.get("next")


class DataMissing(DataUnreadable):
    """An object of the topic is gone from the store."""


class DataDamaged(DataUnreadable):
    """An object of the topic is damaged."""


class FrontStoreFull(Refused):
    """The broker's memory is full for now."""

    retryable = True


class Unavailable(Refused):
    """The broker cannot do this right now."""

    retryable = True


class BrokerFailed(Refused):
    """An error inside the broker."""


_BY_SLUG: dict[str, type[Refused]] = {
    "topic-not-found": TopicNotFound,
    "segment-not-found": SegmentNotFound,
    "upload-not-found": UploadNotFound,
    "invalid-config": InvalidConfig,
    "invalid-marker": InvalidMarker,
    "invalid-reference": InvalidReference,
    "position-expired": PositionExpired,
    "body-too-large": BodyTooLarge,
    "data-missing": DataMissing,
    "data-damaged": DataDamaged,
    "front-store-full": FrontStoreFull,
    "sequence-expired": SequenceExpired,
    "producer-taken": ProducerTaken,
    "load-not-found": LoadNotFound,
    "load-refused": LoadRefused,
    "load-committed": LoadCommitted,
    "load-overtaken": LoadOvertaken,
    "name-taken": FileTaken,
    "topic-exists": TopicExists,
    "policy-changed": PolicyChanged,
    "group-not-found": GroupNotFound,
    "topic-group-not-found": TopicGroupNotFound,
    "topic-group-member": InTopicGroup,
    "topic-group": InTopicGroup,
    "claim-lost": ClaimLost,
    "member-fenced": MemberFenced,
    "member-replaced": MemberReplaced,
}
# A broker that fails with one of these has certainly stored nothing of the publish.
_NOTHING_STORED = ("segment-moved", "draining")
_BY_STATUS: dict[int, type[Refused]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: FrontStoreFull,
}


def error_of(problem: Problem, *, publishing: bool, retry_after_seconds: float = 0.0) -> BraidMQError:
    """Return the exception for a problem document.

    If a publish failed inside the broker, its outcome is unknown unless the problem says otherwise.
    """
    return _class_of(problem, publishing)(text_of(problem), problem=problem, retry_after_seconds=retry_after_seconds)


def _class_of(problem: Problem, publishing: bool) -> type[BraidMQError]:
    if problem.slug == "publish-incomplete":
        return PublishIncomplete
    if problem.slug == "invalid-name":
        return InvalidName
    if publishing and problem.status >= 500 and problem.slug not in _NOTHING_STORED:
        return OutcomeUnknown
    known = _BY_SLUG.get(problem.slug) or _BY_STATUS.get(problem.status)
    if known is not None:
        return known
    if problem.status in (502, 503, 504):
        return Unavailable
    return BrokerFailed if problem.status >= 500 else InvalidRequest


def text_of(problem: Problem) -> str:
    """The text of the exception for a problem document."""
    return f"{problem.detail or problem.title} [{problem.slug}, HTTP {problem.status}]"
