"""What the scaling policy comes to over time: it reacts, it settles, and nothing but load moves it."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from filer.slots import SLOTS, equal_ranges
from filer.topic.topic_config import MergeRule, Scaling, SplitRule, Target, TopicConfig
from leader.policy.cut_points import LARGEST_SHARE
from leader.policy.even_cuts import even_cut_points
from leader.traffic import traffic_table
from tests.simulation.braid import OBSERVED_MESSAGES, Braid, Change
from tests.simulation.traffic import (
    DAY_SECONDS,
    Shares,
    daily_wave,
    even,
    even_shares,
    flood,
    hot_slot_shares,
    moving_hot_spot,
    poisson,
    shaped,
    shares_of,
    steady,
    zipf_weights,
)
from tests.support.thoroughness import few_or_many

TARGET = 10_000.0
DEFAULTS = TopicConfig()
MINUTE, HOUR = 60.0, 3600.0
QUICK = TopicConfig(
    target=Target(messages=TARGET, bytes=1e12),
    scaling=Scaling(
        split=(
            SplitRule(times_target=5, for_seconds=2),
            SplitRule(times_target=2, for_seconds=5),
            SplitRule(times_target=1, for_seconds=10),
        ),
        merge=MergeRule(times_target=0.5, for_seconds=20),
        cooldown_seconds=10,
    ),
)
"""The default rules, sixty times as fast."""
QUICK_SETTLED_SECONDS = 200.0


def quick(traffic, **how) -> Braid:
    return Braid({"t": traffic}, QUICK, **how)


def test_a_flood_splits_until_all_segments_are_near_target_and_goes_back_when_it_is_over() -> None:
    braid = quick(even(flood(0.2 * TARGET, times=100, from_seconds=60, to_seconds=240)))
    braid.run(60)
    assert braid.changes == []
    braid.run(60)
    assert max(braid.segment_rates("t")) <= TARGET
    assert braid.imbalance() <= 1.25, "the load is spread"
    first = braid.changes[0]
    assert first.seconds - 60 <= 2 and first.opened == 8
    braid.run(500)
    assert len(braid.open("t")) == QUICK.min_segments


def test_it_goes_back_to_the_minimum_and_no_further() -> None:
    config = QUICK.model_copy(update={"min_segments": 3})
    braid = Braid({"t": even(flood(0.2 * TARGET, times=100, from_seconds=30, to_seconds=60))}, config, segments=3)
    braid.run(60)
    assert len(braid.open("t")) > 8
    braid.run(600)
    assert len(braid.open("t")) == 3


def test_raising_the_minimum_splits_at_once() -> None:
    braid = quick(shaped(steady(TARGET / 2), shares_of(zipf_weights())))
    braid.run(5)
    braid.configure("t", QUICK.model_copy(update={"min_segments": 40}))
    braid.tick()
    assert len(braid.open("t")) == 40 and len(braid.changes) == 1
    braid.run(QUICK_SETTLED_SECONDS)
    assert len(braid.open("t")) == 40 and len(braid.changes) == 1


def test_no_split_goes_past_the_maximum() -> None:
    config = QUICK.model_copy(update={"max_segments": 11})
    braid = Braid({"t": even(steady(100 * TARGET))}, config)
    braid.run(QUICK_SETTLED_SECONDS)
    assert len(braid.open("t")) == 11


@st.composite
def distributions(draw: st.DrawFn) -> np.ndarray:
    """Load over slots: an even part, lumps of a few widths anywhere, and single hot slots."""
    weights = np.full(SLOTS, draw(st.sampled_from([0.0, 0.1, 1.0])))
    for _ in range(draw(st.integers(0, 6))):
        width = draw(st.sampled_from([1, 1, 2, 100, 10_000]))
        first = draw(st.integers(0, SLOTS - width))
        weights[first : first + width] += draw(st.floats(0.01, 1)) * SLOTS / width
    return weights if weights.any() else np.ones(SLOTS)


# Without shrinking, which would take long.
@settings(max_examples=few_or_many(10, 25), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(distributions(), st.floats(0.0, 20.0), st.integers(1, 12))
def test_steady_load_at_any_level_settles_and_then_nothing_moves(
    weights: np.ndarray, times_target: float, segments: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # What moves segments looks back ten minutes, whatever the rules say: sixty times as fast as well.
        patch.setattr(traffic_table, "LASTING_SECONDS", traffic_table.LASTING_SECONDS / 60)
        check_that_it_settles(
            quick(shaped(steady(times_target * TARGET), shares_of(weights)), segments=segments), times_target
        )


def check_that_it_settles(braid: Braid, times_target: float) -> None:
    braid.run(QUICK_SETTLED_SECONDS)
    # Each child has at most so much of its parent: chains are that deep, and each level has at most so many hot ones.
    depth = 1 + max(0.0, math.log(max(times_target, 1)) / -math.log(LARGEST_SHARE))
    assert braid.groups("split") <= depth * max(times_target, 1)
    settled = len(braid.changes)
    braid.run(QUICK_SETTLED_SECONDS / 2)
    assert len(braid.changes) == settled
    for segment, rate in zip(braid.open("t"), braid.segment_rates("t"), strict=True):
        assert rate <= TARGET * (1 + 1e-6) or ("t", segment.id) in braid.hot_slots


@pytest.mark.parametrize("times_target", [0.0, 0.1, 0.49, 0.51, 0.99, 1.01, 1.5, 1.99, 2.01, 3.3, 7.9, 8.1, 31.7])
def test_the_default_rules_settle_too(times_target: float) -> None:
    braid = Braid({"t": even(steady(times_target * TARGET))}, DEFAULTS, segments=4, tick_seconds=30)
    braid.run(3 * HOUR)
    settled = len(braid.changes)
    braid.run(3 * HOUR)
    assert len(braid.changes) == settled


@pytest.mark.parametrize("times_target", [0.5, 1.0, 2.0, 3.0, 8.0])
def test_noise_around_a_limit_never_makes_a_merge_undo_a_split_or_a_split_a_merge(times_target: float) -> None:
    """A quarter up or down from second to second."""

    def level(seconds: float) -> float:
        return times_target * TARGET * float(np.random.default_rng(int(seconds)).normal(1, 0.25))

    few, many = quick(even(level)), quick(even(level), segments=int(4 * times_target))
    few.run(3 * QUICK_SETTLED_SECONDS)
    many.run(3 * QUICK_SETTLED_SECONDS)
    assert few.groups("merge") == 0 and many.groups("split") == 0
    assert bool(few.changes) == (times_target >= 1)
    assert many.changes, "at a quarter of the target each, noise makes some pair pass"


LEVELS = (
    0,
    0.05,
    0.24,
    0.26,
    0.45,
    0.49,
    0.5,
    0.51,
    0.55,
    0.9,
    0.97,
    1,
    1.03,
    1.5,
    1.9,
    1.99,
    2.01,
    2.1,
    3,
    4.9,
    5.1,
    8,
)


def test_steady_load_at_any_level_moves_nothing_once_it_has_settled_though_messages_come_by_chance() -> None:
    """Just below and above each limit too, from one segment and from many, on brokers that they all share."""
    for segments, seed in ((1, 1), (4, 2)):
        topics = {f"t{level:g}": poisson(even(steady(level * TARGET)), seed) for level in LEVELS}
        braid = Braid(topics, QUICK, segments=segments)
        braid.run(3 * QUICK_SETTLED_SECONDS)
        settled = list(braid.changes)
        assert settled, "there is something to be done at first"
        braid.run(QUICK_SETTLED_SECONDS)
        assert braid.changes == settled


def test_a_new_leader_moves_nothing() -> None:
    braid = quick(shaped(steady(20 * TARGET), shares_of(zipf_weights())))
    braid.run(QUICK_SETTLED_SECONDS)
    settled = list(braid.changes)
    for _ in range(6):
        braid.new_leader()
        braid.run(45)
    assert braid.changes == settled


@pytest.mark.parametrize("away_seconds", [0.0, 5.0, 60.0])
def test_a_broker_that_restarts_makes_no_split_and_no_merge(away_seconds: float) -> None:
    """What is known of the load of its segments is lost; they are failed over, and it gets its share again."""
    braid = quick(shaped(steady(20 * TARGET), shares_of(zipf_weights())), brokers=4)
    braid.run(QUICK_SETTLED_SECONDS)
    splits_and_merges, before = braid.splits_and_merges(), braid.imbalance()
    for number in range(4):
        braid.restart_broker(number, away_seconds=away_seconds)
        moves = braid.moves()
        braid.run(45)
        assert braid.moves() - moves <= len(braid.open("t")) / 3, "its share, and little more"
        assert {segment.owner for segment in braid.open("t")} == {member.id for member in braid.members}
    assert braid.splits_and_merges() == splits_and_merges
    assert braid.imbalance() <= max(1.3, before)


def test_a_leader_that_changes_in_the_middle_of_a_flood_loses_no_time() -> None:
    braid = quick(even(flood(0.5 * TARGET, times=3, from_seconds=30, to_seconds=1e9)))
    plain = quick(even(flood(0.5 * TARGET, times=3, from_seconds=30, to_seconds=1e9)))
    for _ in range(60):
        braid.new_leader()
        braid.tick()
        plain.tick()
    assert braid.changes and braid.changes == plain.changes


def test_segments_that_roll_all_the_time_split_and_merge_as_ever() -> None:
    level = flood(0.2 * TARGET, times=20, from_seconds=30, to_seconds=90)
    rolling, plain = quick(even(level)), quick(even(level))
    for second in range(240):
        if second % 3 == 0:
            rolling.roll("t")
        rolling.tick()
        plain.tick()

    def splits_and_merges(braid: Braid) -> list[Change]:
        return [change for change in braid.changes if change.reason != "roll"]

    assert [change.reason for change in splits_and_merges(plain)] == ["split", "merge", "merge"]
    assert splits_and_merges(rolling) == splits_and_merges(plain)


@pytest.mark.parametrize("shares", [even_shares(), shares_of(zipf_weights())], ids=["even", "zipf"])
def test_a_week_of_a_daily_wave(shares: Shares) -> None:
    """No more transitions a day than four for each segment that there are at the peak, moves included."""
    braid = Braid(
        {"t": shaped(daily_wave(TARGET / 4, 20 * TARGET), shares)}, DEFAULTS, brokers=10, tick_seconds=4 * MINUTE
    )
    for day in range(7):
        before = braid.groups("split") + braid.groups("merge") + braid.moves()
        most = 0
        for _ in range(24):
            braid.run(HOUR)
            most = max(most, len(braid.open("t")))
        assert most >= 20
        assert braid.groups("split") + braid.groups("merge") + braid.moves() - before <= 4 * most, f"day {day}"
    assert braid.seconds == 7 * DAY_SECONDS


def sizes(count: int) -> list[float]:
    """Of topics, in messages a second: many small ones, and few that are very large."""
    chance = np.random.default_rng(4)
    rates: list[float] = np.minimum(TARGET * 0.1 * (1 + chance.pareto(0.8, count)), 10 * TARGET).tolist()
    return rates


def test_topics_of_all_sizes_are_spread_over_many_brokers_by_their_load() -> None:
    topics = {f"t{number}": even(steady(rate)) for number, rate in enumerate(sizes(300))}
    by_traffic = Braid(topics, DEFAULTS, brokers=40, tick_seconds=2 * MINUTE)
    by_number = Braid(topics, DEFAULTS, brokers=40, tick_seconds=2 * MINUTE, by_number=True)
    by_traffic.run(4 * HOUR)
    # Nothing moves for long before: what it comes to by number, it comes to at once.
    by_number.run(HOUR)
    assert by_traffic.imbalance() <= 1.25 < by_number.imbalance()
    settled = list(by_traffic.changes)
    by_traffic.run(2 * HOUR)
    assert by_traffic.changes == settled


def test_daily_waves_at_any_time_of_day_stay_spread_with_few_moves() -> None:
    level = daily_wave(0.05, 1)
    topics = {
        f"t{number}": even(lambda seconds, rate=rate, n=number: rate * level(seconds + n * HOUR))
        for number, rate in enumerate(sizes(150))
    }
    braid = Braid(topics, DEFAULTS, brokers=20, tick_seconds=5 * MINUTE)
    braid.run(6 * HOUR)
    worst = []
    for _ in range(24):
        braid.run(HOUR)
        worst.append(braid.imbalance())
    assert float(np.median(worst)) <= 1.3
    assert braid.moves() <= len(topics), "less than one for each topic and day"


def test_a_flood_of_some_of_many_topics_is_absorbed_and_concerns_no_other() -> None:
    quiet = even(steady(0.1 * TARGET))
    flooded = {f"t{number}" for number in range(0, 500, 100)}
    wild = even(flood(0.1 * TARGET, times=100, from_seconds=660, to_seconds=1e9))
    topics = {f"t{number}": wild if f"t{number}" in flooded else quiet for number in range(500)}
    braid = Braid(topics, DEFAULTS, brokers=100, tick_seconds=20)
    braid.run(660)
    assert braid.changes == []
    braid.run(80)
    assert {change.topic for change in braid.changes} == flooded, "all have split"
    braid.run(700)
    assert all(max(braid.segment_rates(topic)) <= TARGET for topic in flooded)
    assert {change.topic for change in braid.splits_and_merges()} == flooded
    assert braid.imbalance() <= 1.3


def share_ratio(weights: np.ndarray, points: Sequence[int]) -> float:
    """The largest child's load over the smallest's."""
    children = np.add.reduceat(weights, [0, *points])
    return float(children.max() / children.min())


def one_slot_prevents(weights: np.ndarray, points: Sequence[int]) -> bool:
    """Whether a slot at one of the cuts is a tenth of a child or more: on either side it makes the difference."""
    beside = [weights[[point - 1, point]].max() for point in points]
    return max(beside) >= weights.sum() / (len(points) + 1) / 10


def test_zipf_keys_are_cut_at_quantiles_and_not_at_equal_widths() -> None:
    even_children = uneven_at_equal_widths = 0
    for names in ("key {}", "user-{}", "{}", "sensor/{}", "order:{:08}"):
        weights = zipf_weights(names)
        for parts in (2, 3, 4):
            points = even_cut_points(weights, 0, SLOTS, parts, observations=OBSERVED_MESSAGES)
            ratio = share_ratio(weights, points)
            assert ratio <= 1.25 or one_slot_prevents(weights, points), (names, parts)
            if ratio <= 1.25:
                even_children += 1
                uneven_at_equal_widths += share_ratio(weights, [start for start, _ in equal_ranges(parts)][1:]) > 1.25
    assert even_children >= 8, "it takes bad luck"
    assert uneven_at_equal_widths >= even_children * 3 / 4, "equal widths would have done as well"


def test_zipf_keys_settle_with_all_that_can_be_cut_near_target() -> None:
    braid = quick(shaped(steady(40 * TARGET), shares_of(zipf_weights())))
    braid.run(QUICK_SETTLED_SECONDS)
    hot = {segment for _, segment in braid.hot_slots}
    others = [
        rate for segment, rate in zip(braid.open("t"), braid.segment_rates("t"), strict=True) if segment.id not in hot
    ]
    assert max(others) <= TARGET
    assert len(braid.open("t")) <= 2.5 * 40


def test_one_hot_key_is_found_and_split_no_further() -> None:
    slot = 31_000
    braid = quick(shaped(steady(4 * TARGET), hot_slot_shares(slot, 0.9)))
    braid.run(QUICK_SETTLED_SECONDS)
    assert set(braid.hot_slots.values()) == {slot}
    assert braid.changes == [], "no cut would help"
    braid = quick(shaped(steady(4 * TARGET), hot_slot_shares(slot, 0.6)))
    braid.run(QUICK_SETTLED_SECONDS)
    assert (slot, slot + 1) in [s.range for s in braid.open("t")], "it has a segment of its own"
    assert len(braid.open("t")) <= 6


def test_a_hot_spot_that_moves_leaves_nothing_behind() -> None:
    braid = quick(moving_hot_spot(10 * TARGET, width=500, share=0.8, every_seconds=150))
    most = 0
    for _ in range(6):
        braid.run(150)
        most = max(most, len(braid.open("t")))
    assert most <= 40
