"""The errors of a broker, in addition to those of the filer.

BraidError
├── PublishIncomplete      some messages of a request were stored, others were not
├── PeerProblem            what another broker has answered to a client's request
├── Repeatable             another error, of a request that may safely be repeated
├── StoreTimeout           the store did not take messages in time: an OutcomeUnknown
├── FrontStoreFull         no room for more messages until the store has caught up
├── ReadsFull              no room for another answer with messages at the moment
├── TooManyStreams         no more subscriptions are served at the moment
├── TooManyUploads         no more payloads are sent on to the store at the moment
├── Draining               this broker is shutting down
├── NotFound               no such topic, segment, message, upload, load
│   └── TopicNotFound      no such topic, which may be created
├── BodyTooLarge           a request body above the limit
├── BodyTimeout            a request body that did not arrive in time
├── UnsupportedMedia       an unknown content type or encoding
├── Malformed              bytes that cannot be parsed
├── InvalidReference       an upload that a message cannot refer to
├── Conflict               the request contradicts the current state
│   └── SegmentNotOpen     a segment is sealed, so it cannot be split or merged
├── PolicyChanged          the policy has been changed since the client read it
├── PreconditionMissing    a change of the policy does not name the version it is made for
├── QuotaExceeded          a principal has used what its quota allows for now
├── NameTaken              a file of a bulk load exists with other content
├── TransitionUnderWay     other transitions of the topic keep coming first
├── PositionTooOld         retention has removed the messages at a position
├── Unauthenticated        the request has no credential that is accepted
│   └── Revoked            the credential is good but for the policy
├── Forbidden              the authorizer denied the request
│   └── InternalTopic      the topic, or its name, is the brokers' own
├── AuditFailed            the audit trail may lack a record of the request
├── NoOtherBroker          no other broker can take over
├── CopyRefused            a follower has helped to seal the segment, and takes no more messages of it
├── CopyGap                a follower lacks earlier messages of the segment
├── OutOfTouch             a follower is out of touch with ZooKeeper, and takes no more messages
├── OwnerSilent            a segment's owner does not answer, so its newest messages cannot be read
├── PeerUnreachable        another broker certainly did not receive the request
├── PeerFailed             another broker refused the request
│   └── PeerDenied         another broker does not take this one for one of its cluster
└── PeerSilent             another broker may have received the request: an OutcomeUnknown
    └── PeerUnproven       an answer that no broker of the cluster has signed
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from filer.errors import BraidError, InvalidInput, OutcomeUnknown, Remedy, StoreError
from filer.format.requests import Position
from filer.topic.positions import PositionExpired
from mq.base.problem_kinds import ConflictKind, MissingThing


class PublishIncomplete(BraidError):
    """Only some messages of the request were stored, at `positions`."""

    def __init__(self, message: str, positions: Sequence[Position]) -> None:
        super().__init__(message)
        self.positions = positions


class Repeatable(BraidError):
    """A request with an id failed. Sent again, it is completed, or its messages are found stored."""

    def __init__(self, cause: BraidError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def repeatable(error: BraidError) -> BraidError:
    """The error of a request that may be sent again, since it publishes nothing, even after a failure of the store.

    An object that is gone or damaged on the store is no such failure.
    """
    return Repeatable(error) if isinstance(error, StoreError) else error


class PeerProblem(BraidError):
    """The problem that another broker has answered to a client's request: the client gets that document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__(str(document.get("detail")))
        self.document = document


class StoreTimeout(OutcomeUnknown):
    """The store did not take the messages in time; they may be stored yet."""


class FrontStoreFull(BraidError):
    """The broker's memory for messages that are not stored yet is full."""


class ReadsFull(BraidError):
    """The broker's memory for answers with messages is full."""


class TooManyStreams(BraidError):
    """The broker, or the client's address, has as many subscriptions as it may."""


class TooManyUploads(BraidError):
    """The broker sends on as many payloads, or as many of one principal, as it may."""


class TooManyVerifications(BraidError):
    """The broker checks as many topics as it may at a time."""


class Draining(BraidError):
    """This broker is shutting down."""


class NotFound(BraidError):
    """The resource does not exist."""

    def __init__(self, what: MissingThing, message: str, remedy: Remedy | None = None) -> None:
        super().__init__(message, remedy)
        self.what = what


class TopicNotFound(NotFound):
    """There is no topic of that name. It may be created."""

    def __init__(self, topic: str) -> None:
        super().__init__("topic", f"there is no topic {topic!r}", Remedy("create-topic", topic=topic))


