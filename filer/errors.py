"""Every error that this project names, by what the caller must do. A class's docstring is its default message.

BraidError
├── StoreError                   the object store
│   ├── ObjectNotFound           no such object
│   ├── ObjectExists             a create-if-absent lost: find out who wrote it
│   ├── EtagMismatch             a compare-and-swap lost: read again and decide again
│   ├── OutcomeUnknown           it may or may not have taken effect: find out
│   ├── StoreUnreached           it was never sent: send it again
│   ├── StoreRefused             the request itself is wrong (credentials, bucket): do not repeat
│   └── StoreCannotFence         conditional creates do not hold here: refuse to run
├── SegmentMoved                 this process no longer owns the segment: refresh the route
├── SegmentSealed                the segment takes no more messages: go to its successors
├── SequenceExpired              the request is too old to find out whether it was stored
├── ProducerTaken                the producer's id belongs to another principal: choose another id
├── UnreadableObject             an object that must be there cannot be read: name it, and read what others hold
│   ├── DataMissing              it was acknowledged or recorded, and it is gone
│   └── CorruptFile              the content is not what the name promises
└── InvalidInput                 the user's input is wrong; the message says what is right
    ├── InvalidName
    ├── InvalidConfig
    ├── InvalidMarker
    └── LoadRefused              files of a bulk load are not valid
"""

from dataclasses import dataclass
from typing import Literal

RemedyKind = Literal[
    "claim",
    "configure-its-topic-group",
    "configure-topic",
    "configure-topic-group",
    "create-group",
    "create-splittable-to-split",
    "create-splittable-with-segments",
    "create-topic",
    "create-topic-group",
    "create-with-topics",
    "delete-topic-group",
    "discard",
    "publish-and-discard",
    "force-consumers",
    "force-members",
    "get-upload-id",
    "give-upload-id",
    "join",
    "publish-to-member",
    "read-files-of-topic-group",
    "send-token",
    "upload",
]


@dataclass(frozen=True, slots=True)
class Remedy:
    """What a user can do about an error: its kind, and the names that it concerns.

    Each front phrases it in its own terms: `PUT /v1/topics/birds`, or `mq topic create birds`.
    """

    kind: RemedyKind
    topic: str | None = None
    topic_group: str | None = None
    group: str | None = None
    message: str | None = None

    def names(self) -> dict[str, str]:
        """The names that it has."""
        named = {"topic": self.topic, "topic_group": self.topic_group, "group": self.group, "message": self.message}
        return {what: name for what, name in named.items() if name is not None}


class BraidError(Exception):
    """Something went wrong in BraidMQ.

    The text says what. `remedy` is the way out, for errors that each front phrases in other words.
    """

    def __init__(self, message: str | None = None, remedy: Remedy | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().partition("\n")[0])
        self.remedy = remedy


class StoreError(BraidError):
    """The object store failed.

    `cause` names why in a word, for metrics and for people: an error of the operating system (`ENOSPC`), the status of
    an HTTP answer (`503`), `timeout` or `connection`. None if the answer itself says what is wrong.
    """

    def __init__(self, message: str | None = None, *, cause: str | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class ObjectNotFound(StoreError):
    """There is no object of that name."""


class ObjectExists(StoreError):
    """An object of that name exists already."""


class EtagMismatch(StoreError):
    """The object has changed since it was read."""


class OutcomeUnknown(StoreError):
    """The store gave no clear answer: the request may or may not have taken effect."""


class StoreUnreached(StoreError):
    """No connection to the store was to be had: the request was never sent, and has certainly not taken effect."""


class StoreRefused(StoreError):
    """The store refused the request; repeating it will not help."""


class KeyRefused(StoreRefused):
    """No store takes that key: it was not even asked, and says nothing of its health."""


class StoreCannotFence(StoreError):
    """The store does not honour conditional writes, so two writers could both succeed."""


class SegmentMoved(BraidError):
    """Another writer has taken over this segment."""


class SegmentSealed(BraidError):
    """The segment is sealed."""


class SequenceExpired(BraidError):
    """The producer has sent so many requests since that brokers no longer know whether this one was stored."""


class ProducerTaken(BraidError):
    """The producer's id belongs to another principal."""


class UnreadableObject(BraidError):
    """An object that must be on the store cannot be read.

    `key` names it. If it holds messages, `segment` and `offset` say where reading stopped, and `next_offset` where it
    can go on behind the object; `next_marker` is that place as a marker, if a reader of the whole topic has one. Each
    is None if that is not known.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        key: str | None = None,
        segment: int | None = None,
        offset: int | None = None,
        next_offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.key, self.segment, self.offset, self.next_offset = key, segment, offset, next_offset
        self.next_marker: str | None = None


class DataMissing(UnreadableObject):
    """An object that was acknowledged or recorded is gone from the store."""


class CorruptFile(UnreadableObject):
    """The file is not what its name promises."""


class InvalidInput(BraidError):
    """The input is not valid."""


class InvalidName(InvalidInput):
    """The name is not allowed."""


class InvalidConfig(InvalidInput):
    """The configuration is not valid."""


class InvalidMarker(InvalidInput):
    """The marker is not one this topic gave out."""


class LoadRefused(InvalidInput):
    """The files of the bulk load are not valid."""
