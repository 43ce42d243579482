"""What retention takes: pure decisions over a topic's state and its indexes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.topic.positions import advance, check_positions, earliest
from filer.topic.topic_config import TopicConfig, parse_config
from filer.topic.topic_state import GivenUp, Removal, Segment, TopicState, broken_invariants
from filer.upkeep.retention import (
    plan_floors,
    plan_retention,
    removable,
    with_starts,
    without_removal,
    without_segments,
)
from tests.support.topic.lineages import lineages

NOW_US = 1_000_000_000


def segment(
    number: int,
    *,
    sealed: bool = False,
    start: int = 0,
    end: int = 0,
    predecessors: Sequence[int] = (),
    successors: Sequence[int] = (),
):
    return Segment(
        id=number,
        start_slot=0,
        stop_slot=65_536,
        brokers=("b",),
        opened_us=1,
        reason="roll",
        predecessors=tuple(predecessors),
        successors=tuple(successors),
        state="sealed" if sealed else "open",
        start_offset=start,
        end_offset=end if sealed else None,
        sealed_us=NOW_US - 50_000_000 if sealed else None,
    )


def topic(*segments: Segment, **retention: float | None) -> TopicState:
    config = parse_config({"retention": retention}) if retention else TopicConfig()
    return TopicState(topic="t", created_us=1, version=1, next_segment=100, config=config, segments=tuple(segments))


def index_of(*files: tuple[float, int], sealed: bool = False) -> SegmentIndex:
    """Files of ten messages, each `(seconds of its last message, size in bytes)`; a seal after them."""
    index = SegmentIndex()
    for seconds, size_bytes in files:
        last_us = int(seconds * 1e6)
        index.append(FileFacts(FileName(index.end), index.end + 10, size_bytes, last_us, last_us, start=index.end))
    if sealed:
        index.append(FileFacts(FileName(index.end), index.end, 900, 0, 0, sealed=True, start=index.end))
    return index


def test_without_a_limit_nothing_goes():
    state = topic(segment(0))
    assert plan_retention(state, {0: index_of((1, 100), (2, 100))}, NOW_US) == {}


def test_files_go_by_the_age_of_their_last_message():
    state = topic(segment(0), seconds=100)
    index = index_of((880, 1), (899, 1), (900, 1), (901, 1), (999, 1))
    assert plan_retention(state, {0: index}, NOW_US) == {0: 20}
    assert plan_retention(topic(segment(0, start=20), seconds=100), {0: index}, NOW_US) == {}


def test_the_newest_file_of_an_open_segment_stays():
    index = index_of((1, 100), (2, 100), (3, 100))
    assert plan_retention(topic(segment(0), seconds=1), {0: index}, NOW_US) == {0: 20}
    assert plan_retention(topic(segment(0), bytes=1), {0: index}, NOW_US) == {0: 20}
    assert plan_retention(topic(segment(0), seconds=1), {0: SegmentIndex()}, NOW_US) == {}


def test_a_sealed_segment_may_go_wholly():
    state = topic(segment(0, sealed=True, end=20), segment(1, predecessors=[0]), seconds=1)
    starts = plan_retention(state, {0: index_of((1, 1), (2, 1), sealed=True), 1: index_of((3, 1))}, NOW_US)
    assert starts == {0: 20}
    after = with_starts(state, starts)
    assert after is not None
    assert after.segments[0].emptied


@pytest.mark.parametrize(
    ("limit", "starts"),
    [(600, {}), (599, {0: 10}), (400, {0: 10, 1: 10}), (399, {0: 20, 1: 10}), (200, {0: 20, 1: 20})],
)
def test_the_oldest_files_of_the_whole_topic_go_first(limit: int, starts: dict[int, int]):
    indexes = {0: index_of((1, 100), (4, 100), (6, 100)), 1: index_of((2, 100), (5, 100), (7, 100))}
    state = topic(segment(0, sealed=True, end=30), segment(1, predecessors=[0]), bytes=limit)
    assert plan_retention(state, indexes, NOW_US) == starts


def test_what_has_expired_already_counts_no_more():
    state = topic(segment(0, start=20), bytes=200)
    assert plan_retention(state, {0: index_of((1, 100), (2, 100), (3, 100), (4, 100))}, NOW_US) == {}


def test_sizes_are_only_known_when_all_indexes_are():
    state = topic(segment(0, sealed=True, end=10), segment(1, predecessors=[0]), bytes=1)
    assert plan_retention(state, {1: index_of((1, 100), (2, 100))}, NOW_US) == {}
    assert plan_retention(topic(segment(0), segment(1), seconds=1), {1: index_of((1, 9), (2, 9))}, NOW_US) == {1: 10}


@given(
    st.lists(st.lists(st.integers(1, 1000), max_size=20), min_size=1, max_size=5),
    st.integers(1, 20_000),
    st.booleans(),
)
def test_what_is_left_is_within_the_limit_and_no_more_than_that_goes(sizes: list[list[int]], limit: int, sealed: bool):
    indexes = {}
    for number, of_segment in enumerate(sizes):
        files = [(1 + ordinal * len(sizes) + number, size) for ordinal, size in enumerate(of_segment)]
        indexes[number] = index_of(*files)
    state = topic(*(segment(number, sealed=sealed, end=indexes[number].end) for number in indexes), bytes=limit)
    starts = plan_retention(state, indexes, NOW_US)
    left = {n: [f for f in index.files if f.end > starts.get(n, 0)] for n, index in indexes.items()}
    total = sum(facts.size_bytes for files in left.values() for facts in files)
    if total > limit:
        assert not sealed
        assert all(len(files) <= 1 for files in left.values())
    gone = [(f.last_timestamp_us, f) for n, index in indexes.items() for f in index.files if f.end <= starts.get(n, 0)]
    if gone:
        assert total + max(gone, key=lambda each: each[0])[1].size_bytes > limit


def test_start_offsets_never_move_back_nor_beyond_the_end():
    state = topic(segment(0, sealed=True, start=10, end=20), segment(1, start=5))
    assert with_starts(state, {0: 5, 1: 5}) is None
    after = with_starts(state, {0: 30, 1: 30})
    assert after is not None
    assert [s.start_offset for s in after.segments] == [20, 30]


def test_emptied_segments_leave_from_the_front_of_the_lineage():
    state = topic(
        segment(0, sealed=True, start=10, end=10),
        segment(1, sealed=True, start=20, end=20, predecessors=[0]),
        segment(2, sealed=True, start=0, end=20, predecessors=[1]),
        segment(3, predecessors=[2]),
        seconds=10,
    )
    assert [s.id for s in removable(state, NOW_US, grace_seconds=10)] == [0]
    after = without_segments(state, {0}, NOW_US)
    assert after is not None
    assert after.removals == (Removal(segment=0, since_us=NOW_US),)
    assert broken_invariants(after) == []
    assert [s.id for s in removable(after, NOW_US, grace_seconds=10)] == [1]
    last = without_segments(after, {1}, NOW_US)
    assert last is not None
    assert removable(last, NOW_US, grace_seconds=10) == []


def test_emptied_segments_stay_while_a_position_at_their_end_may_be_held():
    state = topic(segment(0, sealed=True, start=10, end=10), segment(1, predecessors=[0]), seconds=10)
    assert removable(state, NOW_US, grace_seconds=60) == []
    assert removable(topic(*state.segments, seconds=60), NOW_US, grace_seconds=10) == []
    assert [s.id for s in removable(topic(*state.segments, bytes=9), NOW_US, grace_seconds=10)] == [0]
    assert removable(topic(*state.segments), NOW_US, grace_seconds=10) == []


def test_predecessors_of_a_merge_leave_together():
    """One of them alone would leave its slots without a place to begin at, and positions at its end without it."""
    state = topic(
        segment(0, sealed=True, start=10, end=10, successors=[2]),
        segment(1, sealed=True, start=5, end=10, successors=[2]),
        segment(2, predecessors=[0, 1]),
        seconds=10,
    )
    assert removable(state, NOW_US, grace_seconds=10) == []
    emptied = with_starts(state, {1: 10})
    assert emptied is not None
    assert [s.id for s in removable(emptied, NOW_US, grace_seconds=10)] == [0, 1]


def test_one_that_waits_for_another_keeps_a_third_waiting():
    """0 and 1 merge, 1 and 2 into another: whoever reads 1 needs both."""
    state = topic(
        segment(0, sealed=True, start=10, end=10, successors=[3]),
        segment(1, sealed=True, start=10, end=10, successors=[3, 4]),
        segment(2, sealed=True, start=5, end=10, successors=[4]),
        segment(3, predecessors=[0, 1]),
        segment(4, predecessors=[1, 2]),
        seconds=10,
    )
    assert removable(state, NOW_US, grace_seconds=10) == []


@given(lineages(), st.data())
def test_whoever_reads_from_the_earliest_finds_all_slots_whatever_retention_takes(
    state: TopicState, data: st.DataObject
):
    config = parse_config({"retention": {"seconds": 1}})
    state = state.model_copy(update={"config": config})
    for _ in range(3):
        sealed = [s.id for s in state.segments if s.state == "sealed"]
        taken = data.draw(st.sets(st.sampled_from(sealed))) if sealed else set()
        starts = {i: data.draw(st.integers(0, 3)) for i in taken}
        state = with_starts(state, starts) or state
        leaving = {s.id for s in removable(state, NOW_US, grace_seconds=1)}
        state = without_segments(state, leaving, NOW_US) or state
        check_positions(state, earliest(state))
        check_positions(state, advance(state, earliest(state)))


def test_changes_that_have_been_made_are_not_made_again():
    state = topic(segment(1))
    assert without_segments(state, {0}, NOW_US) is None
    assert without_removal(state, 0) is None
    waiting = state.model_copy(update={"removals": (Removal(segment=0, since_us=1), Removal(segment=7, since_us=1))})
    done = without_removal(waiting, 0)
    assert done is not None
    assert [removal.segment for removal in done.removals] == [7]


def given_up(segment_of: Segment, *ranges: tuple[int, int | None]) -> Segment:
    lost = [GivenUp(offset=start, next_offset=stop, key="k", what="missing", since_us=1) for start, stop in ranges]
    return segment_of.model_copy(update={"given_up": tuple(lost)})


@pytest.mark.parametrize("ranges", [[(0, 10)], [(20, 30)], [(10, 20), (20, 30)], [(20, None)], [(0, 30)], []])
def test_what_is_given_up_keeps_no_segment_from_being_emptied(ranges: list[tuple[int, int | None]]) -> None:
    """Nothing is left of it that could expire."""
    index = index_of((1, 5), (2, 5), (3, 5), sealed=True)
    segment_of = given_up(segment(0, sealed=True, end=30), *ranges)
    assert index.give_up(segment_of.given_up_ranges)
    state = topic(segment_of, segment(1, predecessors=(0,)), seconds=10)
    starts = plan_retention(state, {0: index}, NOW_US)
    assert starts == {0: 30}
    moved = with_starts(state, starts)
    assert moved is not None and moved.segments[0].emptied


def test_what_is_given_up_before_a_message_that_stays_is_not_waited_for() -> None:
    index = index_of((1, 5), (999, 5))
    segment_of = given_up(segment(0), (0, 10))
    assert index.give_up(segment_of.given_up_ranges)
    assert plan_retention(topic(segment_of, seconds=100), {0: index}, NOW_US) == {0: 10}


def test_what_lies_below_a_floor_goes_in_whole_files() -> None:
    indexes = {0: index_of((1, 100), (2, 100), (3, 100), (4, 100))}
    found = [plan_floors(topic(segment(0)), indexes, {0: floor}) for floor in (0, 9, 10, 29, 30, 39, 40, 99)]
    assert found == [{}, {}, {0: 10}, {0: 20}, {0: 30}, {0: 30}, {0: 30}, {0: 30}], "the newest file stays"
    assert plan_floors(topic(segment(0, start=30)), indexes, {0: 40}) == {}
    assert plan_floors(topic(segment(0)), {}, {0: 40}) == {}, "its index is not at hand"
    assert plan_floors(topic(segment(0)), indexes, {7: 40}) == {}, "it has left topic.json"


def test_a_segment_goes_once_all_its_successors_need_nothing_of_it() -> None:
    """The successors are at different brokers: of the other's floor each learns by the start offset alone."""
    first = segment(0, sealed=True, end=20, successors=[1, 2])
    state = topic(first, segment(1, predecessors=[0]), segment(2, predecessors=[0]))
    indexes = {number: index_of((1, 100), (2, 100)) for number in range(3)}
    assert plan_floors(state, indexes, {1: 0}) == {}
    assert plan_floors(state, indexes, {1: 0, 2: 0}) == {0: 20}
    moved = with_starts(state, plan_floors(state, indexes, {1: 15}))
    assert moved is not None and [s.start_offset for s in moved.segments] == [0, 10, 0]
    assert plan_floors(moved, indexes, {}) == {}
    assert plan_floors(moved, {}, {2: 5}) == {0: 20}


