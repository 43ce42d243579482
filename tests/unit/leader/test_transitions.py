from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.errors import CorruptFile, InvalidInput, OutcomeUnknown
from filer.slots import SLOTS
from filer.stores.memory_store import MemoryStore
from filer.topic.catalogue import Catalogue
from filer.topic.positions import advance, earliest
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState, broken_invariants
from leader.transition_runner import TransitionRunner
from leader.transitions import (
    SealedEnd,
    begin_deletion,
    begin_merge,
    begin_replacement,
    begin_split,
    finished,
    new_topic,
    recreated,
)
from tests.support.instant_clock import InstantClock


def brokers_for(number: int) -> tuple[str, ...]:
    return (f"b{number % 2}",)


def topic(segments: int = 4, **settings: int) -> TopicState:
    return new_topic("t", TopicConfig(**settings), segments, brokers_for, now_us=1)


def over(begun: TopicState | None, end_offset: int = 0) -> TopicState:
    """The state after a transition that has begun."""
    assert begun is not None and begun.transition is not None
    assert broken_invariants(begun) == []
    after = finished(begun, begun.transition, dict.fromkeys(begun.transition.seal, SealedEnd(end_offset)), now_us=4)
    assert after is not None and broken_invariants(after) == []
    return after


def test_a_new_topic() -> None:
    state = topic(4)
    assert broken_invariants(state) == []
    assert [s.owner for s in state.segments] == ["b0", "b1", "b0", "b1"]
    assert (state.next_segment, state.version) == (4, 1)


@given(st.lists(st.sets(st.integers(0, 60), max_size=5), max_size=10), st.integers(1, 5))
def test_rolls_keep_ranges_and_lineage(rolls: list[set[int]], segments: int) -> None:
    state = topic(segments)
    ranges = [s.range for s in state.open_segments]
    for seal in rolls:
        begun = begin_replacement(state, sorted(seal), brokers_for, "roll", now_us=2)
        opened = seal & {s.id for s in state.open_segments}
        assert (begun is None) == (not opened)
        if begun is None:
            continue
        assert broken_invariants(begun) == []
        assert begun.transition is not None
        assert begin_replacement(begun, sorted(seal), brokers_for, "roll", now_us=3) is None
        after = finished(begun, begun.transition, {s: SealedEnd(s % 3) for s in opened}, now_us=4)
        assert after is not None and broken_invariants(after) == []
        assert finished(after, begun.transition, {}, now_us=5) is None
        state = after
        assert [s.range for s in state.open_segments] == ranges
    positions = advance(state, earliest(state))
    while not set(positions) <= {s.id for s in state.open_segments}:
        sealed = {s.id: s.end_offset or 0 for s in state.segments if s.state == "sealed"}
        positions = advance(state, {s: sealed.get(s, at) for s, at in positions.items()})
    assert set(positions) == {s.id for s in state.open_segments}


def shape(state: TopicState) -> list[tuple[int, int, int, tuple[int, ...]]]:
    return [(s.id, *s.range, s.predecessors) for s in state.open_segments]


def test_a_split_gives_each_part_a_successor() -> None:
    begun = begin_split(topic(2), {1: [40_000, 50_000]}, brokers_for, now_us=2)
    assert begun is not None and begun.transition is not None
    assert [s.owner for s in begun.transition.open] == ["b0", "b1", "b0"]
    after = over(begun, 7)
    assert shape(after) == [(0, 0, 32_768, ()), (2, 32_768, 40_000, (1,)), (3, 40_000, 50_000, (1,)),
                            (4, 50_000, SLOTS, (1,))]  # fmt: skip
    assert {s.reason for s in after.open_segments} == {"create", "split"}
    parent = after.segment(1)
    assert parent is not None and (parent.state, parent.end_offset, parent.successors) == ("sealed", 7, (2, 3, 4))


def test_a_merge_gives_two_neighbours_one_successor() -> None:
    after = over(begin_merge(topic(4), [(2, 3), (0, 1)], brokers_for, now_us=2))
    assert shape(after) == [(5, 0, 32_768, (0, 1)), (4, 32_768, SLOTS, (2, 3))]
    assert [(s.id, s.successors) for s in after.segments if s.state == "sealed"] == [
        (0, (5,)), (1, (5,)), (2, (4,)), (3, (4,))
    ]  # fmt: skip
    assert {s.reason for s in after.open_segments} == {"merge"}


def test_nothing_begins_while_another_transition_is_under_way_or_after_a_delete() -> None:
    busy = begin_replacement(topic(2), [0], brokers_for, "roll", now_us=2)
    gone = over(begin_deletion(topic(2), now_us=2))
    for state in (busy, gone):
        assert state is not None
        assert begin_split(state, {1: [50_000]}, brokers_for, now_us=3) is None
        assert begin_merge(state, [(0, 1)], brokers_for, now_us=3) is None


