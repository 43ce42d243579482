"""Transitions as pure functions of a topic's state: how each one begins and finishes (docs/design.md §5).

Any broker may repeat every step at any time: the record is changed by compare-and-swap, sealing is a conditional put,
and each step first checks whether it was done.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from filer.bulk_load.load_segment import writer_of
from filer.errors import InvalidInput
from filer.slots import equal_ranges
from filer.topic.reservations import adopted, find_load, is_overtaken, without_loads
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import (
    GROUPED_VERSION,
    Grouping,
    Load,
    Membership,
    Reason,
    Removal,
    Segment,
    TopicState,
    Transition,
)

BrokersFor = Callable[[int], tuple[str, ...]]
"""The brokers, owner first, of the new segment with that index."""
Begin = Callable[[TopicState], TopicState | None]
"""Takes a state without a transition and returns one with a transition under way; None to begin nothing."""
_Group = tuple[tuple[Segment, ...], Sequence[tuple[int, int]]]
"""Segments that are sealed together, and the ranges of all their common successors."""
_SHOWN_POINTS = 8


@dataclass(frozen=True, slots=True)
class SealedEnd:
    """The end of a sealed segment, the base offset of its seal, and the bytes of its files as they are stored.

    None if it is not known: a broker of an older version does not report it.
    """

    end_offset: int
    seal_offset: int | None = None
    stored_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NewGroup:
    """The settings of a new topic that is a topic group: its first members, and whether its order is by key alone."""

    topics: tuple[str, ...]
    splittable: bool

    def of_first_segment(self, first_segment: int) -> Grouping:
        """The entry for the group's record."""
        return Grouping(topics=tuple(sorted(set(self.topics))), splittable=self.splittable, first_segment=first_segment)


def new_topic(
    topic: str,
    config: TopicConfig,
    segments: int,
    brokers_for: BrokersFor,
    *,
    now_us: int,
    group: NewGroup | None = None,
) -> TopicState:
    """The first state of a topic: `segments` open segments of equal width."""
    opened = _open(range(segments), equal_ranges(segments), brokers_for, now_us=now_us, reason="create")
    return TopicState(
        topic=topic,
        created_us=now_us,
        version=1,
        next_segment=segments,
        config=config,
        segments=tuple(opened),
        **_marked(group, 0),
    )


def recreated(
    tombstone: TopicState,
    config: TopicConfig,
    segments: int,
    brokers_for: BrokersFor,
    *,
    now_us: int,
    group: NewGroup | None = None,
) -> TopicState:
    """The first state of a topic with the name of a deleted one: ids and version continue from the deleted one's."""
    ids = range(tombstone.next_segment, tombstone.next_segment + segments)
    opened = _open(ids, equal_ranges(segments), brokers_for, now_us=now_us, reason="create")
    return TopicState(
        topic=tombstone.topic,
        created_us=now_us,
        version=tombstone.version + 1,
        next_segment=ids.stop,
        config=config,
        segments=tuple(opened),
        removals=tombstone.removals,
        loads=tombstone.loads,
        first_segment=ids.start,
        **_marked(group, ids.start),
    )


def _marked(group: NewGroup | None, first_segment: int) -> dict[str, Any]:
    if group is None:
        return {}
    return {"format": GROUPED_VERSION, "group": group.of_first_segment(first_segment)}


def new_member(name: str, membership: Membership, *, now_us: int) -> TopicState:
    """The first record of a name that becomes a member of a topic group."""
    return TopicState(
        format=GROUPED_VERSION,
        topic=name,
        created_us=now_us,
        version=1,
        next_segment=0,
        config=TopicConfig(),
        segments=(),
        deleted=True,
        member_of=membership,
    )


def joined(state: TopicState, membership: Membership, over: Membership | None) -> TopicState | None:
    """The record of a deleted topic that becomes a member; None if it cannot, or is one already.

    `over` is the membership that was found in the record; its group is known to be gone for ever. The record keeps the
    files of the topic before that are still to be deleted.
    """
    if not state.deleted or state.member_of not in (None, over) or state.member_of == membership:
        return None
    return state.model_copy(update={"format": GROUPED_VERSION, "group": None, "member_of": membership})


def with_topics(state: TopicState, topics: Iterable[str]) -> TopicState | None:
    """The record of a topic group that these join; None if it has them, or is no group (any more)."""
    if state.group is None or state.deleted:
        return None
    together = tuple(sorted({*state.group.topics, *topics}))
    if together == state.group.topics:
        return None
    return state.model_copy(update={"group": state.group.model_copy(update={"topics": together})})


def begin_replacement(
    state: TopicState, seal: Sequence[int], brokers_for: BrokersFor, reason: Reason, *, now_us: int
) -> TopicState | None:
    """Begin a transition that gives each of these open segments one successor of the same range.

    `brokers_for` gets their indexes in the order of `state.open_segments`. None if another transition is under way or
    none of the segments is open any more.
    """
    sealing = [s for s in state.open_segments if s.id in seal]
    return _with_transition(state, [((s,), [s.range]) for s in sealing], brokers_for, reason, now_us=now_us)


