"""Loads in topic.json: reserving, giving up, sweeping; ids that are never used for anything else."""

from itertools import pairwise

import pytest

from filer.topic.reservations import (
    IDS_APART,
    LIFETIME_US,
    MOST_RESERVED,
    MOST_RESERVED_SEGMENTS,
    MOST_SEGMENTS,
    abandoning,
    find_load,
    is_overtaken,
    load_segments,
    reserving,
    sweeping,
    without_loads,
)
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Load, TopicState, broken_invariants, published_before
from filer.upkeep.retention import without_removal
from leader.transitions import (
    SealedEnd,
    begin_adoption,
    begin_deletion,
    begin_replacement,
    finished,
    new_topic,
    recreated,
)

NOW_US = 1_000_000


def topic() -> TopicState:
    return new_topic("t", TopicConfig(), 2, lambda n: ("b",), now_us=1)


def reserved(state: TopicState, *loads: str, segments: int = 2, now_us: int = NOW_US) -> TopicState:
    for load in loads:
        after = reserving(state, load, [part * 65_536 // segments for part in range(segments)], now_us=now_us)
        assert after is not None and broken_invariants(after) == []
        state = after
    return state


def the(state: TopicState, load_id: str) -> Load:
    load = find_load(state, load_id)
    assert load is not None
    return load


def begun_adopting(state: TopicState, load: Load) -> TopicState | None:
    ends = {segment: SealedEnd(7, 7, 100) for segment in load.segments}
    return begin_adoption(state, load.id, ends, lambda n: ("b",), now_us=NOW_US + 5)


def committed(state: TopicState, load_id: str) -> TopicState:
    begun = begun_adopting(state, the(state, load_id))
    assert begun is not None and begun.transition is not None and broken_invariants(begun) == []
    after = finished(begun, begun.transition, dict.fromkeys(begun.transition.seal, SealedEnd(3)), now_us=NOW_US + 6)
    assert after is not None and broken_invariants(after) == []
    return after


def rolled(state: TopicState) -> TopicState:
    begun = begin_replacement(state, [s.id for s in state.open_segments], lambda n: ("b",), "roll", now_us=NOW_US)
    assert begun is not None and begun.transition is not None
    after = finished(begun, begun.transition, dict.fromkeys(begun.transition.seal, SealedEnd(1)), now_us=NOW_US)
    assert after is not None and broken_invariants(after) == []
    return after


def without_files(state: TopicState) -> TopicState:
    """After the files of all removed segments have been deleted."""
    for removal in state.removals:
        state = without_removal(state, removal.segment) or state
    return state


def test_what_is_reserved_lies_far_above_everything() -> None:
    state = reserved(topic(), "a", "b")
    a, b = the(state, "a"), the(state, "b")
    assert a.first_segment == 2 + IDS_APART
    assert b.first_segment == a.segments.stop + IDS_APART
    assert (a.reserved_us, a.expires_us) == (NOW_US, NOW_US + LIFETIME_US)
    assert a.ranges == {a.first_segment: (0, 32_768), a.first_segment + 1: (32_768, 65_536)}
    assert state.next_segment == 2
    assert load_segments(state) == {*a.segments, *b.segments}


def test_a_load_that_is_known_is_not_reserved_again() -> None:
    state = reserved(topic(), "a")
    assert reserving(state, "a", [0], now_us=NOW_US + 1) is None
    assert reserving(committed(state, "a"), "a", [0], now_us=NOW_US + LIFETIME_US) is None


def test_a_load_that_is_too_old_is_reserved_anew() -> None:
    state = reserved(topic(), "a")
    old = the(state, "a")
    after = reserved(state, "a", now_us=NOW_US + LIFETIME_US)
    assert the(after, "a").first_segment > old.segments.stop
    assert [r.segment for r in after.removals] == list(old.segments)


def test_there_is_room_for_so_many() -> None:
    state = reserved(topic(), *(f"load-{n}" for n in range(MOST_RESERVED)))
    assert reserving(state, "one more", [0], now_us=NOW_US) is None
    state = reserved(topic(), *"abcd", segments=MOST_SEGMENTS)
    assert MOST_RESERVED_SEGMENTS == 4 * MOST_SEGMENTS
    assert reserving(state, "one more", [0], now_us=NOW_US) is None
    assert reserving(committed(state, "a"), "one more", [0], now_us=NOW_US) is not None


def test_an_abandoned_load_takes_room_until_its_files_are_deleted() -> None:
    state = abandoning(reserved(topic(), *(f"load-{n}" for n in range(MOST_RESERVED))), "load-9", now_us=NOW_US)
    assert state is not None
    assert reserving(state, "one more", [0], now_us=NOW_US) is None
    swept = sweeping(without_files(state), now_us=NOW_US)
    assert swept is None
    last = f"load-{MOST_RESERVED - 1}"
    after = sweeping(without_files(committed(state, last)), now_us=NOW_US)
    assert after is not None
    assert reserving(after, "one more", [0], now_us=NOW_US) is not None


def test_a_topic_that_is_deleted_takes_no_load() -> None:
    state = topic()
    assert reserving(state.model_copy(update={"deleted": True, "segments": ()}), "a", [0], now_us=NOW_US) is None


def test_rolls_take_the_ids_in_between() -> None:
    state = reserved(topic(), "a")
    state = rolled(rolled(state))
    assert [s.id for s in state.open_segments] == [4, 5]
    assert not is_overtaken(state, the(state, "a"))
    after = committed(state, "a")
    ids = [s.id for s in after.segments]
    assert ids == sorted(ids)
    assert [s.id for s in after.open_segments] == [the(after, "a").segments.stop, the(after, "a").segments.stop + 1]


def test_what_is_opened_passes_by_what_is_reserved() -> None:
    state = reserved(topic(), "a")
    state = state.model_copy(update={"next_segment": the(state, "a").first_segment - 1})
    after = rolled(state)
    assert [s.id for s in after.open_segments] == [*range(the(state, "a").segments.stop, after.next_segment)]
    assert is_overtaken(after, the(after, "a"))
    assert begun_adopting(after, the(after, "a")) is None


@pytest.mark.parametrize(("beyond", "overtaken"), [(-1, False), (0, False), (1, True)])
def test_overtaken_is_whose_first_id_lies_below_the_next_one(beyond: int, *, overtaken: bool) -> None:
    state = reserved(topic(), "a")
    a = the(state, "a")
    assert is_overtaken(state.model_copy(update={"next_segment": a.first_segment + beyond}), a) == overtaken


def test_of_two_loads_the_later_may_come_later_only() -> None:
    state = reserved(topic(), "a", "b")
    in_order = committed(committed(state, "a"), "b")
    assert [s.load for s in in_order.segments if s.load] == ["a", "a", "b", "b"]
    overtaken = committed(state, "b")
    assert is_overtaken(overtaken, the(overtaken, "a"))
    assert begun_adopting(overtaken, the(overtaken, "a")) is None
    again = reserved(overtaken, "a")
    assert not is_overtaken(again, the(again, "a"))
    assert the(again, "a").first_segment > the(again, "b").segments.stop
    assert [r.segment for r in again.removals] == list(the(state, "a").segments)


def test_what_has_been_given_up_cannot_be_committed() -> None:
    state = reserved(topic(), "a", "b")
    after = abandoning(state, "a", now_us=NOW_US + 9)
    assert after is not None and broken_invariants(after) == []
    assert find_load(after, "a") is None
    assert {(r.segment, r.since_us) for r in after.removals} == {(i, NOW_US + 9) for i in the(state, "a").segments}
    assert begun_adopting(after, the(state, "a")) is None
    assert abandoning(after, "a", now_us=NOW_US) is None
    assert load_segments(after) == load_segments(state)


def test_what_is_being_adopted_is_not_given_up() -> None:
    state = reserved(topic(), "a")
    begun = begun_adopting(state, the(state, "a"))
    assert begun is not None
    assert abandoning(begun, "a", now_us=NOW_US) is None
    assert sweeping(begun, now_us=NOW_US + 2 * LIFETIME_US) is None
    assert abandoning(committed(state, "a"), "a", now_us=NOW_US) is None


@pytest.mark.parametrize("age_us", [0, 2 * LIFETIME_US])
def test_what_is_being_adopted_is_not_reserved_anew(age_us: int) -> None:
    """Whoever runs a load again may come in the middle of its transition, whose own successors do not overtake it."""
    state = reserved(topic(), "a")
    begun = begun_adopting(state, the(state, "a"))
    assert begun is not None and begun.next_segment > the(begun, "a").first_segment
    assert not is_overtaken(begun, the(begun, "a"))
    assert reserving(begun, "a", [0, 32_768], now_us=NOW_US + age_us) is None


def test_what_was_reserved_anew_is_not_adopted_at_the_ends_of_what_was_before() -> None:
    state = reserved(topic(), "a")
    given_up = abandoning(state, "a", now_us=NOW_US)
    assert given_up is not None
    again = reserved(given_up, "a")
    assert begun_adopting(again, the(state, "a")) is None
    assert begun_adopting(again, the(again, "a")) is not None


def test_the_sweep_takes_what_is_a_day_old() -> None:
    state = reserved(reserved(topic(), "a"), "b", now_us=NOW_US + 5)
    assert sweeping(state, now_us=NOW_US + LIFETIME_US - 1) is None
    swept = sweeping(state, now_us=NOW_US + LIFETIME_US)
    assert swept is not None and broken_invariants(swept) == []
    assert find_load(swept, "a") is None and find_load(swept, "b") is not None
    assert [r.segment for r in swept.removals] == list(the(state, "a").segments)


def test_the_record_stays_while_the_files_do_and_the_ids_go_by() -> None:
    state = abandoning(reserved(topic(), "a"), "a", now_us=NOW_US)
    assert state is not None
    assert sweeping(state, now_us=NOW_US) is None
    after = sweeping(without_files(state), now_us=NOW_US)
    assert after is not None
    assert after.loads == ()
    assert after.next_segment == state.loads[0].segments.stop


def test_ids_do_not_go_by_while_that_would_overtake_another_load() -> None:
    state = abandoning(reserved(topic(), "a", "b"), "b", now_us=NOW_US)
    assert state is not None
    state = without_files(state)
    assert sweeping(state, now_us=NOW_US) is None
    after = sweeping(committed(state, "a"), now_us=NOW_US)
    assert after is not None
    assert [load.id for load in after.loads] == ["a"]
    assert after.next_segment == state.loads[1].segments.stop


def test_ids_do_not_go_by_a_load_that_waits_however_many_were_given_up_behind_it() -> None:
    state = reserved(topic(), "a", "b", "c")
    for load in "bc":
        state = abandoning(state, load, now_us=NOW_US) or state
    state = without_files(state)
    assert [load.abandoned for load in state.loads] == [False, True, True]
    assert sweeping(state, now_us=NOW_US) is None


def test_passed_ids_are_forgotten_even_while_loads_wait() -> None:
    state = abandoning(reserved(topic(), "a", "b", "c"), "b", now_us=NOW_US)
    assert state is not None
    after = sweeping(without_files(committed(state, "c")), now_us=NOW_US)
    assert after is not None
    assert [load.id for load in after.loads] == ["a", "c"]
    assert after.next_segment == committed(state, "c").next_segment


def test_segments_before_several_loads_are_found_once() -> None:
    state = committed(reserved(committed(reserved(topic(), "a", segments=5), "a"), "b", segments=3), "b")
    known = {segment.id: segment for segment in state.segments}
    first = [segment.id for segment in state.segments if segment.load == "a"][-1] + 1
    for segment in state.open_segments:
        before = [each.id for each in published_before(segment, known)]
        assert before == sorted(set(before))
        assert before and all(known[each].load is None and each >= first for each in before)


def test_a_committed_load_is_known_as_long_as_a_segment_of_it() -> None:
    state = committed(reserved(topic(), "a"), "a")
    assert sweeping(state, now_us=NOW_US + 9 * LIFETIME_US) is None
    one_left = state.model_copy(update={"segments": state.segments[3:]})
    assert one_left.segments[0].load == "a"
    assert sweeping(one_left, now_us=NOW_US) is None
    gone = state.model_copy(update={"segments": state.segments[4:]})
    after = sweeping(gone, now_us=NOW_US)
    assert after is not None and after.loads == ()


def test_a_topic_that_is_deleted_uses_no_reserved_id_again() -> None:
    state = committed(reserved(topic(), "a", "b"), "a")
    begun = begin_deletion(state, now_us=NOW_US)
    assert begun is not None and begun.transition is not None
    gone = finished(begun, begun.transition, dict.fromkeys(begun.transition.seal, SealedEnd(0)), now_us=NOW_US)
    assert gone is not None and broken_invariants(gone) == []
    assert find_load(gone, "a") is None and find_load(gone, "b") is None
    assert gone.next_segment == the(state, "b").segments.stop
    assert {*the(state, "a").segments, *the(state, "b").segments} < {r.segment for r in gone.removals}
    assert without_loads(gone, now_us=NOW_US) == gone


def test_what_was_reserved_before_a_topic_was_deleted_is_known_while_its_files_stay() -> None:
    state = reserved(topic(), "a", "b")
    begun = begin_deletion(abandoning(state, "a", now_us=NOW_US) or state, now_us=NOW_US)
    assert begun is not None and begun.transition is not None
    gone = finished(begun, begun.transition, dict.fromkeys(begun.transition.seal, SealedEnd(0)), now_us=NOW_US)
    assert gone is not None
    again = recreated(gone, TopicConfig(), 2, lambda n: ("b",), now_us=NOW_US)
    assert broken_invariants(again) == []
    assert load_segments(again) == load_segments(state)
    assert min(s.id for s in again.segments) > max(load_segments(state))
    after = sweeping(without_files(again), now_us=NOW_US)
    assert after is not None and after.loads == () and after.next_segment == again.next_segment


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_a_load_stands_between_what_was_open_and_its_successors(parts: int) -> None:
    before = topic()
    after = committed(reserved(before, "a", segments=parts), "a")
    loaded = [s for s in after.segments if s.load == "a"]
    opened = after.open_segments
    assert [s.range for s in opened] == [s.range for s in before.open_segments]
    for one, other in [*((s, o) for s in loaded for o in opened), *((b, s) for b in before.segments for s in loaded)]:
        share = one.start_slot < other.stop_slot and other.start_slot < one.stop_slot
        found = after.segment(one.id), after.segment(other.id)
        assert found[0] is not None and found[1] is not None
        assert (other.id in found[0].successors) == (one.id in found[1].predecessors) == share
    assert {(s.state, s.end_offset, s.seal_offset, s.stored_bytes, s.reason) for s in loaded} == {
        ("sealed", 7, 7, 100, "load")
    }
    assert all(one.stop_slot == other.start_slot for one, other in pairwise(loaded))
    assert the(after, "a").version == after.version + 1
    assert the(after, "a").ends == (7,) * parts
