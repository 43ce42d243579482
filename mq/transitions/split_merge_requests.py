"""Splits and merges that users request: checks them and carries them out."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from filer.clock import Clock
from filer.errors import BraidError, InvalidInput, OutcomeUnknown
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from leader.policy.cut_points import SlotTraffic, equal_parts
from leader.transitions import Begin, BrokersFor, begin_merge, begin_split, cut_ranges
from mq.base.errors import Conflict, NotFound, Repeatable, SegmentNotOpen, TransitionUnderWay

TRIES = 5
"""Each try finishes the transition that it finds."""


class Executor(Protocol):
    """Carries transitions out (`TransitionExecutor`)."""

    async def slot_traffic(self, topic: str, segment: Segment) -> SlotTraffic | None:
        """Return the traffic per slot as the segment's owner counts it; None if it does not know or answer."""
        ...

    async def change(self, topic: str, begin: Begin) -> TopicState | None:
        """Begin a transition unless another one is under way, and finish the one that is."""
        ...


class Placement(Protocol):
    """Assigns brokers to new segments (`SegmentPlacement`)."""

    def brokers_for(self, topic: str, config: TopicConfig, count: int) -> BrokersFor:
        """Return the brokers of each of `count` new segments of a topic."""
        ...


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """A request to cut a segment at the slots `at`, or, if that is None, into `parts` parts.

    The parts share the segment's traffic evenly, if `slot_traffic` is known; else they have equal widths.
    """

    segment: int
    at: tuple[int, ...] | None = None
    parts: int = 2
    slot_traffic: SlotTraffic | None = field(default=None, compare=False)

    async def with_traffic(self, executor: Executor, state: TopicState) -> "SplitRequest":
        """Return the same request with the segment's traffic per slot, if the cut depends on it."""
        segment = state.segment(self.segment)
        if self.at is not None or segment is None or segment.state == "sealed":
            return self
        return replace(self, slot_traffic=await executor.slot_traffic(state.topic, segment))

    def successors(self, state: TopicState) -> list[Segment] | None:
        """Return the successors if the split has been done, even before this request; None if it has not.

        If the request names no slots, any split into as many parts counts: the traffic has changed since. Raises the
        reason why the split is impossible: `NotFound`, `InvalidInput` for the slots, `SegmentNotOpen`, `Conflict`.
        """
        segment = _find(state, self.segment)
        ranges = self._requested_ranges(segment)
        parts = self.parts if ranges is None else len(ranges)
        if segment.state == "sealed":
            fits = (lambda found: len(found) == parts) if ranges is None else (lambda found: found == ranges)
            return _successors(state, [segment], fits)
        count = len(state.open_segments) + parts - 1
        if count > state.config.max_segments:
            raise Conflict(
                "segment-limit",
                f"topic {state.topic!r} would have {count} open segments, and max_segments is "
                f"{state.config.max_segments}: raise it, or split into fewer parts",
            )
        return None

    def begin(self, state: TopicState, placement: Placement, *, now_us: int) -> TopicState | None:
        """Return the state with the transition under way; None if it cannot begin now."""
        points = self._cut_points(state, _find(state, self.segment))
        brokers_for = placement.brokers_for(state.topic, state.config, len(points) + 1)
        return begin_split(state, {self.segment: points}, brokers_for, now_us=now_us)

    def _requested_ranges(self, segment: Segment) -> list[tuple[int, int]] | None:
        """Return the successors' ranges if slots were asked for, else None. Raises `InvalidInput` for too few slots."""
        if self.at is not None:
            return cut_ranges(segment, self.at)
        if self.parts > segment.stop_slot - segment.start_slot:
            raise InvalidInput(
                f"segment {segment.id} has the slots {_range_text(segment)}: they cannot be cut into {self.parts} parts"
            )
        return None

    def _cut_points(self, state: TopicState, segment: Segment) -> Sequence[int]:
        """Return the slots to cut at. Call it only once the split is possible: for tens of thousands it takes 30 ms."""
        if self.at is not None:
            return self.at
        return equal_parts(self.slot_traffic, *segment.range, self.parts, state.config.target)


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """A request to make one segment of two neighbours, named in any order."""

    segment: int
    other: int

    async def with_traffic(self, executor: Executor, state: TopicState) -> "MergeRequest":
        """Return the same request: a merge does not depend on traffic."""
        return self

    def successors(self, state: TopicState) -> list[Segment] | None:
        """As `SplitRequest.successors`: the one successor."""
        left, right = self._pair(state)
        if left.state == right.state == "sealed":
            return _successors(state, [left, right], lambda found: found == [(left.start_slot, right.stop_slot)])
        for segment in (left, right):
            _check_open(state, segment)
        if left.stop_slot != right.start_slot:
            raise Conflict(
                "not-neighbours",
                f"segments {left.id} and {right.id} of topic {state.topic!r} are not neighbours: they have the slots "
                f"{_range_text(left)} and {_range_text(right)}",
            )
        if len(state.open_segments) <= state.config.min_segments:
            raise Conflict(
                "segment-limit",
                f"topic {state.topic!r} has {len(state.open_segments)} open segments, and min_segments is "
                f"{state.config.min_segments}: lower it first",
            )
        return None

    def begin(self, state: TopicState, placement: Placement, *, now_us: int) -> TopicState | None:
        """As `SplitRequest.begin`."""
        left, right = self._pair(state)
        brokers_for = placement.brokers_for(state.topic, state.config, 1)
        return begin_merge(state, [(left.id, right.id)], brokers_for, now_us=now_us)

    def _pair(self, state: TopicState) -> list[Segment]:
        return sorted((_find(state, self.segment), _find(state, self.other)), key=lambda s: s.start_slot)