def begin_split(
    state: TopicState, cuts: Mapping[int, Sequence[int]], brokers_for: BrokersFor, *, now_us: int
) -> TopicState | None:
    """Begin a transition that cuts open segments, each at its slots.

    Segments that are no longer open, or whose parts would exceed `max_segments`, are left out. None if no segment is
    left or another transition is under way. `brokers_for` gets the indexes of the successors in the order of their
    slots, segment by segment in the order of `cuts`. Raises `InvalidInput` if cut points lie outside their segment or
    do not ascend.
    """
    room = state.config.max_segments - len(state.open_segments)
    groups: list[_Group] = []
    for segment_id, points in cuts.items():
        segment = state.segment(segment_id)
        if segment is None or segment.state != "open":
            continue
        ranges = cut_ranges(segment, points)
        if len(points) <= room:
            room -= len(points)
            groups.append(((segment,), ranges))
    return _with_transition(state, groups, brokers_for, "split", now_us=now_us)


def begin_merge(
    state: TopicState, pairs: Sequence[tuple[int, int]], brokers_for: BrokersFor, *, now_us: int
) -> TopicState | None:
    """Begin a transition that gives each pair of neighbouring open segments, left and right, one successor.

    Left out are pairs that are not, or no longer, open neighbours, that share a segment with an earlier pair, or that
    would leave fewer than `min_segments`. None if no pair is left or another transition is under way. `brokers_for`
    gets the indexes of the successors in the order of the pairs.
    """
    spare = len(state.open_segments) - state.config.min_segments
    groups: list[_Group] = []
    taken: set[int] = set()
    for left, right in (tuple(map(state.segment, pair)) for pair in pairs):
        if spare <= len(groups):
            break
        if left is None or right is None or not _neighbours(left, right) or taken & {left.id, right.id}:
            continue
        taken |= {left.id, right.id}
        groups.append(((left, right), [(left.start_slot, right.stop_slot)]))
    return _with_transition(state, groups, brokers_for, "merge", now_us=now_us)


def _neighbours(left: Segment, right: Segment) -> bool:
    return left.state == right.state == "open" and left.stop_slot == right.start_slot


def cut_ranges(segment: Segment, points: Sequence[int]) -> list[tuple[int, int]]:
    """The ranges into which these slots cut a segment; raises `InvalidInput` if they cannot."""
    bounds = (segment.start_slot, *points, segment.stop_slot)
    if not points or any(before >= after for before, after in pairwise(bounds)):
        shown = ", ".join(map(str, points[:_SHOWN_POINTS])) + (", …" if len(points) > _SHOWN_POINTS else "")
        raise InvalidInput(
            f"segment {segment.id} has the slots [{segment.start_slot}, {segment.stop_slot}): it cannot be cut at "
            f"{shown or 'no slot'}; name slots within it in ascending order"
        )
    return list(pairwise(bounds))


def _with_transition(
    state: TopicState, groups: Sequence[_Group], brokers_for: BrokersFor, reason: Reason, *, now_us: int
) -> TopicState | None:
    """The state with a record that seals each group and opens its successors; None if that cannot begin now."""
    if state.transition is not None or state.deleted or not groups:
        return None
    ranges = [each for _, successors in groups for each in successors]
    predecessors_of = [tuple(s.id for s in sealed) for sealed, successors in groups for _ in successors]
    ids = state.free_ids(len(ranges))
    opened = [
        successor.model_copy(update={"predecessors": predecessors})
        for successor, predecessors in zip(
            _open(ids, ranges, brokers_for, now_us=now_us, reason=reason), predecessors_of, strict=True
        )
    ]
    seal = tuple(s.id for sealed, _ in groups for s in sealed)
    record = Transition(seal=seal, open=tuple(opened), reason=reason, started_us=now_us)
    return state.model_copy(update={"transition": record, "next_segment": ids.stop})


def begin_deletion(state: TopicState, *, now_us: int) -> TopicState | None:
    """Begin the transition that seals everything and opens nothing; None if that cannot begin now."""
    if state.transition is not None or state.deleted:
        return None
    record = Transition(seal=tuple(s.id for s in state.open_segments), open=(), reason="delete", started_us=now_us)
    return state.model_copy(update={"transition": record})


def begin_adoption(
    state: TopicState, load_id: str, ends: Mapping[int, SealedEnd], brokers_for: BrokersFor, *, now_us: int
) -> TopicState | None:
    """Begin the transition that seals all open segments, adopts the sealed segments of a bulk load, opens successors.

    The successors have the ranges of the segments that were open, because the load says nothing about what is published
    next. `brokers_for` gets their indexes in the order of their slots. Each adopted segment comes after the sealed ones
    that share slots with it, and before such successors. So readers of a key get the messages published before, then
    the load, then those that come after.

    None if another transition is under way, and if the load is not, or no longer, reserved, has been overtaken, or was
    reserved again after its segments were sealed at these ends.
    """
    load = find_load(state, load_id)
    if state.transition is not None or state.deleted or load is None or not load.reserved:
        return None
    if is_overtaken(state, load) or ends.keys() != set(load.segments):
        return None
    sealing = state.open_segments
    ids = state.free_ids(len(sealing), first=load.segments.stop)
    adopting = _adopted_segments(load, sealing, ids, ends, now_us=now_us)
    opened = [
        successor.model_copy(update={"predecessors": _overlapping(successor.range, adopting)})
        for successor in _open(ids, [s.range for s in sealing], brokers_for, now_us=now_us, reason="load")
    ]
    record = Transition(
        seal=tuple(sorted(s.id for s in sealing)),
        open=tuple(opened),
        reason="load",
        started_us=now_us,
        adopt=tuple(adopting),
    )
    return state.model_copy(update={"transition": record, "next_segment": ids.stop})


