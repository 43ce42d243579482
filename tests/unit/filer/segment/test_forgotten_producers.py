"""Producers that were forgotten for want of room: a repeat is refused, a new request and a new producer are not."""

import zlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.errors import CorruptFile
from filer.format.requests import Position, RequestId
from filer.segment import forgotten_producers, producer_windows
from filer.segment.producer_windows import EXPIRY_US, ProducerWindows
from filer.segment.sequence_window import Found


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of three producers, exact memories of three more, patterns of a few bytes for the rest."""
    monkeypatch.setattr(producer_windows, "MAX_PRODUCERS", 3)
    monkeypatch.setattr(forgotten_producers, "MAX_EXACT", 3)
    monkeypatch.setattr(forgotten_producers, "PATTERN_BITS", 1 << 16)


def filled(count: int, *, start: int = 0, stop: int = 100, seen_us: int = 0) -> ProducerWindows:
    windows = ProducerWindows(start, stop)
    for number in range(count):
        windows.note(RequestId(f"p{number}", 7), Position(0, number, 1), seen_us + number)
    return windows


def outcome(windows: ProducerWindows, producer: str, sequence: int) -> str:
    """What becomes of a request in all slots of the windows."""
    (found,) = windows.look_up(RequestId(producer, sequence))
    return "known" if found.position is not None else "refused" if found.expired else "new"


def outcomes(windows: ProducerWindows, count: int, sequence: int = 7) -> list[str]:
    return [outcome(windows, f"p{number}", sequence) for number in range(count)]


def test_what_was_stored_is_never_new_however_little_room_there_is() -> None:
    windows = filled(40)
    assert outcomes(windows, 40) == ["refused"] * 37 + ["known"] * 3
    assert outcome(windows, "somebody new", 1) == "new"


def test_a_producer_that_was_forgotten_goes_on_with_its_next_sequence() -> None:
    windows = filled(6)
    assert [outcome(windows, "p1", sequence) for sequence in (6, 7, 8)] == ["refused", "refused", "new"]
    windows.note(RequestId("p1", 8), Position(0, 90, 1), 50)
    assert [outcome(windows, "p1", sequence) for sequence in (6, 7, 8, 9)] == ["refused", "refused", "known", "new"]
    # It is not silent, so what it was refused stays refused, however long ago that was.
    windows.note(RequestId("p1", 9), Position(0, 91, 1), EXPIRY_US)
    windows.expire(EXPIRY_US + 40)
    assert [outcome(windows, "p1", sequence) for sequence in (7, 9, 10)] == ["refused", "known", "new"]


def test_a_producer_beyond_the_exact_ones_needs_a_new_id() -> None:
    windows = filled(7)
    assert [outcome(windows, "p0", sequence) for sequence in (7, 8, 10**9)] == ["refused"] * 3
    assert outcome(windows, "p0-again", 1) == "new"


def test_after_an_hour_of_silence_an_id_may_be_used_anew() -> None:
    windows = filled(10)
    windows.expire(EXPIRY_US + 1)
    assert outcomes(windows, 10)[:7] == ["refused"] * 7, "the pattern goes as a whole"
    windows.expire(EXPIRY_US + 4)
    assert outcomes(windows, 10) == ["new"] * 4 + ["refused"] * 3 + ["known"] * 3
    windows.expire(EXPIRY_US + 10)
    assert outcomes(windows, 10) == ["new"] * 10 and windows.empty


def test_patterns_expire_though_new_ones_are_needed_all_the_time() -> None:
    windows = ProducerWindows()
    for hour in range(8):
        for number in range(20):
            name, seen_us = f"h{hour}-{number}", hour * EXPIRY_US + number
            windows.note(RequestId(name, 1), Position(0, hour * 20 + number, 1), seen_us)
            windows.expire(seen_us)
    names = [f"h{hour}-{number}" for hour in range(8) for number in range(20)]
    known = [name for name in names if outcome(windows, name, 1) != "new"]
    assert set(known) >= {f"h7-{number}" for number in range(20)}
    assert not [name for name in known if int(name[1]) < 5], "at most two hours are remembered"


def test_successors_refuse_what_any_predecessor_forgot() -> None:
    left, right = filled(40, start=0, stop=100), filled(5, start=100, stop=200)
    merged = ProducerWindows.combined([left, right], 0, 200)
    for number in range(40):
        # Where the left one was; p37 to p39 never came to the other slots.
        found = merged.look_up(RequestId(f"p{number}", 7))[0]
        assert found.start == 0 and (found.expired or found.position)
    child = left.restricted(0, 50)
    assert outcomes(child, 40) == outcomes(left, 40)
    assert outcome(merged, "somebody new", 1) == "new"


def test_a_producer_that_one_parent_forgot_and_the_other_knows() -> None:
    left, right = filled(4, start=0, stop=100), ProducerWindows(100, 200)
    right.note(RequestId("p0", 6), Position(1, 0, 1), 3)
    merged = ProducerWindows.combined([left, right], 0, 200)
    assert [found.expired for found in merged.look_up(RequestId("p0", 7))] == [True, True]
    assert merged.look_up(RequestId("p0", 6))[1] == Found(100, 200, Position(1, 0, 1), False)
    assert not any(found.expired for found in merged.look_up(RequestId("p0", 8)))


def test_room_that_a_merge_lacks_is_told_as_well() -> None:
    left, right = filled(3, start=0, stop=100), ProducerWindows(100, 200)
    for number in range(3):
        right.note(RequestId(f"q{number}", 1), Position(1, number, 1), 10 + number)
    merged = ProducerWindows.combined([left, right], 0, 200)
    assert outcomes(merged, 3) == ["refused"] * 3


@given(st.integers(0, 60))
def test_the_store_keeps_all_of_it(count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_windows, "MAX_PRODUCERS", 3)
        patch.setattr(forgotten_producers, "MAX_EXACT", 3)
        patch.setattr(forgotten_producers, "PATTERN_BITS", 1 << 16)
        windows = filled(count)
        windows.raise_floor("p1", 9, 5)
        again = ProducerWindows.from_bytes(windows.to_bytes())
        assert again.to_bytes() == windows.to_bytes()
        for sequence in (6, 7, 9, 10):
            assert outcomes(again, count, sequence) == outcomes(windows, count, sequence)


def test_the_version_before_reads_the_windows_and_passes_over_the_rest() -> None:
    document = orjson.loads(zlib.decompress(filled(9).to_bytes()))
    assert document["version"] == 1
    # As that version takes them apart.
    assert [name for name, seen_us, ranges in document["producers"]] == ["p6", "p7", "p8"]


def test_windows_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = filled(20_000)
    assert len(windows.to_bytes()) < 3 * (1 << 16)


def test_a_floor_is_raised_for_what_a_lost_file_may_have_held() -> None:
    windows = filled(2)
    windows.raise_floor("p0", 9, 1)
    windows.raise_floor("never seen", 4, 1)
    assert [outcome(windows, "p0", sequence) for sequence in (6, 7, 9, 10)] == ["refused", "known", "refused", "new"]
    assert [outcome(windows, "never seen", sequence) for sequence in (4, 5)] == ["refused", "new"]


def test_gaps_are_refused_where_files_are_missing() -> None:
    windows = filled(1)
    windows.note(RequestId("p0", 4), Position(0, 9, 1), 1)
    assert [outcome(windows, "p0", sequence) for sequence in (4, 5, 7, 8)] == ["known", "new", "known", "new"]
    windows.refuse_gaps()
    assert [outcome(windows, "p0", sequence) for sequence in (3, 4, 5, 7, 8)] == [
        "refused", "known", "refused", "known", "new",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "member",
    [
        {"floors": 7},
        {"floors": {"nobody": 1}},
        {"forgotten": 7},
        {"forgotten": {}},
        {"forgotten": {"hashes": "AAAA", "highest": "", "seen_us": "", "patterns": []}},
        {"forgotten": {"hashes": "AAAAAAAAAAA=", "highest": "", "seen_us": "", "patterns": []}},
        {"forgotten": {"hashes": "", "highest": "", "seen_us": "", "patterns": [["AAAA", 0, 0]]}},
        {"forgotten": {"hashes": "!", "highest": "", "seen_us": "", "patterns": []}},
    ],
)
def test_damage_is_refused(member: dict[str, object]) -> None:
    document = {"version": 1, "range": [0, 10], "producers": [], **member}
    with pytest.raises(CorruptFile):
        ProducerWindows.from_bytes(zlib.compress(orjson.dumps(document)))
