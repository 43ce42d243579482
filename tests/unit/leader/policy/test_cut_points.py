"""Cut points: exact tilings, even loads, hot slots, and an end to splitting whatever the load looks like."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.errors import InvalidInput
from filer.slots import SLOTS
from filer.topic.topic_config import Target
from leader.policy.cut_points import LARGEST_SHARE, Cut, SlotTraffic, cut_hot, equal_parts, pressing
from leader.policy.even_cuts import even_cut_points

MANY = 10**9
"""Messages in which a load was seen: so many that it is what it is."""


@st.composite
def loads(draw: st.DrawFn) -> np.ndarray:
    """A small range whose slots have anything from nothing to nearly all."""
    width = draw(st.integers(1, 60))
    light = st.integers(0, 10)
    heavy = st.integers(0, 100_000)
    return np.array(draw(st.lists(light | heavy, min_size=width, max_size=width)))


def children(load: np.ndarray, start: int, points: tuple[int, ...]) -> np.ndarray:
    return np.add.reduceat(load, [0, *(point - start for point in points)])


@given(loads(), st.integers(0, 1000), st.integers(1, 60), st.none() | st.integers(0, 10**6))
def test_exactly_as_many_parts_none_without_slots(
    load: np.ndarray, start: int, parts: int, observations: int | None
) -> None:
    parts = min(parts, len(load))
    points = even_cut_points(load, start, start + len(load), parts, observations=observations)
    bounds = [start, *points, start + len(load)]
    assert len(points) == parts - 1
    assert all(before < after for before, after in pairwise(bounds))
    assert all(type(point) is int for point in points)


def lowest_spread(load: np.ndarray, parts: int) -> float:
    """The least by which the largest of two parts can exceed the other, by trying each cut."""
    assert parts == 2
    return min(float(abs(load[:cut].sum() - load[cut:].sum())) for cut in range(1, len(load)))


@given(loads().filter(lambda load: len(load) > 1 and load.sum() > 0))
def test_two_parts_are_as_even_as_any_cut_makes_them(load: np.ndarray) -> None:
    points = even_cut_points(load, 0, len(load), 2, observations=MANY)
    assert np.ptp(children(load, 0, points)) <= lowest_spread(load, 2) + load.sum() * 1e-6


@given(loads().filter(lambda load: load.sum() > 0), st.integers(2, 8))
def test_no_part_has_more_than_an_even_share_and_the_heaviest_slot(load: np.ndarray, parts: int) -> None:
    parts = min(parts, len(load))
    sums = children(load, 0, even_cut_points(load, 0, len(load), parts, observations=MANY))
    assert sums.max() <= load.sum() / parts + load.max() + load.sum() * 1e-6


def test_what_a_heavy_slot_leaves_is_shared_evenly() -> None:
    """The quantiles lie at 25, 50 and 75: within the heavy slot one of them can only go to its edge."""
    load = np.ones(61)
    load[30] = 40
    sums = children(load, 0, even_cut_points(load, 0, 61, 4, observations=MANY))
    assert sorted(sums) == [15, 15, 30, 40]


@given(st.data(), st.integers(2, 8))
def test_children_are_within_a_quarter_of_each_other_where_no_slot_is_heavy(data: st.DataObject, parts: int) -> None:
    """None with more than a tenth of an even share."""
    load = np.array(data.draw(st.lists(st.integers(0, 100), min_size=100, max_size=2000)), dtype=float)
    load[load > load.sum() / parts / 10] = 0
    if not load.any() or load.max() > load.sum() / parts / 10:
        return
    sums = children(load, 0, even_cut_points(load, 0, len(load), parts, observations=MANY))
    assert sums.max() <= 1.25 * sums.min() + load.sum() * 1e-6


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 8, 1000])
def test_equal_widths_where_nothing_was_seen(parts: int) -> None:
    points = even_cut_points(np.zeros(SLOTS, np.uint32), 0, SLOTS, parts)
    widths = np.diff([0, *points, SLOTS])
    assert widths.max() - widths.min() <= 1


def test_a_handful_of_messages_says_little_and_many_say_all() -> None:
    load = np.zeros(1000)
    load[:10] = 1
    few = even_cut_points(load, 0, 1000, 2, observations=1)
    many = even_cut_points(load, 0, 1000, 2, observations=MANY)
    assert 400 < few[0] <= 500 and many == (5,)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_equal_parts_share_what_was_seen_of_that_very_range_or_else_its_slots(parts: int) -> None:
    load = np.zeros(70)
    load[:7] = 1
    target = Target(messages=100, bytes=1000)
    by_width = even_cut_points(np.zeros(70), 1000, 1070, parts)
    for seen in (None, SlotTraffic(load[1:], load[1:], MANY)):
        assert equal_parts(seen, 1000, 1070, parts, target) == by_width
    assert equal_parts(SlotTraffic(load, np.full(70, 2), MANY), 1000, 1070, parts, target) == by_width, "bytes press"
    points = equal_parts(SlotTraffic(load * 1000, load, MANY), 1000, 1070, parts, target)
    assert children(load, 1000, points).max() <= np.ceil(7 / parts)


def test_stretches_without_load_are_given_away_as_a_whole() -> None:
    load = np.zeros(SLOTS)
    load[100], load[60_000] = 500, 500
    (point,) = even_cut_points(load, 0, SLOTS, 2)
    assert 100 < point <= 60_000


def test_a_slot_with_a_large_share_gets_a_range_of_its_own() -> None:
    load = np.ones(1000)
    load[400] = 1500
    cut = cut_hot(load, 5000, 6000, 2, most_parts=3, observations=MANY)
    assert cut.points == (5400, 5401)
    assert cut.shares == pytest.approx((400 / 2499, 1500 / 2499, 599 / 2499), abs=1e-3)


def test_no_more_parts_than_the_rest_of_the_load_needs() -> None:
    load = np.ones(1000)
    load[0] = 2000
    cut = cut_hot(load, 0, 1000, 8, observations=MANY)
    assert len(cut.points) + 1 == 4, "one slot has 2/3 of 8 parts' load; the rest fills 2.7 parts"


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_a_slot_that_no_cut_helps_is_told_and_nothing_is_cut(parts: int) -> None:
    load = np.ones(1000)
    load[123] = 9000
    assert cut_hot(load, 4000, 5000, parts, most_parts=8, observations=MANY) == Cut((), 4123)


def test_a_single_slot_is_hot_by_itself() -> None:
    assert cut_hot(np.array([7]), 44, 45, 2) == Cut((), 44)


def test_room_for_two_parts_is_enough_only_for_a_hot_slot_at_the_edge() -> None:
    load = np.ones(1001)
    load[0] = 1500
    assert cut_hot(load, 0, 1001, 2, observations=MANY).points == (1,)
    load[[0, 500]] = load[[500, 0]]
    assert cut_hot(load, 0, 1001, 2, observations=MANY) == Cut((), 500)
    assert cut_hot(load, 0, 1001, 2, most_parts=3, observations=MANY).points == (500, 501)


@given(loads(), st.integers(2, 8), st.integers(0, 1), st.floats(0.5, 50))
def test_splitting_comes_to_an_end(load: np.ndarray, parts: int, more: int, limit_share: float) -> None:
    """Whoever splits again and again all that has too much: each child has clearly less than its parent had."""
    limit = max(load.sum() / limit_share, 1e-3)
    waiting = [(0, len(load))]
    splits = 0
    while waiting:
        start, stop = waiting.pop()
        inside = load[start:stop]
        if inside.sum() <= limit:
            continue
        cut = cut_hot(inside, start, stop, parts, most_parts=parts + more, observations=MANY)
        assert (cut.hot_slot is None) == bool(cut.points)
        if cut.hot_slot is not None:
            assert load[cut.hot_slot] == inside.max()
            continue
        splits += 1
        assert len(cut.points) < parts + more
        assert children(inside, start, cut.points).max() <= (LARGEST_SHARE + 1e-6) * inside.sum()
        waiting += pairwise((start, *cut.points, stop))
    levels = 1 + np.log(limit_share + 1) / -np.log(LARGEST_SHARE + 1e-6)
    assert splits <= levels * max(limit_share, 1)


def test_of_messages_and_bytes_what_presses() -> None:
    messages, size_bytes = np.array([1, 2]), np.array([500, 100])
    assert pressing(messages, size_bytes, Target(messages=1, bytes=1000)) is messages
    assert pressing(messages, size_bytes, Target(messages=100, bytes=1000)) is size_bytes


@pytest.mark.parametrize(
    ("load", "parts", "why"),
    [
        (np.ones(9), 2, "does not fit the slots"),
        (np.ones((10, 1)), 2, "does not fit the slots"),
        (np.ones(10), 11, "cannot be cut into 11 parts"),
        (np.ones(10), 0, "cannot be cut into 0 parts"),
        (np.array([1, -1] * 5), 2, "a number from 0 on"),
        (np.array([1, np.nan] * 5), 2, "a number from 0 on"),
    ],
)
def test_invalid_traffic(load: np.ndarray, parts: int, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        even_cut_points(load, 20, 30, parts)


def test_a_split_into_one_is_none() -> None:
    with pytest.raises(InvalidInput, match="two parts or more, not 1"):
        cut_hot(np.ones(10), 0, 10, 1)
