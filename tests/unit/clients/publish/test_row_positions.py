import zlib

from hypothesis import given
from hypothesis import strategies as st

from braidmq.positions import Position, PositionRange
from braidmq.publish.row_positions import row_positions
from filer.slots import equal_ranges

HALVES = {1: (0, 32768), 2: (32768, 65536)}


def key_in(segment: int, number: int = 0) -> bytes:
    start, stop = HALVES[segment]
    found = (b"%d" % n for n in range(100_000) if start <= zlib.crc32(b"%d" % n) & 0xFFFF < stop)
    return [next(found) for _ in range(number + 1)][-1]


def test_one_range_needs_no_keys() -> None:
    found = row_positions([None, b"a", None], [PositionRange(7, 100, 3)], {})
    assert found == [Position(7, 100), Position(7, 101), Position(7, 102)]


def test_keys_give_the_segment_and_keep_their_order() -> None:
    keys = [key_in(2), key_in(1), key_in(2, 1), key_in(1)]
    found = row_positions(keys, [PositionRange(1, 5, 2), PositionRange(2, 0, 2)], HALVES)
    assert found == [Position(2, 0), Position(1, 5), Position(2, 1), Position(1, 6)]


def test_rows_without_keys_are_in_the_only_segment_with_a_surplus() -> None:
    keys = [None, key_in(1), key_in(2), None]
    found = row_positions(keys, [PositionRange(1, 0, 3), PositionRange(2, 9, 1)], HALVES)
    assert found == [Position(1, 0), Position(1, 1), Position(2, 9), Position(1, 2)]


def test_rows_without_keys_in_two_segments_leave_those_uncertain() -> None:
    ranges = {1: (0, 16384), 2: (16384, 32768), 3: (32768, 65536)}
    keys = [None, key_in(2), None]
    found = row_positions(keys, [PositionRange(1, 0, 1), PositionRange(2, 0, 1), PositionRange(3, 0, 1)], ranges)
    assert found == [None, Position(3, 0), None]


def test_an_unknown_segment_leaves_its_rows_without_positions() -> None:
    assert row_positions([key_in(1), key_in(2)], [PositionRange(1, 0, 1), PositionRange(9, 0, 1)], HALVES) == [
        None,
        None,
    ]


def test_overlapping_ranges_give_no_positions() -> None:
    overlapping = {1: (0, 65536), 2: (32768, 65536)}
    assert row_positions([key_in(2)], [PositionRange(1, 0, 1), PositionRange(2, 0, 0)], overlapping) == [None]


def test_counts_that_do_not_add_up_give_no_positions() -> None:
    assert row_positions([key_in(1), key_in(2)], [PositionRange(1, 0, 2), PositionRange(2, 0, 1)], HALVES) == [
        None,
        None,
    ]
    assert row_positions([key_in(1)], [PositionRange(1, 0, 5)], HALVES) == [None]


def test_no_answer_gives_no_positions() -> None:
    assert row_positions([], [], {}) == []


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=30), st.integers(1, 5), st.data())
def test_known_positions_are_those_of_the_broker(keys: list[bytes | None], segments: int, data: st.DataObject) -> None:
    ranges = dict(enumerate(equal_ranges(segments)))
    next_offset = {segment: 10 * segment for segment in ranges}
    first, truth = dict(next_offset), []
    for key in keys:
        slot = data.draw(st.integers(0, 65535)) if key is None else zlib.crc32(key) & 0xFFFF
        segment = next(each for each, (start, stop) in ranges.items() if start <= slot < stop)
        truth.append(Position(segment, next_offset[segment]))
        next_offset[segment] += 1
    answered = [PositionRange(s, first[s], next_offset[s] - first[s]) for s in ranges if next_offset[s] > first[s]]
    found = row_positions(keys, answered, ranges)
    assert all(guess is None or guess == true for guess, true in zip(found, truth, strict=True))
    if None not in keys:
        assert None not in found
