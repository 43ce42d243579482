"""Splitting and merging segments as people ask for it: what is wanted, whether it can be, and having it done."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from filer.clock import Clock
from filer.errors import BraidError, InvalidInput, OutcomeUnknown
from filer.topic_config import TopicConfig
from filer.topic_state import Segment, TopicState
from leader.cut_points import SlotLoads, equal_parts
from leader.transitions import Begin, Place, cut_ranges, merging, splitting
from mq.errors import Conflict, NotFound, Repeatable, SegmentNotOpen, TransitionUnderWay

# Each try brings to its end whatever transition it finds.
TRIES = 5


class Arm(Protocol):
    """What carries transitions out."""

    def place(self, topic: str, config: TopicConfig, count: int) -> Place:
        """Who gets each of `count` new segments of a topic."""
        ...

    async def slot_loads(self, topic: str, segment: Segment) -> SlotLoads | None:
        """The load per slot as the segment's owner has seen it; None where it cannot tell, or does not answer."""
        ...

    async def change(self, topic: str, begin: Begin) -> TopicState | None:
        """Begin a transition unless another is under way, and bring the one that is to its end."""
        ...


@dataclass(frozen=True, slots=True)
class Split:
    """A segment is to be cut at these slots; where none are given, into so many parts.

    Those are to share the load that its owner has `seen`; where none is known they are of equal width.
    """

    segment: int
    at: tuple[int, ...] | None = None
    parts: int = 2
    seen: SlotLoads | None = field(default=None, compare=False)

    async def informed(self, arm: Arm, state: TopicState) -> "Split":
        """The same with what is known of the load, if it matters."""
        segment = state.segment(self.segment)
        if self.at is not None or segment is None or segment.state == "sealed":
            return self
        return replace(self, seen=await arm.slot_loads(state.topic, segment))

    def done(self, state: TopicState) -> list[Segment] | None:
        """The successors, where it has been done (also before it was asked for); None where it can be.

        Where no slots were asked for, a split into as many parts is what was: the load has gone on since. Raises what
        speaks against it: `NotFound`, `InvalidInput` for the slots, `SegmentNotOpen`, `Conflict`.
        """
        segment = _found(state, self.segment)
        ranges = self._ranges_asked(segment)
        parts = self.parts if ranges is None else len(ranges)
        if segment.state == "sealed":
            fits = (lambda found: len(found) == parts) if ranges is None else (lambda found: found == ranges)
            return _heirs(state, [segment], fits)
        count = len(state.open_segments) + parts - 1
        if count > state.config.max_segments:
            raise Conflict(
                "segment-limit",
                f"topic {state.topic!r} would have {count} open segments, and max_segments is "
                f"{state.config.max_segments}: raise it, or split into fewer parts",
            )
        return None

    def begun(self, state: TopicState, arm: Arm, *, now_us: int) -> TopicState | None:
        """The state with the transition under way."""
        points = self._points(state, _found(state, self.segment))
        place = arm.place(state.topic, state.config, len(points) + 1)
        return splitting(state, {self.segment: points}, place, now_us=now_us)

    def _ranges_asked(self, segment: Segment) -> list[tuple[int, int]] | None:
        """The successors' ranges where slots were asked for; None for any so many parts, if there can be so many."""
        if self.at is not None:
            return cut_ranges(segment, self.at)
        if self.parts > segment.stop_slot - segment.start_slot:
            raise InvalidInput(
                f"segment {segment.id} has the slots {_shown(segment)}: they cannot be cut into {self.parts} parts"
            )
        return None

    def _points(self, state: TopicState, segment: Segment) -> Sequence[int]:
        """Only to be looked for once it can be done: for tens of thousands of parts the loop waits for some 30 ms."""
        if self.at is not None:
            return self.at
        return equal_parts(self.seen, *segment.range, self.parts, state.config.target)