async def carry_out(
    executor: Executor, placement: Placement, clock: Clock, known: TopicState, request: SplitRequest | MergeRequest
) -> tuple[TopicState, list[Segment]]:
    """Carry a request out, after any transition that is under way. Returns the state after that and the successors.

    `known` is the topic's state as far as this broker knows it: the owners that it names are asked for their traffic. A
    request that was carried out before is not carried out again: it gets the same successors. So this may be stopped
    anywhere: either topic.json does not mention the transition yet, or it names the steps, and any broker that finds
    them goes on.

    Raises as `SplitRequest.successors` and `MergeRequest.successors`; `TransitionUnderWay` if other transitions keep
    changing the topic; `Repeatable` if a store or an owner did not answer: the transition may or may not have begun
    then, and if it has, it finishes by itself.
    """
    topic, wanted = known.topic, await request.with_traffic(executor, known)

    def begin(state: TopicState) -> TopicState | None:
        # The reason why it is impossible is raised below, from the state after the change: nothing has failed here.
        with contextlib.suppress(BraidError):
            if state.transition is None and wanted.successors(state) is None:
                return wanted.begin(state, placement, now_us=clock.now_us())
        return None

    for _ in range(TRIES):
        try:
            state = await executor.change(topic, begin)
        except OutcomeUnknown as error:
            raise Repeatable(error) from error
        if state is None or state.deleted:
            raise NotFound("topic", f"there is no topic {topic!r} any more")
        if (successors := wanted.successors(state)) is not None:
            return state, successors
    raise TransitionUnderWay(f"other transitions keep changing topic {topic!r}: repeat the request later")


def _find(state: TopicState, segment_id: int) -> Segment:
    segment = state.segment(segment_id)
    if segment is None:
        opened = ", ".join(str(s.id) for s in state.open_segments)
        raise NotFound("segment", f"topic {state.topic!r} has no segment {segment_id}; open: {opened}")
    return segment


def _successors(
    state: TopicState, sealed: Sequence[Segment], fits: Callable[[list[tuple[int, int]]], bool]
) -> list[Segment]:
    """Return the successors of all these segments. Raises `SegmentNotOpen` if some are missing or do not fit."""
    ids = sealed[0].successors
    found = [successor for i in ids if (successor := state.segment(i)) is not None]
    together = all(segment.successors == ids for segment in sealed)
    if not together or len(found) < len(ids) or not fits([successor.range for successor in found]):
        _check_open(state, sealed[0])
    return found


def _check_open(state: TopicState, segment: Segment) -> None:
    if segment.state == "sealed":
        raise SegmentNotOpen(
            f"segment {segment.id} of topic {state.topic!r} is sealed; it is followed by "
            f"{', '.join(map(str, segment.successors))}",
            segment.successors,
        )


def _range_text(segment: Segment) -> str:
    return f"[{segment.start_slot}, {segment.stop_slot})"
