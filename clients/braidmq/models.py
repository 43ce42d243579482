"""What the broker tells about topics, brokers and files. Members that a newer broker adds are let pass."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class SegmentLoad(_Answer):
    """How busy a segment is just now, at its owner: what is published, what readers get, what is not stored yet.

    `times_target` is the published rate set against the topic's target, of messages or bytes: whichever is more.
    """

    messages_per_second: float
    bytes_per_second: float
    times_target: float
    read_messages_per_second: float = 0.0
    read_bytes_per_second: float = 0.0
    pending_bytes: int = 0


class Segment(_Answer):
    """One segment of a topic: a half-open range of key slots on a list of brokers, the owner first.

    Offsets from `start_offset` on are kept; `end_offset` is the offset after the last, known once sealed. Of an open
    segment `load` is told where it is known, and `hot_slot` where so much of it is in one slot that no split helps.
    """

    segment: int
    range: tuple[int, int]
    state: Literal["open", "sealed"]
    predecessors: tuple[int, ...] = ()
    successors: tuple[int, ...] = ()
    brokers: tuple[str, ...] = ()
    start_offset: int = 0
    end_offset: int | None = None
    load: SegmentLoad | None = None
    hot_slot: int | None = None


class SegmentLife(_Answer):
    """One segment in the history of a topic: when and why it was opened, when it was sealed, and what it carried.

    `sealed` is None while it is open. It is `removed` once retention has taken all of it. The means per second are of
    its whole life so far; `bytes`, those of its files, are None where the broker that was asked does not know them.
    `load` is the load that it was adopted from.
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


class Topic(_Answer):
    """A topic with its configuration and its segments."""

    topic: str
    config: dict[str, Any]
    version: int
    segments: tuple[Segment, ...]


class TopicSummary(_Answer):
    """A topic in the list of all: its name, how many segments are open, its version."""

    topic: str
    open_segments: int = Field(alias="segments")
    version: int


class Owner(_Answer):
    """The broker that takes a segment's messages; `url` is None while its address is not known."""

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
    """One broker of the cluster. `segments` is how many open ones it owns, where the cluster tells."""

    broker: str
    url: str | None = None
    zone: str | None = None
    version: str | None = None
    state: str
    segments: int | None = None


class BrokerDrain(_Answer):
    """A broker that was asked to hand over what it owns, or to take part again, and how many segments it has."""

    broker: str
    segments: int


class Cluster(_Answer):
    """The brokers, which of them leads, and the transitions under way."""

    cluster: str
    version: str
    leader: str | None
    brokers: tuple[Broker, ...]
    transitions: tuple[dict[str, Any], ...] = ()


class SegmentFile(_Answer):
    """One live Parquet file: the offsets `[base_offset, end_offset)` of a segment.

    `url` is a presigned address where the store can make one; `uri` is the file's own.
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


class ReservedSegment(_Answer):
    """A segment that is reserved for a load: its files go below `prefix` of the store."""

    segment: int
    range: tuple[int, int]
    prefix: str


class ReservedLoad(_Answer):
    """Segments reserved for a load until `expires`; all its messages get its `timestamp`."""

    load: str
    timestamp: datetime
    expires: datetime
    segments: tuple[ReservedSegment, ...]


class LoadedSegment(_Answer):
    """A segment of a committed load."""

    segment: int
    range: tuple[int, int]
    end_offset: int


class CommittedLoad(_Answer):
    """A load that the topic has adopted, as of its `version`."""

    load: str
    version: int
    messages: int
    segments: tuple[LoadedSegment, ...]