def test_a_successor_without_messages_stands_in_for_nothing() -> None:
    """It counts as emptied, and yet nobody has said that what came before it is not needed."""
    state = topic(
        segment(0, sealed=True, end=20, successors=[1]),
        segment(1, sealed=True, end=0, predecessors=[0], successors=[2]),
        segment(2, predecessors=[1]),
    )
    assert state.segments[1].emptied
    assert plan_floors(state, {}, {}) == {}
    assert plan_floors(state, {}, {2: 0}) == {0: 20}


def test_a_topic_with_floors_loses_segments_as_one_with_retention_does() -> None:
    state = topic(segment(0, sealed=True, start=20, end=20, successors=[1]), segment(1, predecessors=[0]))
    assert removable(state, NOW_US, grace_seconds=10) == []
    assert [s.id for s in removable(state, NOW_US, grace_seconds=10, has_floors=True)] == [0]
    assert removable(state, NOW_US, grace_seconds=60, has_floors=True) == []


@given(lineages(), st.data())
def test_nothing_goes_that_anybody_may_need_whoever_tells_which_floor_and_when(
    state: TopicState, data: st.DataObject
) -> None:
    """For each slot: the newest floor on the way to its open segment says from where on everything is needed."""
    floors = {
        s.id: data.draw(st.integers(0, s.end_offset if s.end_offset is not None else 3))
        for s in state.segments
        if data.draw(st.booleans())
    }
    indexes = {s.id: _single_messages(3 if s.end_offset is None else s.end_offset) for s in state.segments}
    for _ in range(4):  # brokers which know some of them, and have some indexes at hand
        known = {i: floors[i] for i in data.draw(st.sets(st.sampled_from(sorted(floors))))} if floors else {}
        at_hand = {i: indexes[i] for i in data.draw(st.sets(st.sampled_from(sorted(indexes))))}
        state = with_starts(state, plan_floors(state, at_hand, known)) or state
    by_id = {s.id: s for s in state.segments}
    for slot in {s.start_slot for s in state.segments}:
        on_the_way = [s for s in by_id.values() if s.start_slot <= slot < s.stop_slot]  # by id: the oldest first
        newest = max((s.id for s in on_the_way if s.id in floors), default=-1)
        for each in on_the_way:
            if each.id >= newest:
                assert each.start_offset <= (floors[newest] if each.id == newest else 0)


def _single_messages(count: int) -> SegmentIndex:
    index = SegmentIndex()
    for number in range(count):
        index.append(FileFacts(FileName(number), number + 1, 10, 0, 0, start=number))
    return index
