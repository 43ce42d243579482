"""Transitions as pure functions of a topic's state, and the runner that carries one out (DESIGN.md §5).

Every step may be repeated by anyone at any time: the record is changed by compare-and-swap, sealing is a
conditional put, and each step first looks whether it has been done.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from filer.catalogue import Catalogue, TopicRecord
from filer.clock import Clock
from filer.errors import InvalidInput
from filer.load_files import writer_of
from filer.loads import adopted, find_load, is_overtaken, without_loads
from filer.slots import equal_ranges
from filer.topic_config import TopicConfig
from filer.topic_state import Load, Reason, Removal, Segment, TopicState, Transition

Place = Callable[[int], tuple[str, ...]]
"""Brokers (owner first) for the n-th of the segments to be opened."""
Begin = Callable[[TopicState], TopicState | None]
"""A state with a transition under way from one without; None where there is nothing to begin."""
_Group = tuple[tuple[Segment, ...], Sequence[tuple[int, int]]]
"""Segments that are sealed together, and the ranges of all their successors."""
_SHOWN_POINTS = 8


@dataclass(frozen=True, slots=True)
class SealedEnd:
    """Where a sealed segment ends, the base of its seal, and the bytes of its files as they were stored.

    None where nobody has told.
    """

    end_offset: int
    seal_offset: int | None = None
    stored_bytes: int | None = None


class Sealer(Protocol):
    """The transport by which a leader has a segment sealed."""

    async def seal(self, topic: str, segment: Segment, state: TopicState) -> SealedEnd:
        """Have the segment sealed by its owner, or in its stead where it is gone."""
        ...


def new_topic(topic: str, config: TopicConfig, segments: int, place: Place, *, now_us: int) -> TopicState:
    """The first state of a topic: `segments` open segments of equal width."""
    opened = _open(range(segments), equal_ranges(segments), place, now_us=now_us, reason="create")
    return TopicState(
        topic=topic,
        created_us=now_us,
        version=1,
        next_segment=segments,
        config=config,
        segments=tuple(opened),
    )


def recreated(tombstone: TopicState, config: TopicConfig, segments: int, place: Place, *, now_us: int) -> TopicState:
    """A topic created again under the name of a deleted one: ids and version go on from where it left."""
    ids = range(tombstone.next_segment, tombstone.next_segment + segments)
    opened = _open(ids, equal_ranges(segments), place, now_us=now_us, reason="create")
    return TopicState(
        topic=tombstone.topic,
        created_us=now_us,
        version=tombstone.version + 1,
        next_segment=ids.stop,
        config=config,
        segments=tuple(opened),
        removals=tombstone.removals,
        loads=tombstone.loads,
    )


def replacing(
    state: TopicState, seal: Sequence[int], place: Place, reason: Reason, *, now_us: int
) -> TopicState | None:
    """Begin a transition that gives each of these open segments one successor of the same range.

    None where another transition is under way or none of them is open any more.
    """
    sealing = [s for s in state.open_segments if s.id in seal]
    return _begun(state, [((s,), [s.range]) for s in sealing], place, reason, now_us=now_us)


def splitting(state: TopicState, cuts: Mapping[int, Sequence[int]], place: Place, *, now_us: int) -> TopicState | None:
    """Begin a transition that cuts open segments, each at its slots, into successors of the ranges between.

    Segments that are open no more, or whose parts `max_segments` has no room for, are left out; None where none is left
    or another transition is under way. `place` is asked for the successors in the order of their slots, segment by
    segment in the order of `cuts`. Raises `InvalidInput` where a cut point does not lie within its segment, or they do
    not ascend.
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
    return _begun(state, groups, place, "split", now_us=now_us)


