"""What topic.json holds: the shape of one topic, as plain immutable data."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from filer.errors import CorruptFile
from filer.slots import tile_exactly
from filer.topic_config import TopicConfig

FORMAT_VERSION = 1
SegmentStatus = Literal["open", "sealed"]
Reason = Literal["create", "roll", "failover", "delete", "split", "merge", "move", "drain", "schema", "load"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Segment(_Frozen):
    """One segment of a topic. `brokers` are the owner and then the followers; times count from the epoch.

    Once it is sealed, `stored_bytes` are those of all files it has had, as they were stored, and `seal_offset` is the
    base of its seal. Either is None where that is not known. What a broker of a newer version says of it besides is
    kept by those that do not know it: a cluster is upgraded one broker after the other.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    id: int
    start_slot: int
    stop_slot: int
    brokers: tuple[str, ...]
    opened_us: int
    reason: Reason
    predecessors: tuple[int, ...] = ()
    successors: tuple[int, ...] = ()
    state: SegmentStatus = "open"
    start_offset: int = 0
    end_offset: int | None = None
    seal_offset: int | None = None
    stored_bytes: int | None = None
    sealed_us: int | None = None

    @property
    def range(self) -> tuple[int, int]:
        """The half-open slot interval."""
        return self.start_slot, self.stop_slot

    @property
    def owner(self) -> str:
        """The broker that orders its messages."""
        return self.brokers[0]

    @property
    def emptied(self) -> bool:
        """Whether retention has taken every message of a sealed segment."""
        return self.state == "sealed" and self.start_offset >= (self.end_offset or 0)


class Transition(_Frozen):
    """Seal these, open those: the one record under way, which any leader can take up (DESIGN.md §5)."""

    seal: tuple[int, ...]
    open: tuple[Segment, ...]
    reason: Reason
    started_us: int


class Removal(_Frozen):
    """A segment that readers can no longer reach and whose files go a grace period after `since_us`."""

    segment: int
    since_us: int


class TopicState(_Frozen):
    """topic.json. A deleted topic leaves its next segment id and version, so that neither is ever used again."""

    format: int = FORMAT_VERSION
    topic: str
    created_us: int
    version: int
    next_segment: int
    config: TopicConfig
    segments: tuple[Segment, ...]
    transition: Transition | None = None
    removals: tuple[Removal, ...] = ()
    deleted: bool = False

    @property
    def open_segments(self) -> list[Segment]:
        """Open segments by key range."""
        return sorted((s for s in self.segments if s.state == "open"), key=lambda s: s.start_slot)

    def segment(self, segment_id: int) -> Segment | None:
        """The segment of that id, if topic.json still has it."""
        return next((s for s in self.segments if s.id == segment_id), None)

    def to_json(self) -> bytes:
        """The bytes of topic.json."""
        return self.model_dump_json(indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "TopicState":
        """Raises `CorruptFile` where the bytes are not a topic.json of this format."""
        try:
            state = cls.model_validate_json(data)
        except ValueError as error:
            raise CorruptFile(f"topic.json cannot be read: {error}") from error
        if state.format != FORMAT_VERSION:
            raise CorruptFile(f"topic.json is of format {state.format}; this version reads {FORMAT_VERSION}")
        return state


def open_ranges_tile(state: TopicState) -> bool:
    """The open segments of a living topic cover each slot exactly once."""
    return state.deleted or tile_exactly([s.range for s in state.open_segments])


def ids_only_grow(state: TopicState) -> bool:
    """Segment ids are unique, ascending, and below the next one to be given out."""
    ids = [s.id for s in state.segments] + [s.id for s in (state.transition.open if state.transition else ())]
    return ids == sorted(set(ids)) and (not ids or ids[-1] < state.next_segment)


def sealed_segments_end(state: TopicState) -> bool:
    """Exactly the sealed segments have an end offset, not before their start."""
    return all(
        (s.end_offset is not None and s.end_offset >= s.start_offset) if s.state == "sealed" else s.end_offset is None
        for s in state.segments
    )


def transition_seals_open_segments(state: TopicState) -> bool:
    """A transition under way names open segments, and successors of the same slots."""
    if state.transition is None:
        return True
    sealing: list[Segment | None] = [state.segment(i) for i in state.transition.seal]
    if any(s is None or s.state != "open" for s in sealing):
        return False
    remaining = [s.range for s in state.open_segments if s.id not in state.transition.seal]
    return state.transition.reason == "delete" or tile_exactly([*remaining, *(s.range for s in state.transition.open)])


INVARIANTS = (open_ranges_tile, ids_only_grow, sealed_segments_end, transition_seals_open_segments)


def broken_invariants(state: TopicState) -> Sequence[str]:
    """Names of the invariants that a state breaks; checked before every compare-and-swap."""
    return [invariant.__name__ for invariant in INVARIANTS if not invariant(state)]
