"""Averages of one segment's load: what they come to, what a young segment says, and what idle time does."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.slots import SLOTS
from filer.topic.topic_config import MergeRule, Scaling, SplitRule, Target, TopicConfig
from leader.traffic.traffic_averages import SegmentTraffic, TrafficAverages, goes_on_for
from tests.support.topic.lineages import Lineage

RULES = (SplitRule(times_target=5, for_seconds=120), SplitRule(times_target=1, for_seconds=600))
CONFIG = TopicConfig(target=Target(messages=100, bytes=1000), scaling=Scaling(split=RULES, merge=MergeRule()))


def fed(
    averages: TrafficAverages, rate: float, seconds: int, *, start: int = 0, size_bytes: float = 0
) -> SegmentTraffic:
    """That many messages a second, each of so many bytes, for so long, tick by tick."""
    for second in range(start + 1, start + seconds + 1):
        averages.tick(second, rate, rate * size_bytes)
    return averages.load("t", 3)


def young(config: TopicConfig = CONFIG) -> TrafficAverages:
    return TrafficAverages(config, now_seconds=0)


@pytest.mark.parametrize("seconds", [1, 10, 119, 120, 5000])
def test_a_steady_rate_is_its_own_average_from_the_first_tick_on(seconds: int) -> None:
    load = fed(young(), 50, seconds)
    assert (load.topic, load.segment, load.age_seconds) == ("t", 3, seconds)
    for average in (load.recent, load.warmest, load.merge_average):
        assert average == pytest.approx(0.5)
    assert load.messages_per_second == pytest.approx(50)


def test_messages_or_bytes_whichever_is_nearer_to_its_target() -> None:
    assert fed(young(), 50, 10, size_bytes=1).recent == pytest.approx(0.5)
    assert fed(young(), 50, 10, size_bytes=100).recent == pytest.approx(5)


def test_a_rule_says_nothing_before_the_segment_is_as_old_as_its_window() -> None:
    averages = young()
    load = fed(averages, 1000, 119)
    assert (load.pressure, load.firing_average) == (0, 0)
    load = fed(averages, 1000, 1, start=119)
    assert (load.pressure, load.firing_average) == (pytest.approx(10 / 5), pytest.approx(10))
    assert fed(averages, 1000, 480, start=120).pressure == pytest.approx(10)


def test_a_sudden_flood_is_told_soon() -> None:
    averages = young()
    fed(averages, 10, 1000)
    load = fed(averages, 10_000, 7, start=1000)
    assert load.pressure > 1 and load.recent > 30
    assert load.warmest == pytest.approx(0.1 * exp(-7 / 120) + 100 * (1 - exp(-7 / 120)), rel=0.01)


def test_a_flood_that_is_over_presses_no_more_though_the_long_average_remembers() -> None:
    averages = young()
    fed(averages, 10, 1000)
    fed(averages, 10_000, 60, start=1000)
    load = fed(averages, 10, 120, start=1060)
    assert load.warmest > 1 and load.pressure < 1


def test_rates_go_by_the_time_that_has_passed() -> None:
    averages = young()
    averages.tick(4, 20, 400, read_messages=80, read_bytes=8000)
    load = averages.load("t", 3)
    assert (load.messages_per_second, load.bytes_per_second) == (pytest.approx(5), pytest.approx(100))
    assert (load.read_messages_per_second, load.read_bytes_per_second) == (pytest.approx(20), pytest.approx(2000))


def test_idle_ticks_decay_and_a_pause_counts_as_long_as_it_was() -> None:
    ticking, paused = young(), young()
    fed(ticking, 100, 600), fed(paused, 100, 600)
    idle = fed(ticking, 0, 900, start=600)
    paused.tick(1500, 0, 0)
    slept = paused.load("t", 3)
    assert idle.merge_average == pytest.approx(slept.merge_average)
    assert idle.recent == pytest.approx(slept.recent, abs=1e-9) and idle.recent < 1e-9


@given(st.lists(st.tuples(st.floats(0.01, 1000), st.floats(0, 1e6)), min_size=1, max_size=30))
def test_no_average_leaves_the_range_of_what_came(ticks: list[tuple[float, float]]) -> None:
    averages, now = young(), 0.0
    rates = []
    for elapsed, messages in ticks:
        before, now = now, now + elapsed
        averages.tick(now, messages, 0)
        rates.append(messages / (now - before) / 100)
    load = averages.load("t", 3)
    low, high = min(rates) * (1 - 1e-6) - 1e-9, max(rates) * (1 + 1e-6) + 1e-9
    assert all(low <= each <= high for each in (load.recent, load.merge_average, load.warmest))
    assert load.merge_average <= load.warmest


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=50))
def test_what_two_segments_have_together_is_no_more_than_their_sum(ticks: list[tuple[int, int]]) -> None:
    """So a merge of two whose averages add up to little has little."""
    left, right, both = young(), young(), young()
    for second, (few, many) in enumerate(ticks, start=1):
        left.tick(second, few, few * 20)
        right.tick(second, many, many * 3)
        both.tick(second, few + many, few * 20 + many * 3)
    parts = left.load("t", 0).merge_average + right.load("t", 1).merge_average
    assert both.load("t", 2).merge_average <= parts * (1 + 1e-9)


@pytest.mark.parametrize("now_seconds", [5.0, 4.0])
def test_two_ticks_at_one_time_are_refused(now_seconds: float) -> None:
    averages = young()
    averages.tick(5, 10, 10)
    with pytest.raises(ValueError, match="no time has passed"):
        averages.tick(now_seconds, 10, 10)


def test_before_the_first_tick_nothing_is_said() -> None:
    assert young().load("t", 3) == SegmentTraffic("t", 3, 0, 0, 0, 0, 0, 0, 0, 0)


def test_a_changed_target_holds_at_once() -> None:
    averages = young()
    before = fed(averages, 50, 700)
    averages.configure(CONFIG.model_copy(update={"target": Target(messages=25, bytes=1000)}))
    after = averages.load("t", 3)
    assert after.pressure == pytest.approx(4 * before.pressure)
    assert after.age_seconds == before.age_seconds


def test_changed_windows_begin_with_what_the_nearest_knows() -> None:
    averages = young()
    fed(averages, 50, 700)
    scaling = Scaling(split=(SplitRule(times_target=1, for_seconds=650),), merge=MergeRule(for_seconds=900))
    averages.configure(CONFIG.model_copy(update={"scaling": scaling}))
    load = averages.load("t", 3)
    assert (load.pressure, load.merge_average) == (pytest.approx(0.5), pytest.approx(0.5))
    assert fed(averages, 50, 100, start=700).merge_average == pytest.approx(0.5)


def test_without_split_rules_nothing_presses() -> None:
    config = CONFIG.model_copy(update={"scaling": Scaling(split=())})
    load = fed(young(config), 1e6, 5000)
    assert (load.pressure, load.warmest) == (0, pytest.approx(1e4))


@given(st.integers(1, 700), st.integers(0, 700))
def test_the_next_owner_goes_on_as_the_first_would_have(seconds: int, more: int) -> None:
    stayed, later_seconds = young(), 5000
    fed(stayed, 30, seconds, size_bytes=7)
    moved = TrafficAverages(CONFIG, now_seconds=later_seconds)
    moved.take_over(stayed.known())
    assert moved.load("t", 3) == stayed.load("t", 3)
    assert fed(moved, 400, more, start=later_seconds) == fed(stayed, 400, more, start=seconds)


def test_the_next_owner_keeps_what_it_has_watched_for_longer() -> None:
    old, new = young(), young()
    fed(old, 30, 10)
    before = fed(new, 80, 11)
    new.take_over(old.known())
    assert new.load("t", 3) == before


def test_the_next_owner_goes_by_other_windows_where_they_were_changed_on_the_way() -> None:
    old = young()
    fed(old, 30, 700)
    scaling = Scaling(split=(SplitRule(times_target=1, for_seconds=7),), merge=MergeRule(for_seconds=500))
    new = young(TopicConfig(target=CONFIG.target, scaling=scaling))
    new.take_over(old.known())
    load = new.load("t", 3)
    assert (load.age_seconds, load.merge_average, load.warmest) == (700, pytest.approx(0.3), pytest.approx(0.3))


def test_a_segment_goes_on_for_the_one_that_had_just_its_slots() -> None:
    lineage = Lineage()
    lineage.add(0, 100)
    lineage.add(100, SLOTS)
    lineage.split(lineage.segments[0], [], 5)
    lineage.split(lineage.segments[1], [200], 5)
    lineage.merge([lineage.segments[3], lineage.segments[4]], [0, 0])
    known = lineage.segments
    assert goes_on_for(known[2], known) is known[0]
    assert goes_on_for(known[2], {1: known[1]}) is None, "it is not known any more"
    assert [goes_on_for(known[each], known) for each in (0, 3, 4, 5)] == [None] * 4


def test_a_load_in_between_tells_nothing_of_what_is_published() -> None:
    lineage = Lineage()
    lineage.add(0, 100)
    lineage.add(100, SLOTS)
    lineage.cut_anew(lineage.open, [30, 5000], [5, 5])
    for segment in lineage.open:
        lineage.segments[segment.id] = segment.model_copy(update={"load": "l"})
    lineage.cut_anew(lineage.open, [100], [5, 5, 5])
    known = lineage.segments
    assert [goes_on_for(known[each], known) for each in (5, 6)] == [known[0], known[1]]
    lineage.merge([known[5], known[6]], [0, 0])
    assert goes_on_for(known[7], known) is None
