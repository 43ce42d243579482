from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.catalogue import Catalogue
from filer.errors import OutcomeUnknown
from filer.memory_store import MemoryStore
from filer.positions import advance, earliest
from filer.topic_config import TopicConfig
from filer.topic_state import Segment, TopicState, broken_invariants
from leader.transitions import TransitionRunner, deleting, finished, new_topic, recreated, replacing
from tests.support.instant_clock import InstantClock


def place(number: int) -> tuple[str, ...]:
    return (f"b{number % 2}",)


def topic(segments: int = 4) -> TopicState:
    return new_topic("t", TopicConfig(), segments, place, now_us=1)


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
        begun = replacing(state, sorted(seal), place, "roll", now_us=2)
        opened = seal & {s.id for s in state.open_segments}
        assert (begun is None) == (not opened)
        if begun is None:
            continue
        assert broken_invariants(begun) == []
        assert begun.transition is not None
        assert replacing(begun, sorted(seal), place, "roll", now_us=3) is None
        after = finished(begun, begun.transition, {s: s % 3 for s in opened}, now_us=4)
        assert after is not None and broken_invariants(after) == []
        assert finished(after, begun.transition, {}, now_us=5) is None
        state = after
        assert [s.range for s in state.open_segments] == ranges
    positions = advance(state, earliest(state))
    while not set(positions) <= {s.id for s in state.open_segments}:
        sealed = {s.id: s.end_offset or 0 for s in state.segments if s.state == "sealed"}
        positions = advance(state, {s: sealed.get(s, at) for s, at in positions.items()})
    assert set(positions) == {s.id for s in state.open_segments}


def test_deleting_leaves_a_tombstone_and_ids_go_on() -> None:
    begun = deleting(topic(2), now_us=5)
    assert begun is not None and begun.transition is not None
    assert deleting(begun, now_us=6) is None
    gone = finished(begun, begun.transition, {0: 3, 1: 0}, now_us=7)
    assert gone is not None and gone.deleted and gone.segments == ()
    assert [removal.segment for removal in gone.removals] == [0, 1]
    assert deleting(gone, now_us=8) is None
    assert replacing(gone, [0], place, "roll", now_us=8) is None
    again = recreated(gone, TopicConfig(), 3, place, now_us=9)
    assert broken_invariants(again) == []
    assert [s.id for s in again.segments] == [2, 3, 4]
    assert again.version > gone.version
    assert again.removals == gone.removals


@dataclass
class Seals:
    """Seals segments at fixed ends, failing the first `failures` times."""

    failures: int = 0
    asked: list[int] = field(default_factory=list)

    async def seal(self, topic: str, segment: Segment, state: TopicState) -> int:
        self.asked.append(segment.id)
        if self.failures:
            self.failures -= 1
            raise OutcomeUnknown()
        return segment.id * 10


async def test_a_transition_that_was_cut_short_is_finished_by_whoever_comes_next() -> None:
    clock = InstantClock()
    catalogue = Catalogue(MemoryStore(), clock)
    await catalogue.create(topic(2))
    first = TransitionRunner(catalogue, Seals(failures=1), clock)
    with pytest.raises(OutcomeUnknown):
        await first.run("t", lambda state: replacing(state, [0, 1], place, "roll", now_us=2))
    record = await catalogue.read("t")
    assert record is not None and record.state.transition is not None
    seals = Seals()
    second = TransitionRunner(catalogue, seals, clock)
    done = await second.run("t", lambda state: replacing(state, [1], place, "roll", now_us=3))
    assert done is not None and done.transition is None
    assert seals.asked == [0, 1]
    assert [(s.id, s.end_offset, s.successors) for s in done.segments if s.state == "sealed"] == [
        (0, 0, (2,)),
        (1, 10, (3,)),
    ]
    assert await second.resume(record.state) == done
    assert await second.run("nothing", lambda state: None) is None
