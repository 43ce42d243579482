"""Brokers' answers about topics, segments, brokers and files. Unknown members, of newer brokers, are ignored."""

from datetime import datetime
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    # Each takes a millisecond or more to build, and a program uses few of them.
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class SegmentTraffic(_Answer):
    """The current traffic of a segment at its owner: published, read, and not stored yet.

    `times_target` is the published rate divided by the topic's target, for messages or bytes, whichever is larger.
    """

    messages_per_second: float
    bytes_per_second: float
    times_target: float
    read_messages_per_second: float = 0.0
    read_bytes_per_second: float = 0.0
    pending_bytes: int = 0


class GivenUp(_Answer):
    """The messages `[offset, next_offset)` of a segment that are given up by `mq topic repair`.

    The object `key`, which had them, was `damaged` or `missing`. Readers pass them by. `next_offset` is None if nothing
    showed how far a damaged last file reached: up to the next file, then.
    """

    offset: int
    next_offset: int | None = None
    key: str
    what: str
    since: datetime


class Segment(_Answer):
    """One segment of a topic: a half-open range of key slots on a list of brokers, the owner first.

    Offsets from `start_offset` on are kept. `end_offset` is the offset after the last one, known once it is sealed.
    Open segments have `traffic`, if it is known, and `hot_slot`, if one slot has so much of it that no split helps.
    `given_up` are lost messages that readers no longer wait for.
    """

    segment: int
    range: tuple[int, int]
    state: Literal["open", "sealed"]
    predecessors: tuple[int, ...] = ()
    successors: tuple[int, ...] = ()
    brokers: tuple[str, ...] = ()
    start_offset: int = 0
    end_offset: int | None = None
    # Older brokers call it `load`.
    traffic: SegmentTraffic | None = Field(default=None, validation_alias=AliasChoices("traffic", "load"))
    hot_slot: int | None = None
    given_up: tuple[GivenUp, ...] = ()


class SegmentLife(_Answer):
    """One segment in the history of a topic: when and why it was opened, when it was sealed, and what it held.

    `sealed` is None while it is open. Its state is `removed` once retention has removed all of it. The rates per
    second are means over its whole life so far. `bytes`, the size of its files, is None if the answering broker does
    not know it. `load` is the bulk load that it was adopted from. `given_up` are lost messages of it, which `messages`
    counts.
    """

    segment: int
    range: tuple[int, int]
    state: Literal["open", "sealed", "removed"]
    reason: str
    opened: datetime
    sealed: datetime | None = None
    predecessors: tuple[int, ...] = ()
    successors: tuple[int, ...] = ()
    messages: int
    messages_per_second: float | None = None
    bytes: int | None = None
    bytes_per_second: float | None = None
    load: str | None = None
    given_up: tuple[GivenUp, ...] = ()


class LostObject(_Answer):
    """An object on the store that is `damaged` or `missing`, by its key.

    Without it the messages `[offset, next_offset)` of the segment cannot be read. `next_offset` is None if no end is
    known; all are None if no message depends on it. `why` is what a check of its bytes has found wrong.
    """

    key: str
    what: str
    segment: int | None = None
    offset: int | None = None
    next_offset: int | None = None
    why: str = ""


class CheckedObject(_Answer):
    """An object on the store whose bytes were checked: `damaged` or `missing`, and why that is known."""

    key: str
    condition: str
    why: str


class SettingDifference(_Answer):
    """A setting that counts only at creation: the value that was wanted, and the topic's value."""

    wanted: Any
    actual: Any


class Topic(_Answer):
    """A topic with its configuration and its segments.

    `damaged` are the lost objects that the answering broker knows. Brokers before this version report none. `created`
    says whether `create_topic` created it, and if it did not, `differs` has the settings that it ignored for that.
    `group` is the topic group whose configuration and segments these are; None if they are the topic's own.
    """

    topic: str
    group: str | None = None
    config: dict[str, Any]
    version: int
    segments: tuple[Segment, ...]
    damaged: tuple[LostObject, ...] = ()
    created: bool = False
    differs: dict[str, SettingDifference] = Field(default_factory=dict)


class Verification(_Answer):
    """The progress of a broker that checks a topic, or the records of the cluster.

    So many objects are `ok`, `unchecked` (they have no digests), `given_up` (readers do not wait for them), `damaged`
    or `missing`; `at` is the last one checked, and `bytes` is how much was read. `found` is set when a damaged or
    missing object is found. `is_complete` comes last.
    """

    ok: int
    unchecked: int
    given_up: int = 0
    damaged: int
    missing: int
    bytes: int
    at: str = ""
    found: CheckedObject | None = None
    is_complete: bool = False