def _adopted_segments(
    load: Load, before: Sequence[Segment], after: Sequence[int], ends: Mapping[int, SealedEnd], *, now_us: int
) -> list[Segment]:
    """The segments of a load, linked to the segments `before` and to the ids of their successors `after` the load."""
    return [
        Segment(
            id=segment,
            start_slot=slots[0],
            stop_slot=slots[1],
            brokers=(writer_of(load.id),),
            opened_us=now_us,
            reason="load",
            predecessors=_overlapping(slots, before),
            successors=tuple(i for i, s in zip(after, before, strict=True) if _overlap(slots, s.range)),
            state="sealed",
            end_offset=ends[segment].end_offset,
            seal_offset=ends[segment].seal_offset,
            stored_bytes=ends[segment].stored_bytes,
            sealed_us=now_us,
            load=load.id,
        )
        for segment, slots in load.ranges.items()
    ]


def _overlapping(slots: tuple[int, int], segments: Iterable[Segment]) -> tuple[int, ...]:
    return tuple(sorted(s.id for s in segments if _overlap(slots, s.range)))


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def finished(
    state: TopicState,
    record: Transition,
    ends: Mapping[int, SealedEnd],
    *,
    now_us: int,
) -> TopicState | None:
    """The state after a transition whose segments were sealed at `ends`; None if it has already finished."""
    if state.transition != record:
        return None
    segments = with_sealed(state, record, ends, now_us=now_us)
    after = state.model_copy(update={"segments": (*segments, *record.adopt, *record.open), "transition": None})
    if record.adopt:
        after = adopted(after, record.adopt, version=state.version + 1)
    if record.reason == "delete":
        removals = [*state.removals, *(Removal(segment=s.id, since_us=now_us) for s in after.segments)]
        after = after.model_copy(update={"deleted": True, "segments": (), "removals": tuple(removals)})
        after = without_loads(after, now_us=now_us)
    return after


def leaves_out(record: Transition) -> bool:
    """Whether a transition can go on without a segment that cannot be sealed.

    Not a bulk load: it comes after all that was published before. Not a deletion: it seals everything.
    """
    return record.reason not in ("load", "delete")


def without_unsealable(state: TopicState, record: Transition, left_out: Collection[int]) -> TopicState | None:
    """The state whose transition leaves these segments open, as they are; None if it is not that transition any more.

    Their successors are not opened. If a successor would also have followed another segment, it follows only that one,
    in that one's range: so the open segments still tile the slots. Ids of successors that are left out are not used
    again.
    """
    if state.transition != record:
        return None
    ranges = {segment.id: segment.range for segment in state.segments}
    opened = []
    for successor in record.open:
        kept = tuple(each for each in successor.predecessors if each not in left_out)
        if kept == successor.predecessors:
            opened.append(successor)
        elif kept:
            start = min(ranges[each][0] for each in kept)
            stop = max(ranges[each][1] for each in kept)
            opened.append(successor.model_copy(update={"predecessors": kept, "start_slot": start, "stop_slot": stop}))
    seal = tuple(each for each in record.seal if each not in left_out)
    smaller = record.model_copy(update={"seal": seal, "open": tuple(opened)}) if seal else None
    return state.model_copy(update={"transition": smaller})


def with_sealed(state: TopicState, record: Transition, ends: Mapping[int, SealedEnd], *, now_us: int) -> list[Segment]:
    """The segments of the state; those with an end in `ends` are sealed there."""

    def sealed(segment: Segment) -> Segment:
        return segment.model_copy(
            update={
                "state": "sealed",
                "end_offset": ends[segment.id].end_offset,
                "seal_offset": ends[segment.id].seal_offset,
                "stored_bytes": ends[segment.id].stored_bytes,
                "sealed_us": now_us,
                "successors": tuple(s.id for s in (*record.adopt, *record.open) if segment.id in s.predecessors),
            }
        )

    return [sealed(segment) if segment.id in ends else segment for segment in state.segments]


def _open(
    ids: Sequence[int], ranges: Sequence[tuple[int, int]], brokers_for: BrokersFor, *, now_us: int, reason: Reason
) -> list[Segment]:
    return [
        Segment(id=i, start_slot=start, stop_slot=stop, brokers=brokers_for(n), opened_us=now_us, reason=reason)
        for n, (i, (start, stop)) in enumerate(zip(ids, ranges, strict=True))
    ]
