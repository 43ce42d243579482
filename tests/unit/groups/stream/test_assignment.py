"""Who is to have which segment: even by traffic, with few moves."""

from groups.stream.assignment import assign, weights_of


def loads(target: dict[int, str], weights: dict[int, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for segment, member in target.items():
        found[member] = found.get(member, 0.0) + weights[segment]
    return found


def test_quiet_segments_are_spread_by_number() -> None:
    weights = weights_of(range(7), {})
    target = assign(dict.fromkeys(range(7)), weights, "abc")
    assert sorted(loads(target, weights).values()) == [2, 2, 3]


def test_busy_segments_are_spread_by_traffic() -> None:
    weights = weights_of(range(5), {0: 400.0, 1: 100.0, 2: 100.0, 3: 100.0, 4: 100.0})
    target = assign(dict.fromkeys(range(5)), weights, "ab")
    assert [segment for segment, member in target.items() if member == target[0]] == [0]


def test_nobody_moves_for_little() -> None:
    before = assign(dict.fromkeys(range(8)), weights_of(range(8), dict.fromkeys(range(8), 100.0)), "ab")
    shifted = weights_of(range(8), {segment: 100.0 + segment for segment in range(8)})
    assert assign(before, shifted, "ab") == before


def test_a_member_that_comes_stops_only_what_moves_to_it() -> None:
    weights = weights_of(range(9), {})
    before = assign(dict.fromkeys(range(9)), weights, "ab")
    target = assign(before, weights, "abc")
    assert loads(target, weights) == {"a": 3, "b": 3, "c": 3}
    assert sum(target[segment] != before[segment] for segment in target) == 3


def test_a_member_that_goes_stops_only_its_own() -> None:
    weights = weights_of(range(9), {})
    before = assign(dict.fromkeys(range(9)), weights, "abc")
    target = assign(before, weights, "ab")
    assert all(target[segment] == member for segment, member in before.items() if member != "c")
    assert set(loads(target, weights).values()) == {4, 5}


def test_everybody_gets_something_also_beside_a_hot_segment() -> None:
    weights = weights_of(range(3), {0: 1_000_000.0, 1: 0.0, 2: 0.0})
    target = assign(dict.fromkeys(range(3), "a"), weights, "abc")
    assert set(target.values()) == {"a", "b", "c"}
    assert assign({0: None}, weights, "abc") == {0: "a"} and assign({0: None}, weights, ()) == {}
