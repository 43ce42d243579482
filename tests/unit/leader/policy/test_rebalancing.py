"""Which segments move so that what brokers carry is even: by number, by load, and never for nothing."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filer.topic.topic_config import Target, TopicConfig
from filer.topic.topic_state import TopicState
from leader.membership.coordinator import BrokerInfo
from leader.policy import rebalancing
from leader.policy.placement import owned
from leader.policy.rebalancing import CLEAR_SHARE, LEAST_EXCESS, MOST_MOVES, MOST_TRAFFIC_MOVES, rebalance
from leader.traffic.broker_traffic import SEGMENT_WEIGHT, carried
from leader.traffic.traffic_averages import SegmentTraffic
from leader.traffic.traffic_table import TrafficTable
from leader.transitions import SealedEnd, begin_replacement, finished, new_topic

OLD_SECONDS = 10_000.0
_ONE = Target()


def broker(name: str, *, draining: bool = False) -> BrokerInfo:
    return BrokerInfo(name, f"http://{name}", "", "1", draining)


def topic(*owners: str, name: str = "t", config: TopicConfig | None = None) -> TopicState:
    """A topic of open segments of these owners."""
    return new_topic(name, config or TopicConfig(), len(owners), lambda n: (owners[n],), now_us=1)


def moving(state: TopicState, owners: Mapping[int, str]) -> TopicState:
    """With a transition under way."""
    sealing = [s.id for s in state.open_segments if s.id in owners]
    begun = begin_replacement(state, sealing, lambda n: (owners[sealing[n]],), "move", now_us=2)
    assert begun is not None
    return begun.model_copy(update={"version": state.version + 1})


def moved(state: TopicState, owners: Mapping[int, str]) -> TopicState:
    begun = moving(state, owners)
    assert begun.transition is not None
    after = finished(begun, begun.transition, dict.fromkeys(owners, SealedEnd(0)), now_us=3)
    assert after is not None
    return after.model_copy(update={"version": state.version + 2})


def load(
    segment: int, work: float, *, name: str = "t", lasting: float = 1.0, recent: float = 0.5, age: float = OLD_SECONDS
) -> SegmentTraffic:
    """A segment that costs its owner so many default targets, and has cost such a share of it for long."""
    return SegmentTraffic(
        name, segment, work * _ONE.messages, 0, recent, 0, 0, recent, recent * lasting, age_seconds=age
    )


def table_of(*states: TopicState, loads: Sequence[SegmentTraffic] = ()) -> TrafficTable:
    table = TrafficTable()
    for state in states:
        table.apply(state)
    table.record(loads, now_seconds=1)
    return table


def brokers(names: str) -> list[BrokerInfo]:
    return [broker(name) for name in names]


def settled(states: list[TopicState], table: TrafficTable, members: Sequence[BrokerInfo]) -> int:
    """How many moves it takes until there is none."""
    count = 0
    while plan := rebalance(table, members):
        count += sum(map(len, plan.values()))
        for index, state in enumerate(states):
            if state.topic in plan:
                states[index] = moved(state, plan[state.topic])
                table.apply(states[index])
        assert count < 1000, "it never ends"
    return count


# -- by number ---------------------------------------------------------------------------------------------


def test_what_nothing_is_known_of_is_spread_by_number_and_topics_under_way_are_left_alone() -> None:
    states = [topic("a", "a", "a", "a"), topic("b", name="u")]
    plan = rebalance(table_of(*states), brokers("abc"))
    assert sorted(plan) == ["t"]
    assert sorted(plan["t"].values()) == ["b", "c"]
    assert rebalance(table_of(*states), brokers("abc"), except_topics={"t", "unknown"}) == {}
    assert rebalance(table_of(*states), []) == {}, "there is nobody"


def test_what_is_about_to_be_opened_is_counted() -> None:
    state, other = topic("a", "a", "a", "a"), topic("a", "a", name="u")
    table = table_of(moving(state, {0: "b", 1: "c", 2: "b"}), other)
    assert rebalance(table, brokers("abc")) == {"u": {0: "c"}} or rebalance(table, brokers("abc")) == {"u": {1: "c"}}
    for giver, taker in ("ab", "ba"):
        table = table_of(topic(giver), topic(giver, giver, name="u"))
        assert rebalance(table, brokers("ab")) != {}
        table.expect(moving(topic(giver), {0: taker}))
        assert rebalance(table, brokers("ab")) == {}
        table.release("t")
        assert rebalance(table, brokers("ab")) != {}


def test_moves_are_bounded() -> None:
    table = table_of(topic(*["a"] * (4 * MOST_MOVES)))
    assert len(rebalance(table, brokers("ab"))["t"]) == MOST_MOVES


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8), max_size=6), st.data())
def test_segments_without_load_are_even_by_as_few_moves_as_will_do(
    owners: list[list[str]], data: st.DataObject
) -> None:
    draining = data.draw(st.sets(st.sampled_from("abcdefgh"), max_size=7))
    members = [broker(name, draining=name in draining) for name in data.draw(st.permutations("abcdefgh"))]
    states = [topic(*each, name=f"t{n}") for n, each in enumerate(owners)]
    is_known, chance = data.draw(st.booleans()), data.draw(st.randoms(use_true_random=False))
    # Next to nothing is as good as nothing.
    loads = [load(s.id, chance.uniform(0, 1e-3), name=state.topic) for state in states for s in state.segments]
    loads = loads if is_known else []
    plan = rebalance(table_of(*states, loads=loads), members)
    fit = {each.id for each in members if not each.draining}
    counts = owned(states)
    before = {each: counts[each] for each in fit}
    after = Counter(before)
    for name, owner_of in plan.items():
        by_id = {s.id: s for state in states if state.topic == name for s in state.open_segments}
        for segment, to in owner_of.items():
            assert to in fit and by_id[segment].owner in fit, "who drains is no part of it"
            after[by_id[segment].owner] -= 1
            after[to] += 1
    total = sum(before.values())
    most = math.ceil(total / len(fit))
    assert all(total // len(fit) <= after[each] <= most for each in fit)
    needed = max(
        sum(max(count - most, 0) for count in before.values()),
        sum(max(total // len(fit) - count, 0) for count in before.values()),
    )
    assert sum(map(len, plan.values())) == needed
    assert not plan or max(before.values()) - min(before.values()) > 1


def test_a_broker_that_joins_gets_its_share_of_number_and_load_at_once() -> None:
    states = [topic(*"abc" * 8)]
    loads = [load(n, 0.1 + 0.2 * (n % 5), age=1) for n in range(24)]
    table = table_of(*states, loads=loads)
    assert settled(states, table, brokers("abcd")) <= 8
    now = carried(table)
    assert max(now.values()) <= 1.15 * sum(now.values()) / 4
    assert set(owned(states).values()) <= {5, 6, 7}


def test_who_has_fewer_segments_and_as_much_to_do_keeps_fewer() -> None:
    state = topic("a", "a", *["b"] * 10)
    loads = [load(n, 1.0 if n < 2 else 0.2) for n in range(12)]
    assert rebalance(table_of(state, loads=loads), brokers("ab")) == {}


def young(works: Sequence[float]) -> list[SegmentTraffic]:
    """Loads of segments that have just been opened, which move by number alone."""
    return [load(n, work, age=1) for n, work in enumerate(works)]


def test_who_is_not_idle_takes_nothing_for_owning_less() -> None:
    state = topic(*["a"] * 10, *"bbb")
    assert rebalance(table_of(state, loads=young([1.15 / 10] * 10 + [0.85 / 3] * 3)), brokers("ab")) == {}
    assert rebalance(table_of(state, loads=young([1.6 / 10] * 10 + [0.4 / 3] * 3)), brokers("ab")) != {}


def test_of_those_that_own_equally_little_whoever_carries_less_is_first() -> None:
    assert rebalance(table_of(topic(*"aaabc"), loads=young([0.6, 0.6, 0.6, 0.3, 0.1])), brokers("abc")) == {
        "t": {0: "c"}
    }


def test_who_joins_takes_by_number_until_it_carries_nearly_the_average() -> None:
    plan = rebalance(table_of(topic(*["a"] * 40), loads=young([0.05] * 40)), brokers("ab"))
    assert len(plan["t"]) == 19


def test_whoever_gets_a_segment_carries_no_more_than_whoever_gave_it() -> None:
    """Broker c is why the others count as idle."""
    assert rebalance(table_of(topic(*"aaabc"), loads=young([1, 1, 1, 1.2, 10])), brokers("abc")) == {}


def test_who_cannot_give_keeps_no_other_from_it() -> None:
    works = [*[0.5] * 4, 1.2, 10, 0.9, 0.9, 0.1]
    assert rebalance(table_of(topic(*"aaaabcddd"), loads=young(works)), brokers("abcd")) == {"t": {8: "b"}}


def test_who_has_taken_enough_keeps_no_other_from_it() -> None:
    """Broker c carries nearly the average soon, by fewer segments than d needs to."""
    works = [*[0.1] * 20, 0.4, 0, 0, 0]
    plan = rebalance(table_of(topic(*["a"] * 20, "c", *"ddd"), loads=young(works)), brokers("acd"))
    after = Counter(plan["t"].values())
    assert after == {"c": 4, "d": 6}


# -- by load -----------------------------------------------------------------------------------------------


def test_a_broker_with_clearly_more_load_gives_what_evens_out_best() -> None:
    state = topic(*"aaabbb")
    loads = [load(n, work) for n, work in enumerate([0.8, 0.8, 0.4, 0.3, 0.3, 0.4])]
    assert rebalance(table_of(state, loads=loads), brokers("ab")) == {"t": {2: "b"}}


def test_what_moves_is_no_more_than_the_giver_has_too_much() -> None:
    works = [0.9, 0.5, 0.6, 0.8, 0.8, 0.45, 0.45]
    plan = rebalance(table_of(topic(*"aaabbcc"), loads=[load(n, work) for n, work in enumerate(works)]), brokers("abc"))
    assert plan == {"t": {1: "c"}}, "not 0.6, which c has room for"


def slight(excess: float) -> list[SegmentTraffic]:
    """Broker a has so much more than the average of a and b."""
    return [load(0, 0.9 * (1 + excess)), load(1, 0.1 * (1 + excess)), load(2, 0.9 * (1 - excess)), load(3, 0.1)]


def test_what_is_not_clearly_more_stays() -> None:
    state = topic(*"aabb")
    assert rebalance(table_of(state, loads=slight(CLEAR_SHARE * 0.9)), brokers("ab")) == {}
    assert rebalance(table_of(state, loads=slight(CLEAR_SHARE * 1.5)), brokers("ab")) == {"t": {1: "b"}}


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"lasting": 0.0}, id="it has only begun"),
        pytest.param({"age": 100.0}, id="it has just been opened"),
        pytest.param({"recent": 1.2}, id="it is about to split"),
        pytest.param({"recent": 1.0}, id="it is at its target"),
    ],
)
def test_what_does_not_last_or_will_soon_be_something_else_stays(how: dict[str, float]) -> None:
    state = topic(*"aaabbb")
    works = [0.8, 0.8, 0.4, 0.3, 0.3, 0.4]
    assert rebalance(table_of(state, loads=[load(n, work, **how) for n, work in enumerate(works)]), brokers("ab")) == {}


def test_what_no_split_can_help_moves_above_its_target_too() -> None:
    works = [0.8, 0.8, 0.4, 0.3, 0.3, 0.4]
    loads = [load(n, work, recent=1.2) for n, work in enumerate(works)]
    full = topic(*"aaabbb", config=TopicConfig(max_segments=6))
    assert rebalance(table_of(full, loads=loads), brokers("ab")) == {"t": {2: "b"}}
    table = table_of(topic(*"aaabbb"), loads=loads)
    for segment in range(3):
        table.hold("t", segment, 0, until_seconds=1)
    assert rebalance(table, brokers("ab")) == {"t": {2: "b"}}, "one slot carries it"


def test_nothing_is_moved_out_of_the_way_of_what_is_about_to_split() -> None:
    works = [1.2, 0.5, 0.3, 0.2, 0.2, 0.2]
    loads = [load(n, work, recent=1.2 if n == 0 else 0.5) for n, work in enumerate(works)]
    table = table_of(topic(*"aaabbb"), loads=loads)
    assert rebalance(table, brokers("ab")) == {}
    table.hold("t", 0, 0, until_seconds=1)
    assert rebalance(table, brokers("ab")) == {"t": {1: "b"}}, "no cut has been found"


def test_who_has_too_much_besides_what_is_about_to_split_gives_of_that() -> None:
    works = [0.5, 1.0, 0.8, 0.6, 0.3, 0.3, 0.4]
    loads = [load(n, work, recent=1.0 if n == 0 else 0.5) for n, work in enumerate(works)]
    assert rebalance(table_of(topic(*"aaaabbb"), loads=loads), brokers("ab")) == {"t": {3: "b"}}


A_SWAP = [1, 1, 0.5, 0.3, 0.3, 0.65, 0.65]
"""Of brokers a, b and c: nobody has room for what a has, but b could give 0.5 for it."""


def test_where_nobody_has_room_for_a_large_segment_it_is_swapped_for_a_smaller_one() -> None:
    state = topic(*"aabbbcc")
    assert rebalance(table_of(state, loads=[load(n, work) for n, work in enumerate(A_SWAP)]), brokers("abc")) == {
        "t": {0: "b", 2: "a"}
    }


@pytest.mark.parametrize(("smaller", "swaps"), [(0.65, False), (0.6, True)])
def test_a_swap_has_to_help_more_than_a_move(smaller: float, swaps: bool) -> None:
    works = [1, 1, 0.8, 0.3, 0.2, smaller, smaller]
    plan = rebalance(table_of(topic(*"aabbbcc"), loads=[load(n, work) for n, work in enumerate(works)]), brokers("abc"))
    assert plan == ({"t": {0: "c", 5: "a"}} if swaps else {})


def test_a_swap_that_nobody_would_notice_is_none() -> None:
    works = np.array([1, 1, 0.5, 0.2, 0.2, 0.65, 0.65])
    for scale, swaps in ((0.19, False), (0.25, True)):
        loads = [load(n, work) for n, work in enumerate(scale * works)]
        assert bool(rebalance(table_of(topic(*"aabbbcc"), loads=loads), brokers("abc"))) == swaps


def test_of_all_swaps_the_one_that_evens_out_best_is_made() -> None:
    works = [1.3, 1.1, 0.6, 0.4, 0.4, 0.75, 0.75]
    plan = rebalance(table_of(topic(*"aabbbcc"), loads=[load(n, work) for n, work in enumerate(works)]), brokers("abc"))
    assert plan == {"t": {1: "b", 2: "a"}}, "not the largest that a has"
    works = [1, 1, 0.5, 0.3, 0.3, 1.05]
    plan = rebalance(table_of(topic(*"aabbbc"), loads=[load(n, work) for n, work in enumerate(works)]), brokers("abc"))
    assert plan == {"t": {0: "b", 2: "a"}}, "c carries less, and has nothing smaller to give"


def test_nothing_is_swapped_to_where_much_is_about_to_split() -> None:
    works = [1.5, 1.5, 0.5, 0.3, 0.3, 1.5, 0.9, 0.9]
    loads = [load(n, work, recent=1.2 if n == 5 else 0.5) for n, work in enumerate(works)]
    assert rebalance(table_of(topic(*"aabbbbcc"), loads=loads), brokers("abc")) == {}


@pytest.mark.parametrize("young", ["ab", "bc"])
def test_what_has_just_been_opened_is_not_swapped(young: str) -> None:
    owners = "aabbbcc"
    loads = [load(n, work, age=1 if owners[n] in young else OLD_SECONDS) for n, work in enumerate(A_SWAP)]
    assert rebalance(table_of(topic(*owners), loads=loads), brokers("abc")) == {}


def test_swaps_are_few_at_once() -> None:
    names = [f"{number:02}" for number in range(3 * MOST_TRAFFIC_MOVES + 3)]
    busy, others = names[: len(names) // 3], names[len(names) // 3 :]
    state = topic(*[name for name in busy for _ in range(2)], *[name for name in others for _ in range(3)])
    works = [1.0] * 2 * len(busy) + [0.5, 0.3, 0.3] * len(others)
    table = table_of(state, loads=[load(n, work) for n, work in enumerate(works)])
    assert len(rebalance(table, [broker(name) for name in names])["t"]) == 2 * MOST_TRAFFIC_MOVES


def test_who_can_be_helped_by_a_move_is_however_many_no_swap_can_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are looked at first have two large segments each, and all that others have is as large."""
    monkeypatch.setattr(rebalancing, "MOST_SWAP_TRIES", 2)
    names = [f"{number:02}" for number in range(12)]
    owners = [*names[:4] * 2, *[names[4]] * 4, *names[5:]]
    works = [2.0] * 8 + [0.9] * 4 + [2.0] * 7
    plan = rebalance(
        table_of(topic(*owners), loads=[load(n, work) for n, work in enumerate(works)]), [broker(n) for n in names]
    )
    assert list(plan["t"]) == [8]


