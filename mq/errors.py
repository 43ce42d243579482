"""What can go wrong at a broker beyond what the filer names.

BraidError
├── PublishIncomplete      some shares of a request were stored, others were not
├── Repeatable             one of these, or a store that gave no answer, for a request that may be repeated
├── FrontStoreFull         no room for more until the store has caught up
├── Draining               this broker is shutting down
├── NotFound               no such topic, segment, message, upload, load
├── BodyTooLarge           a request body above the limit
├── UnsupportedMedia       a content type or encoding not understood
├── Malformed              bytes that do not parse
├── InvalidReference       an upload that cannot be referred to
├── Conflict               the request contradicts what stands
│   └── SegmentNotOpen     a segment has been sealed, so it cannot be split or merged any more
├── NameTaken              a file of a load exists, and holds something else
├── TransitionUnderWay     a topic goes on changing its shape for other reasons
├── PositionTooOld         a position older than what is kept
├── Forbidden              the authorizer says no
├── NoOtherBroker          nobody could take over what a broker is to hand over
├── CopyRefused            a follower takes no more of a segment that it helped to seal
├── CopyGap                a follower misses what comes before
├── OutOfTouch             a follower that the others soon call gone holds nothing more
├── OwnerSilent            what a segment's owner holds cannot be read, as it does not answer
├── PeerUnreachable        another broker certainly did not get the request
├── PeerFailed             another broker refused it
└── PeerSilent             another broker may have got it: an OutcomeUnknown
"""

from collections.abc import Sequence

from filer.errors import BraidError, InvalidInput, OutcomeUnknown
from filer.positions import PositionExpired
from filer.requests import Position


class PublishIncomplete(BraidError):
    """Only a part of the request was stored."""

    def __init__(self, message: str, positions: Sequence[Position]) -> None:
        super().__init__(message)
        self.positions = positions


class Repeatable(BraidError):
    """Of a request with an id: sent again it is completed or found stored, whatever became of it."""

    def __init__(self, cause: BraidError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class FrontStoreFull(BraidError):
    """The broker holds as many messages as it may that are not stored yet."""


class Draining(BraidError):
    """This broker is shutting down."""


class NotFound(BraidError):
    """There is no such thing; `what` is topic, segment, message, upload, load or broker."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


class BodyTooLarge(BraidError):
    """The request body is above the limit; `upload` is the path where larger payloads go."""

    def __init__(self, message: str, limit_bytes: int, upload: str) -> None:
        super().__init__(message)
        self.limit_bytes = limit_bytes
        self.upload = upload


class BodyTimeout(BraidError):
    """The request body did not arrive in time."""


class UnsupportedMedia(BraidError):
    """The content type or encoding is not understood here."""


class Malformed(InvalidInput):
    """The bytes do not parse as what they claim to be."""


class InvalidReference(InvalidInput):
    """The upload cannot be referred to."""


class Conflict(BraidError):
    """The request contradicts what stands; `kind` is the slug of the problem."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class SegmentNotOpen(Conflict):
    """The segment has been sealed; `successors` are those that follow it."""

    def __init__(self, message: str, successors: Sequence[int]) -> None:
        super().__init__("segment-sealed", message)
        self.successors = successors


class NameTaken(BraidError):
    """There is another file of that name."""


class TransitionUnderWay(BraidError):
    """The topic goes on changing its shape for other reasons."""


class PositionTooOld(PositionExpired):
    """Retention has taken the messages at this position; `earliest` is the marker of the oldest kept."""

    def __init__(self, message: str, earliest: str) -> None:
        super().__init__(message)
        self.earliest = earliest


class Forbidden(BraidError):
    """Not allowed."""


class NoOtherBroker(BraidError):
    """There is no other broker to take over."""


class CopyRefused(BraidError):
    """This follower has helped to seal the segment: its owner can add nothing to it any more."""


class CopyGap(BraidError):
    """This follower misses messages that come before these."""


class OutOfTouch(BraidError):
    """This follower has lost touch: the others soon call it gone, so what it held would not count."""


class OwnerSilent(BraidError):
    """The owner of a segment does not answer, and may hold messages that are not on the store yet."""


class PeerUnreachable(BraidError):
    """Another broker cannot be reached: the request certainly did not arrive."""


class PeerFailed(BraidError):
    """Another broker refused the request."""


class PeerSilent(OutcomeUnknown):
    """Another broker gave no answer, or none that tells: the request may or may not have taken effect."""