class TopicSummary(_Answer):
    """A topic in the list of all topics: its name, the number of its open segments, its version.

    `group` is the topic group whose segments it shares; of a group, it is the group's own name.
    """

    topic: str
    open_segments: int = Field(alias="segments")
    version: int
    group: str | None = None


class TopicGroupSummary(_Answer):
    """A topic group in the list of all groups: its name, its topics, the number of its open segments, its version."""

    group: str
    topics: tuple[str, ...]
    splittable: bool
    open_segments: int = Field(alias="segments")
    version: int


class TopicGroup(_Answer):
    """A topic group: its topics, and the configuration and the segments that they share.

    `pending` are topics that it names and that have not joined it: its creation was interrupted, or the name was taken
    otherwise. `created` and `differs` are as those of a `Topic`.
    """

    group: str
    topics: tuple[str, ...]
    pending: tuple[str, ...] = ()
    splittable: bool = False
    config: dict[str, Any]
    version: int
    segments: tuple[Segment, ...]
    damaged: tuple[LostObject, ...] = ()
    created: bool = False
    differs: dict[str, SettingDifference] = Field(default_factory=dict)


class UnusableTopic(_Answer):
    """A topic whose record on the store, `key`, is damaged or missing; `problem` says which."""

    topic: str
    problem: str
    key: str | None = None


class Owner(_Answer):
    """The broker that accepts a segment's messages; `url` is None while its address is unknown."""

    broker: str
    url: str | None = None


class RouteEntry(_Answer):
    """One open segment and its owner."""

    segment: int
    range: tuple[int, int]
    owner: Owner


class Route(_Answer):
    """The open segments of a topic; their ranges tile all slots."""

    topic: str
    version: int
    segments: tuple[RouteEntry, ...]


class Broker(_Answer):
    """One broker of the cluster. `segments` is the number of open segments that it owns, if the cluster knows.

    `peer_url` is its address for other brokers, if it has a port for them. Only clients that may observe the cluster
    get it.
    """

    broker: str
    url: str | None = None
    peer_url: str | None = None
    zone: str | None = None
    version: str | None = None
    state: str
    segments: int | None = None


class BrokerDrain(_Answer):
    """A broker that was asked to hand over what it owns, or to own segments again, and how many it owns now."""

    broker: str
    segments: int


class ClusterPolicy(_Answer):
    """The policy: further permissions of principals, revocations, and quotas of each.

    `etag` names this version of it, in a change of it.
    """

    version: int
    etag: str
    grants: list[dict[str, Any]] = []
    revoked_tokens: list[dict[str, Any]] = []
    revoked_principals: list[dict[str, Any]] = []
    quotas: list[dict[str, Any]] = []


class DamagedTopic(_Answer):
    """A topic and how many of its objects are known to be damaged or missing."""

    topic: str
    objects: int


class Cluster(_Answer):
    """The brokers, the leader among them, the transitions under way, and the topics with damaged objects.

    `peer_keys` is whether the asked broker demands keys that prove the identity of other brokers: `required`,
    `optional` or `none`. Only clients that may observe the cluster get it. Each of `problems` has a `type` and a
    `detail`: `zookeeper-lost` while the asked broker has no contact with ZooKeeper, and knows of no leader.
    """

    cluster: str
    version: str
    leader: str | None
    brokers: tuple[Broker, ...]
    peer_keys: str | None = None
    transitions: tuple[dict[str, Any], ...] = ()
    problems: tuple[dict[str, Any], ...] = ()
    damaged: tuple[DamagedTopic, ...] = ()


class SegmentFile(_Answer):
    """One live Parquet file: the offsets `[base_offset, end_offset)` of a segment.

    `uri` is the file's own address; `url` is a presigned one, if the store can make it.
    """

    uri: str
    url: str | None = None
    segment: int
    base_offset: int
    end_offset: int
    count: int
    bytes: int
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    sealed: bool = False


class SegmentOffset(_Answer):
    """An offset of one segment."""

    segment: int
    offset: int


class TopicPosition(_Answer):
    """A position in a whole topic, and the marker that names it. Reading from the marker returns later messages."""

    topic: str
    marker: str
    positions: tuple[SegmentOffset, ...]

    @property
    def offsets(self) -> dict[int, int]:
        """`{segment: offset}`."""
        return {each.segment: each.offset for each in self.positions}


class ReservedSegment(_Answer):
    """A segment that is reserved for a bulk load. Its files go below `prefix` in the store."""

    segment: int
    range: tuple[int, int]
    prefix: str


class ReservedLoad(_Answer):
    """Segments that are reserved for a bulk load until `expires`. All its messages get its `timestamp`.

    `digests`: whether the broker accepts files with digests; a broker of version 0.1 does not.
    """

    load: str
    timestamp: datetime
    expires: datetime
    digests: bool = False
    segments: tuple[ReservedSegment, ...]


