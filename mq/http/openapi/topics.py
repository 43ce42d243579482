"""Topics, their segments and topic groups."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Reason
from mq.http.openapi.answer import ABSENT, Answer, Put, Slots


class TopicBody(TopicConfig):
    """The settings of a topic, all of them optional. Objects are merged field by field."""

    segments: Annotated[int, Field(ge=1, description="How many segments it begins with; counts at creation only.")] = (
        ABSENT
    )


class TopicGroupBody(TopicBody):
    """The topics and the settings of a topic group, all of them optional once there is the group."""

    topics: Annotated[list[str], Field(description="New topics, or those of this group. Those not named stay.")] = (
        ABSENT
    )
    splittable: Annotated[bool, Field(description="Whether it may have several segments; counts at creation only.")] = (
        False
    )


class Traffic(Answer):
    """What the owner of an open segment counted over the last seconds."""

    messages_per_second: float
    bytes_per_second: float
    times_target: float
    """The rate relative to the topic's target, in messages or bytes, whichever is higher."""
    read_messages_per_second: float
    read_bytes_per_second: float
    pending_bytes: int
    """What the owner has accepted and not stored yet."""


class GivenUp(Answer):
    """Messages that an operator has given up."""

    offset: int
    next_offset: int | None
    key: str
    what: Literal["missing", "damaged"]
    since: AwareDatetime


class SuccessorSegment(Answer):
    """A segment that a split or a merge has opened."""

    segment: int
    range: Slots
    state: Literal["open", "sealed"]
    predecessors: list[int]
    successors: list[int]
    brokers: list[str]
    """The owner first, then its followers."""


class Segment(SuccessorSegment):
    """A segment of a topic."""

    start_offset: int
    end_offset: int
    given_up: list[GivenUp] = ABSENT
    traffic: Traffic | None = ABSENT
    """Of an open segment; null if it is not known."""
    hot_slot: int | None = ABSENT
    """Of an open segment: a slot with so much of its traffic that a split would not help."""


class DamagedObject(Answer):
    """An object that is known to be gone or damaged, and the messages that need it."""

    segment: int | None
    offset: int | None
    next_offset: int | None
    key: str
    what: str
    """`missing` or `damaged`."""
    why: str = ABSENT
    """There if the scrub has found it."""


class Topic(Answer):
    """A topic."""

    topic: str
    group: str = ABSENT
    """The topic group of which it is a member, or which it is."""
    config: TopicConfig
    version: int
    segments: list[Segment]
    damaged: list[DamagedObject]
    """The first 100 objects that are known to be gone or damaged."""


class PutTopic(Topic, Put):
    """A topic that was created or changed."""


class ListedTopic(Answer):
    """A topic in a list."""

    topic: str
    segments: int
    version: int
    group: str = ABSENT
    """The topic group of which it is a member, or which it is."""


class UnusableTopic(Answer):
    """A topic whose record is damaged or missing."""

    topic: str
    problem: str
    """The kind of problem that requests to it meet, without `urn:braidmq:`."""
    key: str | None
    """The object."""


class TopicList(Answer):
    """A page of topics."""

    topics: list[ListedTopic]
    unusable: list[UnusableTopic]
    next: str | None
    """The `after` of the next page."""


class Owner(Answer):
    """The broker that owns a segment."""

    broker: str
    url: str | None
    """Null if no such broker is known to be alive."""


class RoutedSegment(Answer):
    """An open segment and its owner."""

    segment: int
    range: Slots
    owner: Owner


class TopicRoute(Answer):
    """Who owns the open segments of a topic."""

    topic: str
    version: int
    segments: list[RoutedSegment]


class PastSegment(Answer):
    """A segment that a topic has, or had."""

    segment: int
    range: Slots
    state: Literal["open", "sealed", "removed"]
    reason: Reason
    """Why it was opened."""
    opened: AwareDatetime
    sealed: AwareDatetime | None
    predecessors: list[int]
    successors: list[int]
    messages: int
    messages_per_second: float | None
    bytes: int | None
    bytes_per_second: float | None
    given_up: list[GivenUp] = ABSENT
    load: str = ABSENT
    """The bulk load that it belongs to."""


class TopicHistory(Answer):
    """A page of the segments that a topic has had."""

    topic: str
    segments: list[PastSegment]
    next: int | None
    """The `after` of the next page."""


class Successors(Answer):
    """The segments that a split or a merge has opened."""

    topic: str
    version: int
    segments: list[SuccessorSegment]


class Upkeep(Answer):
    """What the broker will look at."""

    topic: str
    segments: int
    """How many segments it examines."""


class TopicGroup(Answer):
    """A topic group."""

    group: str
    topics: list[str]
    pending: list[str]
    """Topics that have not joined it yet."""
    splittable: bool
    config: TopicConfig
    version: int
    segments: list[Segment]
    damaged: list[DamagedObject]
    """The first 100 objects that are known to be gone or damaged."""


class PutTopicGroup(TopicGroup, Put):
    """A topic group that was created or changed."""


class ListedTopicGroup(Answer):
    """A topic group in a list."""

    group: str
    topics: list[str]
    splittable: bool
    segments: int
    version: int


class TopicGroupList(Answer):
    """A page of topic groups."""

    topic_groups: list[ListedTopicGroup]
    next: str | None
    """The `after` of the next page."""