class BodyTooLarge(BraidError):
    """The request body is larger than the limit; the topic, if there is one, takes larger payloads as uploads."""

    def __init__(self, message: str, limit_bytes: int, topic: str | None, remedy: Remedy | None = None) -> None:
        super().__init__(message, remedy)
        self.limit_bytes = limit_bytes
        self.topic = topic


class BodyTimeout(BraidError):
    """The request body did not arrive in time."""


class UnsupportedMedia(BraidError):
    """The content type or encoding is not supported."""


class Malformed(InvalidInput):
    """The bytes cannot be parsed as their content type."""


class InvalidReference(InvalidInput):
    """A message cannot refer to this upload."""


class TopicExists(BraidError):
    """The topic exists, and the request wants a new one."""


class Conflict(BraidError):
    """The request contradicts the current state; `kind` is the slug of the problem type."""

    def __init__(self, kind: ConflictKind, message: str, remedy: Remedy | None = None) -> None:
        super().__init__(message, remedy)
        self.kind = kind


class SegmentNotOpen(Conflict):
    """The segment is sealed; `successors` are the ids of its successors."""

    def __init__(self, message: str, successors: Sequence[int]) -> None:
        super().__init__("segment-sealed", message)
        self.successors = successors


class PolicyChanged(BraidError):
    """The policy is not the version that the request was made for."""


class PreconditionMissing(BraidError):
    """The request changes what other clients may be changing: it has to name the version that it was made for."""


class QuotaExceeded(BraidError):
    """A principal has used what `limit` of its quota allows, which is `value`; more in `wait_seconds`.

    `used`: how much it has used, if that is no rate.
    """

    def __init__(
        self, limit: str, value: int, wait_seconds: float, told: str | None = None, *, used: int | None = None
    ) -> None:
        again = f"more in {ceil(wait_seconds)} s"
        super().__init__(told or f"the quota of this principal has {limit} = {value} at each broker: {again}")
        self.limit, self.value, self.wait_seconds, self.used = limit, value, wait_seconds, used

    @property
    def retry_after_seconds(self) -> int:
        """The value of the `Retry-After` header."""
        return ceil(self.wait_seconds)


class NameTaken(BraidError):
    """Another file has that name."""


class TransitionUnderWay(BraidError):
    """Other transitions of the topic keep coming first."""


class PositionTooOld(PositionExpired):
    """Retention has removed the messages at this position; `earliest` is the marker of the oldest ones kept."""

    def __init__(self, message: str, earliest: str) -> None:
        super().__init__(message)
        self.earliest = earliest


class Unauthenticated(BraidError):
    """The request has no credential that is accepted."""


class Revoked(Unauthenticated):
    """The credential is good, but the policy refuses it. Its `principal` is known."""

    def __init__(self, message: str, principal: str) -> None:
        super().__init__(message)
        self.principal = principal


class Forbidden(BraidError):
    """The authorizer denied the request."""


class AuditFailed(BraidError):
    """The request may be missing in the audit trail, so its own answer is kept back."""


class InternalTopic(Forbidden):
    """The topic is the brokers' own, or its name is kept for such a topic."""


class NoOtherBroker(BraidError):
    """No other broker can take over."""


class CopyRefused(BraidError):
    """This follower has helped to seal the segment: its owner can add nothing more."""


class CopyGap(BraidError):
    """This follower lacks messages that come before these."""


class OutOfTouch(BraidError):
    """This follower is out of touch. Other brokers soon count it as gone, and then its copies do not count."""


class OwnerSilent(BraidError):
    """The owner of a segment does not answer. It may hold messages that are not stored yet."""


class PeerUnreachable(BraidError):
    """Another broker cannot be reached. It certainly did not receive the request."""


class PeerRefused(PeerUnreachable):
    """The address of another broker refuses connections: as seen from here, nothing listens there."""


class PeerNotTrusted(PeerUnreachable):
    """Another broker's certificate is not trusted here, or this one's is not trusted there: nothing was served."""


class PeerFailed(BraidError):
    """Another broker refused the request."""


class PeerTooOld(PeerFailed):
    """Another broker does not know the call: it is of an earlier version, and has done nothing."""


class PeerDenied(PeerFailed):
    """Another broker does not take this one for a broker of its cluster."""


class PeerSilent(OutcomeUnknown):
    """Another broker gave no conclusive answer: the request may or may not have taken effect."""


class PeerUnproven(PeerSilent):
    """An answer came that no broker of the cluster has signed: its sender may also have passed the request on."""
