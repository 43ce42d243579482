"""Decisions over a table of loads: what splits, what merges, and everything that must keep from it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.topic.topic_config import MergeRule, Scaling, TopicConfig
from filer.topic.topic_state import TopicState
from leader.policy.scaling import MOST_GROUPS, MOST_PARTS, MergeDecision, ScalingDecision, SplitDecision, decide
from leader.traffic.traffic_averages import SegmentTraffic
from leader.traffic.traffic_table import TrafficTable
from leader.transitions import SealedEnd, begin_merge, begin_replacement, begin_split, finished, new_topic

OLD = 100_000.0
NOW = 1000.0
STALE_SECONDS = 10.0


def brokers_for(number: int) -> tuple[str, ...]:
    return ("b",)


def topic(segments: int, name: str = "t", config: TopicConfig | None = None) -> TopicState:
    return new_topic(name, config or TopicConfig(), segments, brokers_for, now_us=1)


def load(segment: int, average: float = 0.0, name: str = "t", **changes: float) -> SegmentTraffic:
    """Of an old segment whose averages are all the same, under a rule of one target."""
    same = SegmentTraffic(name, segment, 0, 0, average, average, average, average, average, OLD)
    return replace(same, **changes)


def table_of(state: TopicState, *loads: SegmentTraffic) -> TrafficTable:
    table = TrafficTable()
    table.apply(state)
    table.record(loads, now_seconds=NOW)
    return table


def decided(table: TrafficTable, now_seconds: float = NOW) -> list[ScalingDecision]:
    return decide(table, now_seconds=now_seconds, stale_seconds=STALE_SECONDS)


def loads(averages: Mapping[int, float], name: str = "t") -> list[SegmentTraffic]:
    return [load(segment, average, name) for segment, average in averages.items()]


# -- splits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("average", "parts"), [(1.01, 2), (2.0, 2), (2.1, 3), (7.2, 8), (100, 8)])
def test_what_presses_splits_into_as_many_as_it_fills(average: float, parts: int) -> None:
    [decision] = decided(table_of(topic(1), load(0, average)))
    assert decision == ScalingDecision("t", splits=(SplitDecision(0, parts, min(parts + 1, MOST_PARTS)),))


def test_parts_are_by_the_higher_of_the_recent_and_the_firing_average() -> None:
    assert decided(table_of(topic(1), load(0, 1.5, recent=4.5)))[0].splits[0].parts == 5
    assert decided(table_of(topic(1), load(0, 1.5, recent=1.1, firing_average=3.5)))[0].splits[0].parts == 4


def test_pressure_of_one_is_not_above_it() -> None:
    assert decided(table_of(topic(1), load(0, 1.0))) == []


def test_a_report_too_old_is_none() -> None:
    hot = table_of(topic(1), load(0, 5))
    assert decided(hot, NOW + STALE_SECONDS) and not decided(hot, NOW + STALE_SECONDS + 0.1)
    cold = table_of(topic(2), load(0), load(1))
    assert decided(cold, NOW + STALE_SECONDS) and not decided(cold, NOW + STALE_SECONDS + 0.1)


def test_the_maximum_gives_the_hottest_its_parts_first() -> None:
    config = TopicConfig(max_segments=9)
    [decision] = decided(table_of(topic(3, config=config), *loads({0: 2.5, 1: 1.5, 2: 5.5})))
    assert decision.splits == (SplitDecision(2, 6, 6), SplitDecision(0, 2, 2)), "3 + 5 + 1 is all there is room for"
    [decision] = decided(table_of(topic(1, config=TopicConfig(max_segments=4)), load(0, 2.5)))
    assert decision.splits == (SplitDecision(0, 3, 4),), "just room for one more that puts a hot slot apart"
    assert decided(table_of(topic(9, config=config), load(0, 9))) == []


def test_a_topic_splits_a_few_at_once_the_hottest_first() -> None:
    [decision] = decided(table_of(topic(20), *loads({n: 2.0 + n for n in range(20)})))
    assert [split.segment for split in decision.splits] == list(range(19, 19 - MOST_GROUPS, -1))


def test_a_hot_topic_behind_a_calm_one_splits() -> None:
    table = table_of(topic(1), load(0, 0.5))
    table.apply(topic(1, "u"))
    table.record([load(0, 2, "u")], now_seconds=NOW)
    assert [decision.topic for decision in decided(table)] == ["u"]


def test_a_held_segment_waits_and_others_do_not() -> None:
    table = table_of(topic(2), *loads({0: 5, 1: 2}))
    table.hold("t", 0, 7, until_seconds=NOW + 5)
    assert [split.segment for split in decided(table)[0].splits] == [1]
    assert [split.segment for split in decided(table, NOW + 5)[0].splits] == [0, 1]


def test_segments_that_wait_to_split_keep_cold_ones_waiting_and_what_cannot_split_does_not() -> None:
    averages = {0: 5, 1: 0, 2: 0, 3: 0}
    table = table_of(topic(4), *loads(averages))
    assert decided(table) == [ScalingDecision("t", splits=(SplitDecision(0, 5, 6),))]
    table.hold("t", 0, 7, until_seconds=NOW + 5)
    assert decided(table) == [ScalingDecision("t", merges=(MergeDecision(1, 2),))]


OFF = TopicConfig(scaling=Scaling(enabled=False))


@pytest.mark.parametrize("averages", [{0: 5.0, 1: 5.0}, {0: 0.0, 1: 0.0}])
def test_nothing_while_a_transition_is_under_way_or_scaling_is_off(averages: dict[int, float]) -> None:
    assert decided(table_of(topic(2), *loads(averages)))
    busy = begin_replacement(topic(2), [0], brokers_for, "roll", now_us=2)
    assert busy is not None
    assert decided(table_of(busy, *loads(averages))) == []
    assert decided(table_of(topic(2, config=OFF), *loads(averages))) == []


# -- merges ------------------------------------------------------------------------------------------------


def test_an_idle_topic_gets_to_its_minimum_in_pairs() -> None:
    [decision] = decided(table_of(topic(5), *loads(dict.fromkeys(range(5), 0.0))))
    assert decision.merges == (MergeDecision(0, 1), MergeDecision(2, 3))
    config = TopicConfig(min_segments=4)
    [decision] = decided(table_of(topic(5, config=config), *loads(dict.fromkeys(range(5), 0.0))))
    assert decision.merges == (MergeDecision(0, 1),)
    assert decided(table_of(topic(4, config=config), *loads(dict.fromkeys(range(4), 0.0)))) == []


def test_the_coldest_pairs_come_first() -> None:
    averages = {0: 0.2, 1: 0.1, 2: 0.05, 3: 0.05, 4: 0.1, 5: 0.15}
    [decision] = decided(table_of(topic(6), *loads(averages)))
    assert decision.merges[0] == MergeDecision(2, 3)
    assert MergeDecision(0, 1) not in decision.merges, "warmer than the topic's average"


@pytest.mark.parametrize("age", [0.0, 1199.0])
def test_the_young_wait(age: float) -> None:
    cold = [load(0), load(1)]
    assert decided(table_of(topic(2), cold[0], replace(cold[1], age_seconds=age))) == []
    assert decided(table_of(topic(2), cold[0], replace(cold[1], age_seconds=1200)))


def test_the_cooldown_counts_where_it_is_longer() -> None:
    config = TopicConfig(scaling=Scaling(merge=MergeRule(for_seconds=10), cooldown_seconds=60))
    for age, count in ((59, 0), (60, 1)):
        cold = [load(n, age_seconds=age) for n in range(2)]
        assert len(decided(table_of(topic(2, config=config), *cold))) == count


def test_unknown_is_not_cold() -> None:
    assert decided(table_of(topic(2), load(0))) == []
    assert decided(table_of(topic(3), load(0), load(2))) == []


def test_together_they_must_be_below_half_the_target_of_one() -> None:
    assert decided(table_of(topic(2), *loads({0: 0.25, 1: 0.24})))
    assert decided(table_of(topic(2), *loads({0: 0.25, 1: 0.25}))) == []


def test_one_that_was_warm_in_any_window_or_is_now_waits() -> None:
    for changes in ({"warmest": 1.0}, {"recent": 1.0}):
        assert decided(table_of(topic(2), load(0, 0.1), load(1, 0.1, **changes))) == []


def test_neighbours_of_different_topics_are_none() -> None:
    table = table_of(topic(2), *loads({0: 0.9, 1: 0.0}))
    table.apply(topic(2, "u"))
    table.record(loads({0: 0.0, 1: 0.9}, "u"), now_seconds=NOW)
    assert decided(table) == []


@given(st.lists(st.floats(0, 0.2), min_size=2, max_size=12), st.data())
def test_some_pair_can_always_merge_where_all_are_cold_enough(averages: list[float], data: st.DataObject) -> None:
    minimum = data.draw(st.integers(1, len(averages)))
    config = TopicConfig(min_segments=minimum)
    decisions = decided(table_of(topic(len(averages), config=config), *loads(dict(enumerate(averages)))))
    merges = [merge for decision in decisions for merge in decision.merges]
    assert bool(merges) == (len(averages) > minimum)
    assert len(merges) <= len(averages) - minimum
    touched = [segment for merge in merges for segment in (merge.left, merge.right)]
    assert len(set(touched)) == len(touched)


# -- the minimum -------------------------------------------------------------------------------------------


def raised(segments: int, minimum: int, **settings: object) -> TopicState:
    return topic(segments, config=TopicConfig(min_segments=minimum, **settings))


def test_a_raised_minimum_splits_at_once_known_or_not_and_by_slots_where_not() -> None:
    for scaling in (Scaling(), Scaling(enabled=False)):
        [decision] = decided(table_of(raised(2, 6, scaling=scaling)))
        assert decision.splits == (SplitDecision(0, 3, 3, by_traffic=False), SplitDecision(1, 3, 3, by_traffic=False))


def test_a_raised_minimum_gives_more_parts_to_what_has_more_load() -> None:
    [decision] = decided(table_of(raised(3, 8), *loads({0: 0.5, 1: 0.11, 2: 0.0})))
    assert [(split.segment, split.parts) for split in decision.splits] == [(0, 5), (1, 2)]
    [unknown] = decided(table_of(raised(3, 8)))
    assert [(split.segment, split.parts) for split in unknown.splits] == [(0, 3), (1, 2), (2, 3)], "2 has a slot more"
    assert decided(table_of(raised(3, 8), load(0, 0.5))) == [unknown], "what is known of one says nothing of the others"
    assert decided(table_of(raised(3, 8), *loads(dict.fromkeys(range(3), 0.0)))) == [unknown], "nor does no load at all"


def test_a_raised_minimum_leaves_what_has_no_slot_to_spare() -> None:
    state = raised(1, 6)
    begun = begin_split(state, {0: [2]}, brokers_for, now_us=2)
    assert begun is not None and begun.transition is not None
    after = finished(begun, begun.transition, {0: SealedEnd(0)}, now_us=3)
    assert after is not None
    [decision] = decided(table_of(after, *loads({1: 0.9, 2: 0.01})))
    assert [(split.segment, split.parts) for split in decision.splits] == [(1, 2), (2, 4)]


@given(st.integers(1, 9), st.integers(1, 4096), st.data())
def test_a_raised_minimum_is_reached_in_one_transition(segments: int, minimum: int, data: st.DataObject) -> None:
    averages = data.draw(st.lists(st.floats(0, 50), min_size=segments, max_size=segments))
    state = raised(segments, minimum, max_segments=4096)
    known = loads(dict(enumerate(averages))) if data.draw(st.booleans()) else []
    splits = [s for decision in decided(table_of(state, *known)) for s in decision.splits if not s.by_traffic]
    assert sum(split.parts - 1 for split in splits) == max(minimum - segments, 0)


# -- both --------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, TopicState], list[SegmentTraffic]]:
    states, heard = {}, []
    for number in range(draw(st.integers(1, 4))):
        name = f"t{number}"
        minimum = draw(st.integers(1, 6))
        config = TopicConfig(min_segments=minimum, max_segments=draw(st.integers(minimum, 14)))
        states[name] = topic(draw(st.integers(1, 12)), name, config)
        for segment in states[name].segments:
            if draw(st.integers(0, 4)):
                average = draw(st.sampled_from([0.0, 0.1, 0.24, 0.3, 0.9, 1.0, 1.1, 3.0, 20.0]))
                heard.append(load(segment.id, average, name, age_seconds=draw(st.sampled_from([0.0, OLD]))))
    return states, heard


@given(worlds(), st.integers(0, 4), st.sets(st.sampled_from("abc")))
def test_a_few_topics_are_the_first_of_all_that_are_free(
    world: tuple[dict[str, TopicState], list[SegmentTraffic]], most: int, taken: set[str]
) -> None:
    states, heard = world
    table = TrafficTable()
    for state in states.values():
        table.apply(state)
    table.record(heard, now_seconds=NOW)
    few = decide(
        table, now_seconds=NOW, stale_seconds=STALE_SECONDS, most=most, is_free=lambda topic: topic not in taken
    )
    assert few == [decision for decision in decided(table) if decision.topic not in taken][:most]


@given(worlds())
def test_whatever_is_decided_can_be_done_and_is_the_same_each_time(
    world: tuple[dict[str, TopicState], list[SegmentTraffic]],
) -> None:
    states, heard = world
    table, again = TrafficTable(), TrafficTable()
    for state in states.values():
        table.apply(state)
        again.apply(state)
    table.record(heard, now_seconds=NOW)
    for each in heard:
        again.record([each], now_seconds=NOW)
    decisions = decided(table)
    assert decided(table) == decisions == decided(again)
    assert len({decision.topic for decision in decisions}) == len(decisions)
    for decision in decisions:
        state = states[decision.topic]
        assert bool(decision.splits) != bool(decision.merges)
        cuts = {s.segment: _points(state, s) for s in decision.splits}
        pairs = [(merge.left, merge.right) for merge in decision.merges]
        begun = (
            begin_split(state, cuts, brokers_for, now_us=2)
            if cuts
            else begin_merge(state, pairs, brokers_for, now_us=2)
        )
        assert begun is not None and begun.transition is not None
        assert len(begun.transition.seal) == len(cuts) + 2 * len(pairs), "all that was decided"
        after = finished(begun, begun.transition, dict.fromkeys(begun.transition.seal, SealedEnd(0)), now_us=3)
        assert after is not None
        limits = state.config.min_segments, state.config.max_segments, len(state.segments)
        assert min(limits) <= len(after.open_segments) <= max(limits)


def _points(state: TopicState, split: SplitDecision) -> list[int]:
    segment = state.segment(split.segment)
    assert segment is not None
    return [segment.start_slot + n for n in range(1, split.parts)]