def test_what_was_split_meanwhile_is_neither_split_nor_merged_again() -> None:
    state = over(begin_split(topic(3), {1: [30_000]}, brokers_for, now_us=2))
    assert begin_split(state, {1: [30_000]}, brokers_for, now_us=3) is None
    assert begin_merge(state, [(0, 1)], brokers_for, now_us=3) is None
    assert begin_merge(state, [(77, 78)], brokers_for, now_us=3) is None
    both = begin_split(state, {1: [30_000], 2: [60_000]}, brokers_for, now_us=3)
    assert both is not None and both.transition is not None and both.transition.seal == (2,)


@pytest.mark.parametrize("pair", [(1, 0), (0, 2), (1, 1), (3, 0)])
def test_only_neighbours_merge_left_and_right(pair: tuple[int, int]) -> None:
    assert begin_merge(topic(4), [pair], brokers_for, now_us=2) is None


def test_a_segment_merges_with_one_neighbour_only() -> None:
    begun = begin_merge(topic(4), [(1, 2), (0, 1), (2, 3)], brokers_for, now_us=2)
    assert begun is not None and begun.transition is not None and begun.transition.seal == (1, 2)


def test_merges_leave_the_minimum() -> None:
    state = topic(4, min_segments=3)
    begun = begin_merge(state, [(2, 3), (0, 1)], brokers_for, now_us=2)
    assert begun is not None and begun.transition is not None and begun.transition.seal == (2, 3)
    assert begin_merge(over(begun), [(0, 1)], brokers_for, now_us=3) is None


def test_splits_stay_within_the_maximum() -> None:
    state = topic(4, max_segments=6)
    begun = begin_split(state, {0: [1, 2], 1: [20_000], 2: [40_000]}, brokers_for, now_us=2)
    assert begun is not None and begun.transition is not None and begun.transition.seal == (0,)
    assert begin_split(over(begun), {1: [20_000]}, brokers_for, now_us=3) is None


@pytest.mark.parametrize("points", [[], [0], [32_768], [40_000], [5, 5], [7, 5], [-1]])
def test_cut_points_that_cannot_be(points: list[int]) -> None:
    with pytest.raises(InvalidInput, match=r"segment 0 has the slots \[0, 32768\)"):
        begin_split(topic(2), {0: points}, brokers_for, now_us=2)


@given(st.data(), st.integers(1, 4))
def test_any_splits_merges_and_rolls_keep_the_invariants_and_all_is_read_once(
    data: st.DataObject, segments: int
) -> None:
    """Also of segments that are empty, and through several generations at once."""
    state = topic(segments, max_segments=12)
    for _ in range(data.draw(st.integers(0, 8))):
        opened = state.open_segments
        place_ = data.draw(st.integers(0, len(opened) - 1))
        start, stop = opened[place_].range
        match data.draw(st.sampled_from(["split", "merge", "roll"] if stop - start > 1 else ["merge", "roll"])):
            case "split":
                points = sorted(data.draw(st.sets(st.integers(start + 1, stop - 1), min_size=1, max_size=3)))
                begun = begin_split(state, {opened[place_].id: points}, brokers_for, now_us=2)
                assert (begun is None) == (len(opened) + len(points) > 12)
            case "merge":
                pairs = [(left.id, right.id) for left, right in pairwise(opened)][place_:]
                begun = begin_merge(state, pairs, brokers_for, now_us=2)
                assert (begun is None) == (not pairs)
            case _:
                begun = begin_replacement(state, [s.id for s in opened[place_:]], brokers_for, "roll", now_us=2)
        if begun is not None:
            state = over(begun, data.draw(st.integers(0, 2)))
    _read_through(state)


def _read_through(state: TopicState) -> None:
    """Entered once each, when all predecessors are drained, until only open segments are left."""
    positions = advance(state, earliest(state))
    drained: set[int] = set()
    entered = set(positions)
    while waiting := [s for s in state.segments if s.id in positions and s.state == "sealed"]:
        for segment in waiting:
            assert set(segment.predecessors) <= drained | {s.id for s in state.segments if s.end_offset == 0}
            positions[segment.id] = segment.end_offset or 0
            drained.add(segment.id)
        positions = advance(state, positions)
        entered |= set(positions)
    assert set(positions) == {s.id for s in state.open_segments}
    assert entered | {s.id for s in state.segments if s.end_offset == 0} == {s.id for s in state.segments}


