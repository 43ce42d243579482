import orjson
import pytest
from hypothesis import given

from filer.errors import CorruptFile
from filer.slots import SLOTS
from filer.topic.record_check import checked
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Load, Removal, Segment, TopicState, Transition, broken_invariants
from tests.support.topic.lineages import lineages


def segment(segment_id: int, start: int = 0, stop: int = SLOTS, **fields: object) -> Segment:
    base = {"id": segment_id, "start_slot": start, "stop_slot": stop, "brokers": ("b",), "opened_us": 0}
    return Segment.model_validate({**base, "reason": "create", **fields})


def state(*segments: Segment, next_segment: int = 10, **fields: object) -> TopicState:
    made = TopicState(
        topic="t", created_us=0, version=1, next_segment=next_segment, config=TopicConfig(), segments=segments
    )
    return made.model_copy(update=fields)


@given(lineages())
def test_every_lineage_holds_the_invariants_and_survives_json(made: TopicState) -> None:
    assert broken_invariants(made) == []
    assert TopicState.from_json(made.to_json()) == made
    assert [s.start_slot for s in made.open_segments] == sorted(s.start_slot for s in made.open_segments)


def unchecked(data: bytes) -> bytes:
    """The record as brokers write it that know of no check."""
    return orjson.dumps(checked(data, key="topic.json", first="format")[0])


def transition(
    seal: tuple[int, ...], *opened: Segment, reason: str = "split", adopt: tuple[Segment, ...] = ()
) -> Transition:
    about = {"seal": seal, "open": opened, "reason": reason, "started_us": 0}
    return Transition.model_validate({**about, "adopt": adopt})


def load(load_id: str, first: int, *starts: int, **fields: object) -> Load:
    base = {"id": load_id, "first_segment": first, "starts": starts or (0,), "reserved_us": 0, "expires_us": 1}
    return Load.model_validate({**base, **fields})


def adopted(segment_id: int, load_id: str = "l", **fields: object) -> Segment:
    return segment(segment_id, **{"state": "sealed", "end_offset": 5, "load": load_id, **fields})


WHOLE = segment(0)
BROKEN = [
    (state(segment(0, 0, 100)), "open_ranges_tile"),
    (state(WHOLE, segment(1)), "open_ranges_tile"),
    (state(), "open_ranges_tile"),
    (state(segment(1, 0, 9), segment(0, 9)), "ids_only_grow"),
    (state(segment(0, 0, 9), segment(0, 9)), "ids_only_grow"),
    (state(WHOLE, next_segment=0), "ids_only_grow"),
    (state(WHOLE, transition=transition((0,), segment(10))), "ids_only_grow"),
    (state(segment(0, end_offset=5)), "sealed_segments_end"),
    (state(segment(0, state="sealed"), segment(1)), "sealed_segments_end"),
    (state(segment(0, state="sealed", start_offset=5, end_offset=4), segment(1)), "sealed_segments_end"),
    (state(WHOLE, transition=transition((3,), segment(4))), "transition_seals_open_segments"),
    (state(WHOLE, transition=transition((0,), segment(4, 0, 99))), "transition_seals_open_segments"),
    (state(WHOLE, transition=transition((), segment(4))), "transition_seals_open_segments"),
    (state(WHOLE, transition=transition((0,), segment(3), adopt=(adopted(4),))), "ids_only_grow"),
    (state(WHOLE, transition=transition((0,), segment(4), adopt=(segment(3),))), "sealed_segments_end"),
    (
        state(WHOLE, transition=transition((0,), segment(4), adopt=(adopted(3, start_slot=1),))),
        "transition_seals_open_segments",
    ),
    (state(WHOLE, loads=(load("l", 20, 0, 9), load("m", 21))), "reserved_ids_are_kept"),
    (state(WHOLE, loads=(load("l", 30), load("m", 20))), "reserved_ids_are_kept"),
    (state(WHOLE, loads=(load("l", 20, 5),)), "reserved_ids_are_kept"),
    (state(WHOLE, loads=(load("l", 0),)), "reserved_ids_are_kept"),
    (state(adopted(3, "m"), segment(5), loads=(load("l", 3),)), "reserved_ids_are_kept"),
    (state(WHOLE, loads=(load("l", 4),), transition=transition((0,), segment(4))), "reserved_ids_are_kept"),
    (state(adopted(3), segment(5), loads=(load("l", 3, abandoned=True),)), "reserved_ids_are_kept"),
    (state(WHOLE, removals=(Removal(segment=0, since_us=1),)), "removed_segments_are_gone"),
    (
        state(WHOLE, transition=transition((0,), segment(4)), removals=(Removal(segment=4, since_us=1),)),
        "removed_segments_are_gone",
    ),
]


@pytest.mark.parametrize(("broken", "invariant"), BROKEN)
def test_broken_invariants_are_named(broken: TopicState, invariant: str) -> None:
    assert invariant in broken_invariants(broken)


def test_a_load_that_is_being_adopted_and_one_that_waits() -> None:
    under_way = transition((0,), segment(5), reason="load", adopt=(adopted(4),))
    assert broken_invariants(state(WHOLE, transition=under_way, loads=(load("l", 4), load("m", 20)))) == []


def test_free_ids_pass_by_what_is_reserved() -> None:
    made = state(WHOLE, next_segment=10, loads=(load("l", 12, 0, 7), load("m", 15)))
    assert made.free_ids(2) == range(10, 12)
    assert made.free_ids(3) == range(16, 19)
    assert made.free_ids(1, first=14) == range(14, 15)
    assert made.free_ids(1, first=13) == range(14, 15)


def test_a_state_that_is_being_deleted() -> None:
    assert broken_invariants(state(WHOLE, transition=transition((0,), reason="delete"))) == []
    assert broken_invariants(state(deleted=True)) == []


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b"\xff", state(WHOLE).to_json().replace(b"1", b"2", 1)])
def test_other_bytes_are_no_topic(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        TopicState.from_json(data)


def test_a_transition_with_unknown_fields_is_for_another_version_to_carry_out() -> None:
    under_way = state(WHOLE, transition=transition((0,), segment(1)), next_segment=2)
    data = unchecked(under_way.to_json()).replace(b'"seal":', b'"shape": 1, "seal":')
    with pytest.raises(CorruptFile, match="shape"):
        TopicState.from_json(data)


@pytest.mark.parametrize("index", [b'"topic":', b'"start_slot":', b'"first_segment":'])
def test_what_a_newer_broker_says_is_kept(index: bytes) -> None:
    """A rolling upgrade has both versions for a while."""
    data = unchecked(state(WHOLE, loads=(load("l", 100),)).to_json()).replace(index, b'"news": [7], ' + index)
    changed = TopicState.from_json(data).model_copy(update={"version": 9})
    assert TopicState.from_json(changed.to_json()) == changed
    assert changed.to_json().count(b'"news"') == 1


def test_without_loads_topic_json_is_what_it_was_before_there_were_any() -> None:
    under_way = state(WHOLE, transition=transition((0,), segment(1)), next_segment=2)
    assert not {b"load", b"adopt"} & set(under_way.to_json().replace(b'"', b" ").split())
    with_load = state(WHOLE, loads=(load("l", 100),))
    assert TopicState.from_json(with_load.to_json()) == with_load