def test_no_move_is_made_that_does_not_help() -> None:
    state = topic(*"aabb")
    assert rebalance(table_of(state, loads=[load(0, 5), load(1, 5), load(2, 0), load(3, 0)]), brokers("ab")) != {}
    lonely = topic(*"ab")
    assert rebalance(table_of(lonely, loads=[load(0, 5), load(1, 0)]), brokers("ab")) == {}, (
        "it would only be elsewhere"
    )


def test_a_quiet_cluster_moves_nothing_whatever_the_shares() -> None:
    state = topic(*"aaabbb")
    works = [0.8, 0.8, 0.4, 0.3, 0.3, 0.4]
    small = LEAST_EXCESS / 2
    assert (
        rebalance(table_of(state, loads=[load(n, work * small) for n, work in enumerate(works)]), brokers("ab")) == {}
    )


def test_moves_by_load_are_few_at_once() -> None:
    state = topic(*["a"] * 100, *["b"] * 100)
    plan = rebalance(table_of(state, loads=[load(n, 0.1 if n < 100 else 0.02) for n in range(200)]), brokers("ab"))
    assert len(plan["t"]) == MOST_TRAFFIC_MOVES


LOADS = st.lists(st.tuples(st.sampled_from("abcde"), st.floats(0, 3)), min_size=1, max_size=40)


