"""A set of offsets beside Python's own sets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from groups.offset_set import OffsetSet, ranges_of

_RANGES = st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))
_CHANGES = st.lists(st.tuples(st.booleans(), _RANGES), max_size=30)


def changed(changes: list[tuple[bool, tuple[int, int]]]) -> tuple[OffsetSet, set[int]]:
    found, plain = OffsetSet(), set[int]()
    for adds, (start, stop) in changes:
        if adds:
            found.add(start, stop)
            plain |= set(range(start, stop))
        else:
            found.remove(start, stop)
            plain -= set(range(start, stop))
    return found, plain


def offsets_of(ranges: list[tuple[int, int]]) -> list[int]:
    return [offset for start, stop in ranges for offset in range(start, stop)]


@given(_CHANGES)
def test_it_has_what_was_added_and_not_removed(changes: list[tuple[bool, tuple[int, int]]]) -> None:
    found, plain = changed(changes)
    assert offsets_of(found.ranges()) == sorted(plain) and len(found) == len(plain)
    assert [offset in found for offset in range(50)] == [offset in plain for offset in range(50)]
    assert found.first == min(plain, default=None)
    # No two ranges touch.
    assert all(left[1] < right[0] for left, right in pairwise(found.ranges()))
    assert OffsetSet(found.ranges()).ranges() == found.ranges()


@given(_CHANGES, st.lists(_RANGES, max_size=80))
def test_many_are_added_at_once(changes: list[tuple[bool, tuple[int, int]]], ranges: list[tuple[int, int]]) -> None:
    found, plain = changed(changes)
    found.add_all(ranges)
    assert offsets_of(found.ranges()) == sorted(plain | set(offsets_of(ranges))) and len(found) == len(
        plain | set(offsets_of(ranges))
    )
    assert all(left[1] < right[0] for left, right in pairwise(found.ranges()))
    again = OffsetSet.from_plain(found.to_plain())
    assert again.ranges() == found.ranges() and len(again) == len(found)


@given(_CHANGES, st.lists(_RANGES, max_size=80))
def test_many_are_removed_at_once(changes: list[tuple[bool, tuple[int, int]]], ranges: list[tuple[int, int]]) -> None:
    found, plain = changed(changes)
    found.remove_all(ranges)
    assert offsets_of(found.ranges()) == sorted(plain - set(offsets_of(ranges)))
    assert len(found) == len(plain - set(offsets_of(ranges)))
    assert all(left[1] < right[0] for left, right in pairwise(found.ranges()))


@given(st.sets(st.integers(0, 60)))
def test_offsets_as_ranges(offsets: set[int]) -> None:
    assert ranges_of(sorted(offsets)) == OffsetSet((each, each + 1) for each in offsets).ranges()


@given(_CHANGES, _RANGES)
def test_the_parts_of_a_range(changes: list[tuple[bool, tuple[int, int]]], window: tuple[int, int]) -> None:
    found, plain = changed(changes)
    parts = list(found.parts(*window))
    assert offsets_of([part[:2] for part in parts]) == list(range(*window))
    assert all(left.inside != right.inside for left, right in pairwise(parts))
    assert offsets_of(found.within(*window)) == [each for each in range(*window) if each in plain]
    assert offsets_of(found.without(*window)) == [each for each in range(*window) if each not in plain]


@given(_CHANGES, st.integers(0, 60))
def test_the_lowest_are_taken(changes: list[tuple[bool, tuple[int, int]]], most: int) -> None:
    found, plain = changed(changes)
    taken = offsets_of(found.take(most))
    assert taken == sorted(plain)[:most] and offsets_of(found.ranges()) == sorted(plain)[most:]
