"""Queue groups: their settings, their progress, claims and decisions."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from groups.settings import Acks, DeadLetter, GroupSettings, Mode
from mq.http.openapi.answer import ABSENT, Answer, Put
from mq.http.openapi.messages import Message

_Range = Annotated[list[int], Field(min_length=2, max_length=2)]


class GroupBody(GroupSettings):
    """The settings of a group, all of them optional. Those of the other mode are refused."""

    from_: Annotated[
        str, Field(alias="from", description="`earliest`, `latest` or a time; counts at creation only.")
    ] = "earliest"


class QueueSettings(Answer):
    """The settings of a queue group."""

    mode: Literal["queue"]
    acks: Acks
    lease_seconds: float
    max_deliveries: int
    backoff_seconds: list[float]
    max_in_flight: int
    order: Literal["none", "key"]
    dead_letter: DeadLetter | None


class StreamSettings(Answer):
    """The settings of a stream group."""

    mode: Literal["stream"]
    acks: Acks
    session_seconds: float


class Lag(Answer):
    """How many messages are due and not done, and for how long the oldest has been due."""

    messages: int
    seconds: float | None
    at_most: Literal[True] = ABSENT
    """There if it may be fewer messages."""


class Consumer(Answer):
    """A consumer that has messages, or waits for some. Null stands for all without a name."""

    consumer: str | None
    in_flight: int
    waiting: int


class DelayedLetters(Answer):
    """Messages that are given up, and whose dead letters cannot be stored."""

    messages: int
    reason: str


class QueueGroup(Answer):
    """A queue group."""

    topic: str
    group: str
    settings: QueueSettings
    coordinator: str
    lag: Lag
    delayed: int
    """Messages that were never handed out, and are not due yet."""
    in_flight: int
    waiting_consumers: int
    consumers: list[Consumer]
    more_consumers: int = ABSENT
    """How many there are beside the 100 that are listed."""
    dead: int
    """Dead letters that were neither redriven nor discarded."""
    dead_total: int
    expired: int
    dead_letters_delayed: DelayedLetters = ABSENT
    skipped: int
    """Messages that retention removed before they were done."""


class Member(Answer):
    """A member of a stream group."""

    member_id: str
    member_epoch: int
    session_ends_in_seconds: float
    segments: list[int]


class GroupSegment(Answer):
    """A segment of a stream group."""

    segment: int
    position: int
    epoch: int
    member_id: str | None
    lag: int


class StreamGroup(Answer):
    """A stream group."""

    topic: str
    group: str
    settings: StreamSettings
    coordinator: str
    lag: Lag
    members: list[Member]
    segments: list[GroupSegment]
    skipped: int
    """Messages that retention removed before they were done."""


class PutQueueGroup(QueueGroup, Put):
    """A queue group that was created or changed."""


class PutStreamGroup(StreamGroup, Put):
    """A stream group that was created or changed."""


class ListedGroup(Answer):
    """A group in a list."""

    group: str
    mode: Mode


class GroupList(Answer):
    """A page of groups."""

    groups: list[ListedGroup]
    next: str | None
    """The `after` of the next page."""


class GroupMessage(Message):
    """A message of a group."""

    deliveries: int
    lease_seconds: float = ABSENT
    """Of one in flight: how long its lease still runs."""
    deliver_at: AwareDatetime = ABSENT
    """Of one that rests: until when."""


class GroupMessagePage(Answer):
    """Messages of a group."""

    messages: list[GroupMessage]
    next: str | None
    """The `after` of the next page."""


class ClaimedMessage(Message):
    """A message that a consumer has claimed."""

    deliveries: int
    claim: str
    """The token, for acks, releases and extensions."""


class Claim(Answer):
    """Messages `[from, to)` that a consumer has claimed; with `ranges`, those of them alone."""

    claim: str
    segment: int
    from_: Annotated[int, Field(alias="from")]
    to: int
    deliveries: int
    ranges: list[_Range] = ABSENT


class Claims(Answer):
    """Messages that a consumer has claimed."""

    messages: list[ClaimedMessage]
    claims: list[Claim]
    """The same messages, by their ranges."""
    lease_seconds: float
    order: Literal["none", "key"]
    """With `key`, messages of one key are to be worked on one after the other."""


class Decision(Answer):
    """What became of the messages that one part of the request names, as ranges `[from, to)`."""

    claim: str
    accepted: list[_Range]
    lost: list[_Range]


class Decisions(Answer):
    """What became of the messages that a request names."""

    accepted: int
    lost: int
    results: list[Decision]


class Redriven(Answer):
    """Dead letters that were published again, or discarded."""

    redriven: int = ABSENT
    discarded: int = ABSENT
    """Instead of `redriven`, if the request says so."""
    more: bool = ABSENT
    """Whether dead letters are left; not for chosen ids."""
    before: int = ABSENT
    """Of chosen ids: how many were done already."""


class HeldSegment(Answer):
    """A segment that a member has. It reads from `position` on."""

    segment: int
    epoch: int
    position: int


class SegmentEpoch(Answer):
    """A segment that a member is to let go."""

    segment: int
    epoch: int


class Membership(Answer):
    """What a member has to know."""

    member_id: str
    member_epoch: int
    session_seconds: float
    heartbeat_seconds: float
    segments: list[HeldSegment]
    release: list[SegmentEpoch]


class CommittedPosition(HeldSegment):
    """A position that counts."""

    in_force: int
    """Where the group is now, which may be further on."""


class Commits(Answer):
    """What became of the positions of a commit."""

    committed: list[CommittedPosition]
    fenced: list[HeldSegment]
    """Those of segments that are not the member's any more."""