@settings(deadline=None)
@given(LOADS, st.integers(2, 5))
def test_moves_come_to_an_end_and_each_makes_it_more_even(segments: list[tuple[str, float]], count: int) -> None:
    members = brokers("abcde"[:count])
    states = [topic(*(owner for owner, _ in segments))]
    table = table_of(*states, loads=[load(n, work) for n, (_, work) in enumerate(segments)])

    def squares() -> float:
        return sum(carried(table).get(each.id, 0.0) ** 2 for each in members)

    total = 0
    while plan := rebalance(table, members):
        before = squares()
        total += len(plan["t"])
        assert total <= len(segments) * 2
        states = [moved(states[0], plan["t"])]
        table.apply(states[0])
        assert squares() <= before + len(plan["t"]) * LEAST_EXCESS**2
    again = table_of(*states)
    assert len(again.segments) == len(table.segments[table.segments["topic"] >= 0])


@pytest.mark.parametrize("seed", range(3))
def test_noise_moves_nothing_where_load_has_been_evened_out(seed: int) -> None:
    """A fifth up or down in each report, for an hour."""
    chance = np.random.default_rng(seed)
    state = topic(*chance.choice(list("abcdef"), 60))
    works = {s.start_slot: min(float(chance.pareto(1.5)), 3.0) for s in state.open_segments}
    members, states = brokers("abcdef"), [state]
    table = table_of(state, loads=[load(s.id, works[s.start_slot]) for s in state.open_segments])
    settled(states, table, members)
    counts: list[int] = []
    for number in range(600):
        loads = [load(s.id, works[s.start_slot] * chance.normal(1, 0.2)) for s in states[0].open_segments]
        table.record(loads, now_seconds=6.0 * number + 2)
        plan = rebalance(table, members)
        counts.append(len(plan.get("t", ())))
        if plan:
            states[0] = moved(states[0], plan["t"])
            table.apply(states[0])
    assert sum(counts) <= MOST_TRAFFIC_MOVES and not any(counts[300:]), "what was near the limit may have gone past it"


def test_a_burst_moves_nothing() -> None:
    """Three times as much at one broker, for a minute."""
    state = topic(*"aabbcc")
    table = table_of(state, loads=[load(n, 0.5) for n in range(6)])
    for second in range(60):
        table.record([load(n, 1.5 if n < 2 else 0.5) for n in range(6)], now_seconds=2 + second)
    assert rebalance(table, brokers("abc")) == {}


def test_a_segment_without_messages_weighs_little_and_all_weigh_alike_where_nothing_is_known() -> None:
    table = table_of(topic("a", "a", "b"))
    assert carried(table) == pytest.approx({"a": 2 * SEGMENT_WEIGHT, "b": SEGMENT_WEIGHT})
    table.record([load(0, 2.0), load(1, 1.0)], now_seconds=1)
    assert carried(table) == pytest.approx({"a": 3 + 2 * SEGMENT_WEIGHT, "b": 1.5 + SEGMENT_WEIGHT}), "as the average"
