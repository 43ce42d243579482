"""Which broker gets which segment: even, stable, in different zones, and never a draining broker."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import TopicState, broken_invariants
from leader.membership.coordinator import BrokerInfo
from leader.policy.placement import (
    choose,
    early_orphans,
    maintainer,
    orphans,
    owned,
    replacements,
    under_replicated,
)
from leader.transitions import SealedEnd, begin_replacement, finished, new_topic


def broker(name: str, zone: str = "", *, draining: bool = False) -> BrokerInfo:
    return BrokerInfo(name, f"http://{name}", zone, "1", draining)


def topic(*placed: tuple[str, ...], name: str = "t", replicas: int = 1) -> TopicState:
    """A topic of open segments on these brokers."""
    return new_topic(name, TopicConfig(replicas=replicas), len(placed), lambda n: placed[n], now_us=1)


def moving(state: TopicState, segment: int, *brokers: str) -> TopicState:
    """With a transition under way."""
    begun = begin_replacement(state, [segment], lambda n: brokers, "move", now_us=2)
    assert begun is not None
    return begun


BROKERS = st.lists(
    st.builds(broker, st.sampled_from("abcdefgh"), st.sampled_from(("x", "y", "z")), draining=st.booleans()),
    max_size=8,
    unique_by=lambda each: each.id,
)
LIVING = BROKERS.filter(lambda brokers: any(not each.draining for each in brokers))
LOADS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 20))


def fit(brokers: Sequence[BrokerInfo]) -> list[BrokerInfo]:
    return [each for each in brokers if not each.draining] or list(brokers)


def test_owned_counts_what_a_transition_opens_and_not_what_it_seals() -> None:
    state = moving(topic(("a", "b"), ("a", "b"), ("b", "a")), 0, "c", "a")
    assert owned([state, topic(("c",), name="u")]) == {"a": 1, "b": 1, "c": 2}


def test_the_least_loaded_get_new_segments() -> None:
    brokers = [broker("a"), broker("b"), broker("c")]
    placed = choose(brokers, {"a": 2, "b": 0, "c": 1}, [1] * 3, replicas=1, salt="t")
    assert placed[0] == ("b",)
    assert Counter(owner for (owner,) in placed) == {"b": 2, "c": 1}


def test_what_belongs_apart_goes_to_as_many_as_there_are() -> None:
    """The parts of one hot segment: whoever has the least is not to get all of them."""
    brokers = [BrokerInfo(name, f"http://{name}", "", "1") for name in "abc"]
    loads = {"a": 9, "b": 0, "c": 5}
    placed = choose(brokers, loads, [1] * 5, replicas=1, salt="t", apart=True)
    assert [owner for (owner,) in placed] == ["b", "c", "a", "b", "c"]
    together = choose(brokers, loads, [1] * 5, replicas=1, salt="t")
    assert [owner for (owner,) in together] == ["b"] * 5


def test_the_heaviest_are_placed_first_and_all_by_what_is_carried() -> None:
    brokers = [broker(name) for name in "abc"]
    placed = choose(brokers, {"a": 5.0, "b": 1.0}, [1, 4, 2, 3.5], replicas=1, salt="t")
    assert [owner for (owner,) in placed] == ["b", "c", "b", "b"] or [owner for (owner,) in placed] == [
        "b", "c", "c", "b",
    ]  # fmt: skip
    carried = Counter({"a": 5.0, "b": 1.0})
    for (owner,), weight in zip(placed, [1, 4, 2, 3.5], strict=True):
        carried[owner] += weight
    assert max(carried.values()) <= 6.5


def test_nobody_gets_anything_where_there_is_nobody() -> None:
    assert choose([], {}, [1] * 3, replicas=2, salt="t") == []


def test_small_topics_spread() -> None:
    brokers = [broker(name) for name in "abcd"]
    owners = {choose(brokers, {}, [1], replicas=1, salt=f"topic {n}")[0][0] for n in range(100)}
    assert owners == set("abcd")


def test_followers_are_in_other_zones_while_there_are_any() -> None:
    brokers = [broker("a", "x"), broker("b", "x"), broker("c", "y"), broker("d", "z")]
    [(owner, *followers)] = choose(brokers, {"b": 1, "c": 1, "d": 1}, [1], replicas=3, salt="t")
    assert owner == "a" and sorted(followers) == ["c", "d"]


@given(LIVING, LOADS, st.integers(0, 12), st.integers(1, 5), st.text(max_size=3))
def test_choices_hold_what_is_asked(
    brokers: list[BrokerInfo], loads: dict[str, int], count: int, replicas: int, salt: str
) -> None:
    placed = choose(brokers, loads, [1] * count, replicas=replicas, salt=salt)
    candidates = {each.id: each.zone for each in fit(brokers)}
    assert len(placed) == count
    after = Counter({each: loads.get(each, 0) for each in candidates})
    for chosen in placed:
        assert len(set(chosen)) == len(chosen) == min(replicas, len(candidates))
        assert set(chosen) <= set(candidates)
        assert after[chosen[0]] == min(after[each] for each in candidates)
        after[chosen[0]] += 1
        zones = Counter(candidates[each] for each in chosen)
        unused = set(candidates.values()) - set(zones)
        assert not unused or max(zones.values()) == 1, "a zone came twice before another came once"
    assert placed == choose(brokers[::-1], loads, [1] * count, replicas=replicas, salt=salt)


def test_only_draining_brokers_are_better_than_none() -> None:
    assert choose([broker("a", draining=True)], {}, [1], replicas=1, salt="t") == [("a",)]


def test_orphans_have_lost_an_owner_or_a_follower() -> None:
    state = topic(("a", "b"), ("b", "c"), ("c", "d"))
    assert orphans(state, {"b"}) == [0, 1]
    assert orphans(state, frozenset()) == []
    begun = moving(state, 2, "a", "b")
    assert begun.transition is not None
    after = finished(begun, begun.transition, {2: SealedEnd(0)}, now_us=3)
    assert after is not None and orphans(after, {"c"}) == [1], "sealed ones are nobody's"


def test_thin_segments_lack_replicas_that_there_could_be() -> None:
    state = topic(("a", "b"), ("a",), ("b", "a", "c"), replicas=3)
    assert under_replicated(state, [broker("a")]) == []
    assert under_replicated(state, [broker("a"), broker("b")]) == [1]
    assert under_replicated(state, [broker("a"), broker("b"), broker("c")]) == [0, 1]
    assert under_replicated(state, [broker("a"), broker("b"), broker("c", draining=True)]) == [1]
    assert under_replicated(moving(state, 1, "b"), [broker("a"), broker("b")]) == []


def test_a_live_owner_keeps_its_segment_and_its_followers() -> None:
    state = topic(("a", "b", "c"), replicas=3)
    brokers = [broker("a"), broker("c"), broker("d")]
    assert replacements(state, state.open_segments, brokers, {}, {}) == {0: ("a", "c", "d")}


def test_a_draining_owner_or_follower_gives_its_segment_away() -> None:
    state = topic(("a", "b"), ("b", "a"), replicas=2)
    brokers = [broker("a", draining=True), broker("b"), broker("c")]
    placed = replacements(state, state.open_segments, brokers, {"c": 0, "b": 1}, {})
    assert placed == {0: ("c", "b"), 1: ("b", "c")}


def test_a_named_owner_gets_it_and_the_former_one_follows() -> None:
    state = topic(("a", "b"), replicas=2)
    brokers = [broker("a"), broker("b"), broker("c")]
    assert replacements(state, state.open_segments, brokers, {}, {}, owners={0: "c"}) == {0: ("c", "a")}
    assert replacements(state, state.open_segments, brokers, {}, {}, owners={0: "b"}) == {0: ("b", "a")}


def test_a_new_follower_comes_from_a_zone_that_nobody_kept_is_in() -> None:
    state = topic(("a", "b", "gone"), replicas=3)
    for names in ("cd", "dc"):
        brokers = [broker("a", "x"), broker("b", "y"), broker(names[0], "y"), broker(names[1], "z")]
        assert replacements(state, state.open_segments, brokers, {}, {}) == {0: ("a", "b", names[1])}


def test_segments_of_one_that_is_gone_go_to_several() -> None:
    state = topic(*[("gone",)] * 6)
    placed = replacements(state, state.open_segments, [broker("a"), broker("b"), broker("c")], {}, {})
    assert Counter(owner for (owner,) in placed.values()) == {"a": 2, "b": 2, "c": 2}
    assert replacements(state, state.open_segments, [], {}, {}) == {}


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True), min_size=1, max_size=6),
    LIVING,
    st.integers(1, 4),
)
def test_replacements_settle_what_called_for_them(
    placed: list[list[str]], brokers: list[BrokerInfo], replicas: int
) -> None:
    """Neither orphaned nor under-replicated: the leader has no reason to do it again."""
    state = topic(*map(tuple, placed), replicas=replicas)
    found = replacements(state, state.open_segments, brokers, owned([state]), {})
    begun = begin_replacement(state, [s.id for s in state.open_segments], lambda n: found[n], "failover", now_us=2)
    assert begun is not None and begun.transition is not None and broken_invariants(begun) == []
    after = finished(begun, begun.transition, {s.id: SealedEnd(0) for s in state.open_segments}, now_us=3)
    assert after is not None
    live = {each.id for each in brokers if not each.draining}
    assert orphans(after, set("abcdefgh") - live) == [] and under_replicated(after, brokers) == []
    assert all(len(set(s.brokers)) == len(s.brokers) for s in after.open_segments)


@pytest.mark.parametrize("gone", "abcd")
def test_a_keeper_that_leaves_changes_only_what_it_kept(gone: str) -> None:
    brokers = [broker(name) for name in "abcd"]
    before = {n: maintainer(brokers, "t", n) for n in range(200)}
    after = {n: maintainer([each for each in brokers if each.id != gone], "t", n) for n in range(200)}
    assert {n for n in before if before[n] != after[n]} == {n for n in before if before[n] == gone}
    assert set(before.values()) == set("abcd")
    assert maintainer([], "t", 1) is None
    assert maintainer(brokers[::-1], "t", 7) == before[7]


@pytest.mark.parametrize(
    ("placed", "gone", "refusing", "early"),
    [
        (("a",), "", "a", True),
        (("a", "b"), "", "a", True),
        (("a", "b"), "", "b", True),
        (("a", "b"), "", "ab", False),
        (("a", "b"), "b", "a", False),
        (("a", "b"), "a", "b", False),
        (("a", "b", "c"), "", "ab", True),
        (("a", "b", "c"), "c", "ab", False),
        (("a", "b", "c"), "", "abc", False),
        (("a", "b"), "", "c", False),
        (("a",), "a", "", False),
    ],
)
def test_a_segment_is_lost_early_only_if_somebody_can_seal_it(
    placed: tuple[str, ...], gone: str, refusing: str, early: bool
) -> None:
    assert early_orphans(topic(placed), set(gone), set(refusing), set()) == ([0] if early else [])


def test_segments_that_can_be_sealed_do_not_wait_for_those_that_cannot() -> None:
    state = topic(("a", "b"), ("a", "c"), ("a",), ("c", "d"), replicas=2)
    assert early_orphans(state, set(), {"a", "b"}, set()) == [1, 2]
    # Whoever is being looked at is not counted on.
    assert early_orphans(state, set(), {"a"}, {"a", "b"}) == [1, 2]
