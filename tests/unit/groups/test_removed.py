"""What retention has removed before a group got to it, and how a stream group passes by it."""

from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from groups.records import Done, Entered
from groups.removed import removed_from
from groups.stream.frontier import advance_of

ALL = {"start_slot": 0, "stop_slot": 65536, "brokers": ("b",), "opened_us": 0, "reason": "roll"}


def sealed(number: int, end: int, *successors: int, start: int = 0, predecessors: tuple[int, ...] = ()) -> Segment:
    return Segment(
        id=number,
        state="sealed",
        start_offset=start,
        end_offset=end,
        successors=successors,
        predecessors=predecessors,
        **ALL,
    )


def state_of(*segments: Segment) -> TopicState:
    last = Segment(id=9, predecessors=(3,), start_offset=4, **ALL)
    return TopicState(
        topic="t", created_us=0, version=1, next_segment=10, config=TopicConfig(), segments=(*segments, last)
    )


def test_what_lies_before_the_start_of_a_segment_is_removed() -> None:
    state = state_of(sealed(3, 8, 9, start=5))
    assert removed_from(state, {3: 2}, {}) == [Done(3, 2, 5)]
    assert removed_from(state, {3: 6}, {}) == [] and removed_from(state, {12: 0}, {}) == []


def test_of_whole_segments_the_history_tells() -> None:
    """Also of those that the group never came to, and of what is left of the last one."""
    lives = {2: sealed(2, 7, 3), 3: sealed(3, 8, 9)}
    assert removed_from(state_of(), {2: 5}, lives) == [Done(2, 5, 7), Done(3, 0, 8), Done(9, 0, 4)]
    assert removed_from(state_of(), {2: 7}, lives) == [Done(3, 0, 8), Done(9, 0, 4)]
    assert removed_from(state_of(), {2: 5}, {}) == []


def test_what_was_drained_before_is_not_removed() -> None:
    """One of two successors was passed through; its own successor is among the positions."""
    lives = {1: sealed(1, 7, 2, 3), 2: sealed(2, 6, 8), 3: sealed(3, 8, 9)}
    assert removed_from(state_of(), {1: 7, 8: 0}, lives) == [Done(3, 0, 8), Done(9, 0, 4)]


def test_a_stream_group_tells_all_of_it_and_goes_on_behind() -> None:
    lives = {2: sealed(2, 7, 3), 3: sealed(3, 8, 9)}
    found = advance_of(state_of(), {2: 5}, lives)
    assert found.skipped == [Done(2, 5, 7), Done(3, 0, 8), Done(9, 0, 4)]
    assert sorted(found.entered) == [Entered(3, 0), Entered(9, 0)] and sorted(found.left) == [2, 3]
    # Without the history it goes on in the same place.
    unknown = advance_of(state_of(), {2: 5})
    assert (unknown.entered, unknown.left, unknown.skipped) == ([Entered(9, 4)], [2], [])
