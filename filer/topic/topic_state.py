"""The content of topic.json: the state of one topic, as plain immutable data."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from filer.errors import CorruptFile
from filer.slots import SLOTS, tile_exactly
from filer.topic.given_up import NOTHING_GIVEN_UP, GivenUpRange, GivenUpRanges
from filer.topic.record_check import checked, with_check
from filer.topic.topic_config import TopicConfig

FORMAT_VERSION = 1
GROUPED_VERSION = 2
"""The format of the record of a topic group, and of each of its members. Brokers that know no groups refuse it: they
would write files without the column `_topic`, or create a topic of a member's name."""
_id_of = attrgetter("id")
SegmentStatus = Literal["open", "sealed"]
Reason = Literal["create", "roll", "failover", "delete", "split", "merge", "move", "drain", "schema", "load"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _is_none(value: object) -> bool:
    return value is None


def _is_empty(value: tuple[object, ...]) -> bool:
    return not value


class GivenUp(_Frozen):
    """The messages `[offset, next_offset)` of a segment that are given up, since the object `key` is lost.

    `next_offset` is None if nothing shows how far a damaged last file reached: up to the next file, then. It equals
    `offset` if an empty seal is lost, which held no messages, but the requests of producers. `since_us` is when.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    offset: int
    next_offset: int | None
    key: str
    what: Literal["missing", "damaged"]
    since_us: int


class Segment(_Frozen):
    """One segment of a topic. `brokers` are the owner and then the followers; times count from the epoch.

    Once it is sealed, `stored_bytes` is the size of all files it has had, as they were stored, and `seal_offset` is the
    base of its seal; each is None if it is not known. `load` names the bulk load from which the segment was adopted,
    already sealed. `given_up` are its lost messages that readers no longer wait for. A broker keeps fields that it does
    not know, written by newer ones: a cluster is upgraded one broker after the other.
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
    load: str | None = Field(default=None, exclude_if=_is_none)
    given_up: tuple[GivenUp, ...] = Field(default=(), exclude_if=_is_empty)

    @property
    def range(self) -> tuple[int, int]:
        """The half-open slot interval."""
        return self.start_slot, self.stop_slot

    @property
    def owner(self) -> str:
        """The broker that orders its messages."""
        return self.brokers[0]

    def is_over_at(self, offset: int) -> bool:
        """Whether it is sealed and has no messages from that offset on."""
        return self.end_offset is not None and offset >= self.end_offset

    @property
    def given_up_ranges(self) -> GivenUpRanges:
        """The offsets that are given up, for readers of its files."""
        if not self.given_up:
            return NOTHING_GIVEN_UP
        return GivenUpRanges(
            tuple(
                GivenUpRange(each.offset, each.next_offset)
                for each in self.given_up
                if each.next_offset is None or each.next_offset > each.offset
            )
        )

    @property
    def emptied(self) -> bool:
        """Whether retention has taken every message of a sealed segment."""
        return self.state == "sealed" and self.start_offset >= (self.end_offset or 0)


class Transition(_Frozen):
    """The transition under way: which segments to seal and which to open.

    Any leader can continue it (docs/design.md §5).

    `adopt` are the segments of a bulk load, which come between the two. A broker that does not know a field of this
    must not execute the transition.
    """

    seal: tuple[int, ...]
    open: tuple[Segment, ...]
    reason: Reason
    started_us: int
    adopt: tuple[Segment, ...] = Field(default=(), exclude_if=_is_empty)


class Removal(_Frozen):
    """A segment that readers can no longer reach. Its files are deleted a grace period after `since_us`."""

    segment: int
    since_us: int


class Load(_Frozen):
    """Segments reserved for a bulk load (docs/design.md §10a): ids from `first_segment` on, with ranges of all slots.

    `starts` are the first slots of the ranges. All its messages have the timestamp `reserved_us`. The load is in one of
    three states: adopted by the topic.json of that `version`, with these `ends` of its segments; `abandoned`; or
    reserved until `expires_us`.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    first_segment: int
    starts: tuple[int, ...]
    reserved_us: int
    expires_us: int
    abandoned: bool = False
    version: int | None = None
    ends: tuple[int, ...] = ()

    @property
    def segments(self) -> range:
        """The ids of its segments."""
        return range(self.first_segment, self.first_segment + len(self.starts))

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """The slot range of each of its segments."""
        return dict(zip(self.segments, pairwise((*self.starts, SLOTS)), strict=True))

    @property
    def reserved(self) -> bool:
        """Whether it may yet be adopted."""
        return self.version is None and not self.abandoned


class Grouping(_Frozen):
    """What makes a topic a topic group (docs/design.md §10): each message names the topic of `topics` it belongs to.

    `topics` ascend; none ever leaves. `first_segment` is the id of the first segment that the group opened: as ids are
    never used again, it distinguishes this group from all others that have had, or will have, its name. Only a
    `splittable` group has more than one open segment.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    topics: tuple[str, ...]
    splittable: bool
    first_segment: int


class Membership(_Frozen):
    """In the record of a name without segments of its own: it is a member of that topic group.

    It counts as long as the group with that `first_segment` is there. Once that group is deleted, it never counts
    again, and the name is as free as that of a deleted topic. So one compare-and-swap, of its own record, deletes a
    group.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    group: str
    first_segment: int


class TopicState(_Frozen):
    """topic.json. A deleted topic leaves its next segment id and version, so that neither is ever used again.

    Fields written by newer brokers are kept, as in a segment. A change that older brokers must not ignore needs a new
    `format`. A member of a topic group has a record like that of a deleted topic, since it has no segments of its own,
    and `member_of` besides.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    format: int = FORMAT_VERSION
    topic: str
    created_us: int
    version: int
    next_segment: int
    config: TopicConfig
    segments: tuple[Segment, ...]
    transition: Transition | None = None
    removals: tuple[Removal, ...] = ()
    loads: tuple[Load, ...] = Field(default=(), exclude_if=_is_empty)
    deleted: bool = False
    group: Grouping | None = Field(default=None, exclude_if=_is_none)
    member_of: Membership | None = Field(default=None, exclude_if=_is_none)
    first_segment: int | None = Field(default=None, exclude_if=_is_none)
    """The id of the first segment of a topic that was created again: lower ids are of earlier topics of its name."""

    @property
    def begins_at(self) -> int:
        """No segment of this very topic has a lower id. 0 if nothing shows that another topic had its name before.

        If a broker of an earlier version has created the topic again, the segments that it opened then show it, as long
        as one of them is there: a reader of this topic has been in that segment, or in one behind it.
        """
        if self.first_segment is not None:
            return self.first_segment
        if self.group is not None:
            return self.group.first_segment
        return min((segment.id for segment in self.segments if segment.reason == "create"), default=0)

    @property
    def is_grouped(self) -> bool:
        """Whether it is a topic group, so that its messages name the members they belong to."""
        return self.group is not None

    def has_member(self, membership: Membership) -> bool:
        """Whether this is the record of the very group that the membership means, and the group is there."""
        return (
            not self.deleted
            and self.group is not None
            and (self.topic, self.group.first_segment) == (membership.group, membership.first_segment)
        )

    @property
    def open_segments(self) -> list[Segment]:
        """The open segments, sorted by key range."""
        return sorted((s for s in self.segments if s.state == "open"), key=lambda s: s.start_slot)

    def segment(self, segment_id: int) -> Segment | None:
        """The segment of that id, if topic.json still has it."""
        # The ids ascend (`ids_only_grow`), and there may be thousands.
        position = bisect_left(self.segments, segment_id, key=_id_of)
        found = self.segments[position] if position < len(self.segments) else None
        return found if found is not None and found.id == segment_id else None

    def free_ids(self, count: int, *, first: int | None = None) -> range:
        """The next free segment ids, from `first` on if that is given; none of them is reserved for a bulk load."""
        begin = self.next_segment if first is None else first
        for load in self.loads:
            if begin < load.segments.stop and load.first_segment < begin + count:
                begin = load.segments.stop
        return range(begin, begin + count)

    def to_json(self) -> bytes:
        """The bytes of topic.json, with its check."""
        return with_check(self.model_dump_json(indent=1).encode())

    @classmethod
    def from_json(cls, data: bytes, *, key: str = "topic.json") -> "TopicState":
        """The state from the bytes of topic.json.

        Raises `CorruptFile` with `key` if they do not fit their check or are not of this format.
        """
        return cls.from_content(checked(data, key=key, first="format")[0], key=key)

    @classmethod
    def from_content(cls, content: Mapping[str, Any], *, key: str) -> "TopicState":
        """As `from_json`, from the content of topic.json without its check."""
        try:
            state = cls.model_validate(content)
        except ValueError as error:
            raise CorruptFile(f"{key} cannot be read: {error}", key=key) from error
        if state.format not in (FORMAT_VERSION, GROUPED_VERSION):
            raise CorruptFile(
                f"{key} is of format {state.format}; this version reads {FORMAT_VERSION} and {GROUPED_VERSION}", key=key
            )
        return state


def has_given_up_seal(segment: Segment) -> bool:
    """Whether the segment's seal, which held no messages, is given up."""
    return any(each.offset == each.next_offset == segment.seal_offset for each in segment.given_up)


def published_before(segment: Segment, known: Mapping[int, Segment]) -> list[Segment]:
    """The predecessors of a segment that owners wrote.

    A predecessor from a bulk load is replaced by its own predecessors.

    Only segments in `known`, by id.
    """
    waiting, seen = list(segment.predecessors), set[int]()
    found: list[Segment] = []
    while waiting:
        each = waiting.pop(0)
        before = None if each in seen else known.get(each)
        seen.add(each)
        if before is not None and before.load is not None:
            waiting += before.predecessors
        elif before is not None:
            found.append(before)
    return found


def open_ranges_tile(state: TopicState) -> bool:
    """The open segments of a topic that is not deleted cover each slot exactly once."""
    return state.deleted or tile_exactly([s.range for s in state.open_segments])


def ids_only_grow(state: TopicState) -> bool:
    """Segment ids are unique, ascending, and below the next free one."""
    coming = (*state.transition.adopt, *state.transition.open) if state.transition else ()
    ids = [s.id for s in (*state.segments, *coming)]
    return ids == sorted(set(ids)) and (not ids or ids[-1] < state.next_segment)


def sealed_segments_end(state: TopicState) -> bool:
    """The sealed segments, and no others, have an end offset, not before their start; adopted segments are sealed."""
    adopted = state.transition.adopt if state.transition else ()
    return all(s.state == "sealed" for s in adopted) and all(
        (s.end_offset is not None and s.end_offset >= s.start_offset) if s.state == "sealed" else s.end_offset is None
        for s in (*state.segments, *adopted)
    )


def transition_seals_open_segments(state: TopicState) -> bool:
    """A transition seals open segments and opens successors of the same slots; adopted segments tile all slots."""
    if state.transition is None:
        return True
    sealing: list[Segment | None] = [state.segment(i) for i in state.transition.seal]
    if any(s is None or s.state != "open" for s in sealing):
        return False
    if state.transition.adopt and not tile_exactly([s.range for s in state.transition.adopt]):
        return False
    remaining = [s.range for s in state.open_segments if s.id not in state.transition.seal]
    return state.transition.reason == "delete" or tile_exactly([*remaining, *(s.range for s in state.transition.open)])


def reserved_ids_are_kept(state: TopicState) -> bool:
    """No id is reserved twice, and a reserved id is a segment only if its load was adopted, or is about to be."""
    bounds = [bound for load in state.loads for bound in (load.segments.start, load.segments.stop)]
    coming = (*state.transition.adopt, *state.transition.open) if state.transition else ()
    used = {segment.id: segment.load for segment in (*state.segments, *coming)}
    return (
        bounds == sorted(bounds)
        and all(tile_exactly(list(load.ranges.values())) for load in state.loads)
        and all(used.get(i, load.id) == load.id for load in state.loads for i in load.segments)
        and not any(i in used for load in state.loads if load.abandoned for i in load.segments)
    )


def given_up_is_within(state: TopicState) -> bool:
    """The given-up ranges of a segment ascend, do not overlap, and do not reach beyond a known end."""
    for segment in state.segments:
        reached = 0
        for each in segment.given_up:
            end = each.offset if each.next_offset is None else each.next_offset
            if each.offset < reached or end < each.offset:
                return False
            if segment.end_offset is not None and end > segment.end_offset:
                return False
            reached = end
    return True


def removed_segments_are_gone(state: TopicState) -> bool:
    """No segment whose files will be deleted can be reached, neither now nor after the transition."""
    coming = (*state.transition.adopt, *state.transition.open) if state.transition else ()
    return {removal.segment for removal in state.removals}.isdisjoint(s.id for s in (*state.segments, *coming))


def groups_are_marked(state: TopicState) -> bool:
    """Records about topic groups have the format that says so; a member is in one group, and has no segments."""
    if state.member_of is not None and (not state.deleted or state.group is not None):
        return False
    if state.group is not None and list(state.group.topics) != sorted(set(state.group.topics)):
        return False
    is_marked = state.format == GROUPED_VERSION
    return is_marked == (state.group is not None or state.member_of is not None)


def only_splittable_groups_split(state: TopicState) -> bool:
    """Order holds across the topics of a group that is not splittable, so one segment has all of it."""
    coming = len(state.transition.open) - len(state.transition.seal) if state.transition else 0
    is_whole = state.group is None or state.group.splittable or state.deleted
    return is_whole or len(state.open_segments) + max(coming, 0) <= 1


INVARIANTS = (
    open_ranges_tile,
    ids_only_grow,
    sealed_segments_end,
    transition_seals_open_segments,
    reserved_ids_are_kept,
    given_up_is_within,
    removed_segments_are_gone,
    groups_are_marked,
    only_splittable_groups_split,
)


def broken_invariants(state: TopicState) -> Sequence[str]:
    """The names of the invariants that a state breaks; checked before every compare-and-swap."""
    return [invariant.__name__ for invariant in INVARIANTS if not invariant(state)]