def merging(state: TopicState, pairs: Sequence[tuple[int, int]], place: Place, *, now_us: int) -> TopicState | None:
    """Begin a transition that gives each pair of neighbouring open segments, left and right, one successor.

    Pairs that are not (or no longer) open neighbours, share a segment with one before, or would leave fewer than
    `min_segments` are left out; None where none is left or another transition is under way. `place` is asked for the
    successors in the order of the pairs.
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
    return _begun(state, groups, place, "merge", now_us=now_us)


def _neighbours(left: Segment, right: Segment) -> bool:
    return left.state == right.state == "open" and left.stop_slot == right.start_slot


def cut_ranges(segment: Segment, points: Sequence[int]) -> list[tuple[int, int]]:
    """The ranges into which these slots cut a segment; raises `InvalidInput` where they cannot."""
    bounds = (segment.start_slot, *points, segment.stop_slot)
    if not points or any(before >= after for before, after in pairwise(bounds)):
        shown = ", ".join(map(str, points[:_SHOWN_POINTS])) + (", …" if len(points) > _SHOWN_POINTS else "")
        raise InvalidInput(
            f"segment {segment.id} has the slots [{segment.start_slot}, {segment.stop_slot}): it cannot be cut at "
            f"{shown or 'no slot'}; name slots within it in ascending order"
        )
    return list(pairwise(bounds))


def _begun(
    state: TopicState, groups: Sequence[_Group], place: Place, reason: Reason, *, now_us: int
) -> TopicState | None:
    """The state with a record that seals each group and opens its successors; None where that cannot begin now."""
    if state.transition is not None or state.deleted or not groups:
        return None
    ranges = [each for _, successors in groups for each in successors]
    heritage = [tuple(s.id for s in sealed) for sealed, successors in groups for _ in successors]
    ids = state.free_ids(len(ranges))
    opened = [
        successor.model_copy(update={"predecessors": predecessors})
        for successor, predecessors in zip(
            _open(ids, ranges, place, now_us=now_us, reason=reason), heritage, strict=True
        )
    ]
    seal = tuple(s.id for sealed, _ in groups for s in sealed)
    record = Transition(seal=seal, open=tuple(opened), reason=reason, started_us=now_us)
    return state.model_copy(update={"transition": record, "next_segment": ids.stop})


def deleting(state: TopicState, *, now_us: int) -> TopicState | None:
    """Begin the transition that seals everything and opens nothing; None where that cannot begin now."""
    if state.transition is not None or state.deleted:
        return None
    record = Transition(seal=tuple(s.id for s in state.open_segments), open=(), reason="delete", started_us=now_us)
    return state.model_copy(update={"transition": record})


def loading(
    state: TopicState, load_id: str, ends: Mapping[int, SealedEnd], place: Place, *, now_us: int
) -> TopicState | None:
    """Begin the transition that seals all that is open, adopts the sealed segments of a load, and opens successors.

    Those have the ranges of what was open, on the same brokers where `place` says so (it is asked in the order of their
    slots): a load says nothing of what is published next. Each segment comes before those that share slots with it, so
    readers of a key have what was published before, then the load, then what comes after. None where another transition
    is under way, and where the load is not reserved (any more), has been overtaken, or was reserved anew since its
    segments were sealed at those ends.
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
        successor.model_copy(update={"predecessors": _sharing(successor.range, adopting)})
        for successor in _open(ids, [s.range for s in sealing], place, now_us=now_us, reason="load")
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
    """The segments of a load, between those that are open, in the order of their slots, and their successors' ids."""
    return [
        Segment(
            id=segment,
            start_slot=slots[0],
            stop_slot=slots[1],
            brokers=(writer_of(load.id),),
            opened_us=now_us,
            reason="load",
            predecessors=_sharing(slots, before),
            successors=tuple(i for i, s in zip(after, before, strict=True) if _share(slots, s.range)),
            state="sealed",
            end_offset=ends[segment].end_offset,
            seal_offset=ends[segment].seal_offset,
            stored_bytes=ends[segment].stored_bytes,
            sealed_us=now_us,
            load=load.id,
        )
        for segment, slots in load.ranges.items()
    ]


def _sharing(slots: tuple[int, int], segments: Iterable[Segment]) -> tuple[int, ...]:
    return tuple(sorted(s.id for s in segments if _share(slots, s.range)))


def _share(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def finished(
    state: TopicState,
    record: Transition,
    ends: Mapping[int, SealedEnd],
    *,
    now_us: int,
) -> TopicState | None:
    """The state after a transition whose segments have been sealed at `ends`; None where it is over already."""
    if state.transition != record:
        return None
    segments = _with_sealed(state, record, ends, now_us=now_us)
    after = state.model_copy(update={"segments": (*segments, *record.adopt, *record.open), "transition": None})
    if record.adopt:
        after = adopted(after, record.adopt, version=state.version + 1)
    if record.reason == "delete":
        removals = [*state.removals, *(Removal(segment=s.id, since_us=now_us) for s in after.segments)]
        after = after.model_copy(update={"deleted": True, "segments": (), "removals": tuple(removals)})
        after = without_loads(after, now_us=now_us)
    return after


def _with_sealed(state: TopicState, record: Transition, ends: Mapping[int, SealedEnd], *, now_us: int) -> list[Segment]:
    """The segments of the state, those that have an end sealed."""

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
    ids: Sequence[int], ranges: Sequence[tuple[int, int]], place: Place, *, now_us: int, reason: Reason
) -> list[Segment]:
    return [
        Segment(id=i, start_slot=start, stop_slot=stop, brokers=place(n), opened_us=now_us, reason=reason)
        for n, (i, (start, stop)) in enumerate(zip(ids, ranges, strict=True))
    ]


class TransitionRunner:
    """Carries out transitions, one at a time per topic, from whatever step they have got to."""

    def __init__(self, catalogue: Catalogue, sealer: Sealer, clock: Clock) -> None:
        self._catalogue, self._sealer, self._clock = catalogue, sealer, clock

    async def run(self, topic: str, begin: Callable[[TopicState], TopicState | None]) -> TopicState | None:
        """Begin a transition (unless `begin` has nothing to do) and bring it, or the one found, to its end.

        None where there is no such topic. Safe to stop at any line: the record in topic.json says what is to be
        done, and whoever takes it up next repeats it from the start without harm.
        """
        found = await self._catalogue.change_record(topic, begin)
        return None if found is None else await self.resume(found)

    async def resume(self, found: TopicRecord) -> TopicState | None:
        """Finish the transition that the record tells of, if any; the state after it.

        While segments are sealed publishers wait, so the record is not read again before it is changed: where others
        have changed it meanwhile the store takes nothing, and then it is.
        """
        state, record = found.state, found.state.transition
        if record is None:
            return state
        sealing = [s for s in state.segments if s.id in record.seal]
        sealed = await asyncio.gather(*(self._sealer.seal(state.topic, s, state) for s in sealing))
        ends = {segment.id: end for segment, end in zip(sealing, sealed, strict=True)}
        now_us = self._clock.now_us()
        if record.reason == "delete":
            # Before topic.json forgets them. Whoever stops here leaves the transition under way: the next one finds
            # what is written, and writes the same again.
            leaving = _with_sealed(state, record, ends, now_us=now_us)
            await self._catalogue.write_history(state.topic, leaving)

        def finish(newest: TopicState) -> TopicState | None:
            return finished(newest, record, ends, now_us=now_us)

        after = await self._catalogue.change_record(state.topic, finish, known=found)
        return None if after is None else after.state