class LoadedSegment(_Answer):
    """A segment of a committed bulk load."""

    segment: int
    range: tuple[int, int]
    end_offset: int


class CommittedLoad(_Answer):
    """A bulk load that the topic has adopted, as of the topic's `version`."""

    load: str
    version: int
    messages: int
    segments: tuple[LoadedSegment, ...]


class GroupSummary(_Answer):
    """A consumer group in the list of a topic's groups; `mode` is `queue` or `stream`."""

    group: str
    mode: str


class GroupLag(_Answer):
    """How far a group is behind: the messages that are not done, and for how many seconds the oldest has been due.

    `seconds` is None if that message cannot be read. `at_most`: there are too many messages of other members of the
    topic group to count them, so it may be less.
    """

    messages: int
    seconds: float | None
    at_most: bool = False


class GroupMessage(_Answer):
    """A message of a group that was looked at without being claimed, as `Group.messages` returns it.

    `key`, `value` and `headers` are in the JSON form of brokers. `deliveries` is how often it was handed out. One that
    rests does so until `deliver_at`; the lease of one in flight still runs for `lease_seconds`. A dead letter has the
    `id` that it has in its own topic, and explains itself in its headers: `reason`, `origin` (the id that it had) and
    `dead_deliveries`.
    """

    id: str
    timestamp: datetime
    key: Any = None
    value: Any = None
    headers: dict[str, Any] = {}
    deliveries: int | None = None
    deliver_at: datetime | None = None
    lease_seconds: float | None = None

    def json(self) -> Any:  # type: ignore[override]
        """Return the value, as `json` of a message does; a value that is no document is in the brokers' JSON form."""
        return self.value

    @property
    def reason(self) -> str | None:
        """Why it is a dead letter; None if it is none."""
        return self.headers.get("braid-dead-reason")

    @property
    def origin(self) -> str | None:
        """The id that a dead letter had before."""
        return self.headers.get("braid-dead-origin")

    @property
    def dead_deliveries(self) -> int | None:
        """The number of deliveries after which it became a dead letter."""
        told = self.headers.get("braid-dead-deliveries")
        return int(told) if isinstance(told, str) and told.isdecimal() else None


class GroupMember(_Answer):
    """A member of a stream group, and the segments that it has."""

    member_id: str
    member_epoch: int
    session_ends_in_seconds: float
    segments: list[int]


class GroupSegment(_Answer):
    """A segment that a stream group is in. Everything below `position` is done. `member_id` has it; None: no member."""

    segment: int
    position: int
    epoch: int
    member_id: str | None
    lag: int


class GroupConsumer(_Answer):
    """A consumer with messages of a queue group now, and how many of its claims wait. None: those without a name."""

    consumer: str | None
    in_flight: int
    waiting: int


class DelayedDeadLetters(_Answer):
    """Messages that a group has given up, and whose dead letters cannot be stored now: it is tried again."""

    messages: int
    reason: str


class GroupDescription(_Answer):
    """A consumer group: its settings, its lag, and counts of messages.

    A stream group has `members` and `segments`; the other counts but `skipped` are those of a queue group. `delayed`
    messages are not due yet, and no part of the lag. `in_flight` messages were handed out, and their leases run.
    `waiting_consumers` wait for messages. `dead` are the dead letters that are open: neither redriven nor discarded;
    `dead_total` messages were ever given up. `expired` ones had expired before any consumer had them; `skipped` ones
    were removed by retention first. `delayed` and `dead_total` are None while a broker of an earlier version
    coordinates the group: then `lag` and `dead` count all. `coordinator` is the broker that runs the group. `consumers`
    are the 100 that have most messages, and `more_consumers` the number of the others. `dead_letters_delayed`: some
    cannot be stored now. `created` says whether this call of `create` has created it, and if it did not, `differs` has
    what it ignored for that: `from`, since a group that exists stays where it is.
    """

    topic: str
    group: str
    settings: dict[str, Any]
    lag: GroupLag
    coordinator: str | None = None
    delayed: int | None = None
    in_flight: int = 0
    waiting_consumers: int = 0
    consumers: list[GroupConsumer] = Field(default_factory=list)
    more_consumers: int = 0
    dead: int = 0
    dead_total: int | None = None
    expired: int = 0
    skipped: int = 0
    dead_letters_delayed: DelayedDeadLetters | None = None
    members: list[GroupMember] = Field(default_factory=list)
    segments: list[GroupSegment] = Field(default_factory=list)
    created: bool = False
    differs: dict[str, SettingDifference] = Field(default_factory=dict)