@dataclass(frozen=True, slots=True)
class Merge:
    """Two neighbours in key order, whichever is named first, are to become one segment."""

    segment: int
    other: int

    async def informed(self, arm: Arm, state: TopicState) -> "Merge":
        """The same: nothing more is to be known."""
        return self

    def done(self, state: TopicState) -> list[Segment] | None:
        """As `Split.done`, of the one successor."""
        left, right = self._pair(state)
        if left.state == right.state == "sealed":
            return _heirs(state, [left, right], lambda found: found == [(left.start_slot, right.stop_slot)])
        for segment in (left, right):
            _check_open(state, segment)
        if left.stop_slot != right.start_slot:
            raise Conflict(
                "not-neighbours",
                f"segments {left.id} and {right.id} of topic {state.topic!r} are not neighbours: they have the slots "
                f"{_shown(left)} and {_shown(right)}",
            )
        if len(state.open_segments) <= state.config.min_segments:
            raise Conflict(
                "segment-limit",
                f"topic {state.topic!r} has {len(state.open_segments)} open segments, and min_segments is "
                f"{state.config.min_segments}: lower it first",
            )
        return None

    def begun(self, state: TopicState, arm: Arm, *, now_us: int) -> TopicState | None:
        """As `Split.begun`."""
        left, right = self._pair(state)
        return merging(state, [(left.id, right.id)], arm.place(state.topic, state.config, 1), now_us=now_us)

    def _pair(self, state: TopicState) -> list[Segment]:
        return sorted((_found(state, self.segment), _found(state, self.other)), key=lambda s: s.start_slot)


async def carry_out(
    arm: Arm, clock: Clock, known: TopicState, asked: Split | Merge
) -> tuple[TopicState, list[Segment]]:
    """Have it done, after whatever transition of the topic is under way; the state then, and the successors.

    `known` is the topic as far as has been heard: the load is asked of whom it names. What has been done already is not
    done again: asking a second time gives the same successors. So it may be stopped anywhere: either topic.json does
    not speak of it yet, or it says what is to be done and whoever finds it so goes on.

    Raises as `Split.done` and `Merge.done`, `TransitionUnderWay` where others go on changing the topic, and
    `Repeatable` where a store or an owner did not answer: it may or may not have begun, and is finished by itself then.
    """
    topic, wanted = known.topic, await asked.informed(arm, known)

    def begin(state: TopicState) -> TopicState | None:
        # Why it cannot be is told afterwards, from the state that stands then: nothing has gone wrong here.
        with contextlib.suppress(BraidError):
            if state.transition is None and wanted.done(state) is None:
                return wanted.begun(state, arm, now_us=clock.now_us())
        return None

    for _ in range(TRIES):
        try:
            state = await arm.change(topic, begin)
        except OutcomeUnknown as error:
            raise Repeatable(error) from error
        if state is None or state.deleted:
            raise NotFound("topic", f"there is no topic {topic!r} any more")
        if (successors := wanted.done(state)) is not None:
            return state, successors
    raise TransitionUnderWay(f"topic {topic!r} goes on changing its shape for other reasons: ask again")


def _found(state: TopicState, segment_id: int) -> Segment:
    segment = state.segment(segment_id)
    if segment is None:
        opened = ", ".join(str(s.id) for s in state.open_segments)
        raise NotFound("segment", f"topic {state.topic!r} has no segment {segment_id}; open: {opened}")
    return segment


def _heirs(
    state: TopicState, sealed: Sequence[Segment], fits: Callable[[list[tuple[int, int]]], bool]
) -> list[Segment]:
    """The successors of all these, if all of them are there and their ranges fit; raises `SegmentNotOpen` otherwise."""
    ids = sealed[0].successors
    heirs = [heir for i in ids if (heir := state.segment(i)) is not None]
    together = all(segment.successors == ids for segment in sealed)
    if not together or len(heirs) < len(ids) or not fits([heir.range for heir in heirs]):
        _check_open(state, sealed[0])
    return heirs


def _check_open(state: TopicState, segment: Segment) -> None:
    if segment.state == "sealed":
        raise SegmentNotOpen(
            f"segment {segment.id} of topic {state.topic!r} is sealed; it is followed by "
            f"{', '.join(map(str, segment.successors))}",
            segment.successors,
        )


def _shown(segment: Segment) -> str:
    return f"[{segment.start_slot}, {segment.stop_slot})"