def test_deleting_leaves_a_tombstone_and_ids_go_on() -> None:
    begun = begin_deletion(topic(2), now_us=5)
    assert begun is not None and begun.transition is not None
    assert begin_deletion(begun, now_us=6) is None
    gone = finished(begun, begun.transition, {0: SealedEnd(3), 1: SealedEnd(0)}, now_us=7)
    assert gone is not None and gone.deleted and gone.segments == ()
    assert [removal.segment for removal in gone.removals] == [0, 1]
    assert begin_deletion(gone, now_us=8) is None
    assert begin_replacement(gone, [0], brokers_for, "roll", now_us=8) is None
    again = recreated(gone, TopicConfig(), 3, brokers_for, now_us=9)
    assert broken_invariants(again) == []
    assert [s.id for s in again.segments] == [2, 3, 4]
    assert again.version > gone.version
    assert again.removals == gone.removals


@dataclass
class Seals:
    """Seals segments at fixed ends, failing the first `failures` times."""

    failures: int = 0
    asked: list[int] = field(default_factory=list)

    async def seal(self, topic: str, segment: Segment, state: TopicState) -> SealedEnd:
        self.asked.append(segment.id)
        if self.failures:
            self.failures -= 1
            raise OutcomeUnknown()
        return SealedEnd(segment.id * 10, segment.id, segment.id * 1000)


async def test_a_transition_that_was_cut_short_is_finished_by_whoever_comes_next() -> None:
    clock = InstantClock()
    catalogue = Catalogue(MemoryStore(), clock)
    await catalogue.create(topic(2))
    first = TransitionRunner(catalogue, Seals(failures=1), clock)
    with pytest.raises(OutcomeUnknown):
        await first.run("t", lambda state: begin_replacement(state, [0, 1], brokers_for, "roll", now_us=2))
    record = await catalogue.read("t")
    assert record is not None and record.state.transition is not None
    seals = Seals()
    second = TransitionRunner(catalogue, seals, clock)
    done = await second.run("t", lambda state: begin_replacement(state, [1], brokers_for, "roll", now_us=3))
    assert done is not None and done.transition is None
    assert seals.asked == [0, 1]
    sealed = [segment for segment in done.segments if segment.state == "sealed"]
    assert [(s.id, s.end_offset, s.seal_offset, s.stored_bytes, s.successors) for s in sealed] == [
        (0, 0, 0, 0, (2,)),
        (1, 10, 1, 1000, (3,)),
    ]
    assert await second.resume(record) == done
    assert await second.run("nothing", lambda state: None) is None


class SealsAllBut:
    """Seals all segments but those whose last file is damaged."""

    def __init__(self, *damaged: int) -> None:
        self.damaged = set(damaged)

    async def seal(self, topic: str, segment: Segment, state: TopicState) -> SealedEnd:
        if segment.id in self.damaged:
            raise CorruptFile("its last file is damaged", key="the file", segment=segment.id)
        return SealedEnd(segment.id * 10)


@pytest.mark.parametrize("damaged", [{0}, {1}, {0, 1}, {0, 3}, {0, 1, 2, 3}], ids=str)
async def test_what_cannot_be_sealed_stays_open_and_the_rest_goes_on(damaged: set[int]) -> None:
    """In a merge too: the neighbour that was sealed has a successor of its own range."""
    clock, left_out = InstantClock(), set[int]()
    catalogue = Catalogue(MemoryStore(), clock)
    await catalogue.create(topic(4))
    runner = TransitionRunner(catalogue, SealsAllBut(*damaged), clock, lambda topic, id_, error: left_out.add(id_))
    pairs = [(0, 1), (2, 3)]
    done = await runner.run("t", lambda state: begin_merge(state, pairs, brokers_for, now_us=2))
    assert done is not None
    assert (done.transition, broken_invariants(done), left_out) == (None, [], damaged)
    before = topic(4)
    assert {s.id for s in done.segments[:4] if s.state == "open"} == damaged
    for successor in done.segments[4:]:
        assert not damaged & set(successor.predecessors)
        ranges = [segment.range for segment in before.segments if segment.id in successor.predecessors]
        assert successor.range == (ranges[0][0], ranges[-1][1])
    mended = TransitionRunner(catalogue, SealsAllBut(), clock)
    after = await mended.run("t", lambda state: begin_replacement(state, [*damaged], brokers_for, "failover", now_us=3))
    assert after is not None and broken_invariants(after) == []
    assert all(segment.state == "sealed" for segment in after.segments[:4])


async def test_a_deletion_leaves_nothing_out() -> None:
    clock = InstantClock()
    catalogue = Catalogue(MemoryStore(), clock)
    await catalogue.create(topic(2))
    with pytest.raises(CorruptFile):
        await TransitionRunner(catalogue, SealsAllBut(1), clock).run("t", lambda state: begin_deletion(state, now_us=2))
    done = await TransitionRunner(catalogue, SealsAllBut(), clock).run("t", lambda state: None)
    assert done is not None and done.deleted
