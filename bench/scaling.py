"""How topics split and merge under a virtual clock, and what the decisions cost the leader, in two tables.

    python bench/scaling.py [--only CASE ...]

The averages, policy, cut points, transitions and placement are the real ones; the traffic is synthetic. See
bench/README.md.
"""

import argparse
import math
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from filer.slots import SLOTS
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import TopicState
from leader.membership.coordinator import BrokerInfo
from leader.policy.cut_points import cut_hot
from leader.policy.rebalancing import rebalance
from leader.policy.scaling import ScalingDecision, decide
from leader.policy.successors import begin_split_or_merge
from leader.scaling_controller import MOST_AT_ONCE
from leader.traffic.broker_traffic import carried, weights_of
from leader.traffic.traffic_averages import SegmentTraffic
from leader.traffic.traffic_table import TrafficTable
from leader.transitions import new_topic
from tests.simulation.braid import OBSERVED_MESSAGES, Braid
from tests.simulation.traffic import (
    DAY_SECONDS,
    Traffic,
    daily_wave,
    even,
    flood,
    hot_slot_shares,
    moving_hot_spot,
    shaped,
    shares_of,
    steady,
    zipf_weights,
)

TOPICS, SEGMENTS_EACH, BROKERS, FLOODED_TOPICS = 10_000, 10, 1_000, 100
REPORT_SECONDS, STALE_SECONDS, ROUNDS = 1.0, 5.0, 5
LONGEST_STEP_SECONDS = 0.05
TARGET = TopicConfig().target.messages
MINUTE, HOUR = 60.0, 3600.0
FLOOD_AT_SECONDS, FLOOD_SECONDS = 700.0, 900.0
MANY_TOPICS = 2_000
SEED = 4
_Made = TypeVar("_Made")
_PLAIN_WIDTH = 170


@dataclass(frozen=True, slots=True)
class Case:
    """Traffic under the default rules for `seconds`. If it `settles`, the reaction to `since_seconds` is timed.

    If `compared`, it is run again with placement by the number of segments only.
    """

    traffic: dict[str, Traffic]
    seconds: float
    tick_seconds: float
    segments: int = 1
    brokers: int = 10
    since_seconds: float = 0.0
    settles: bool = True
    compared: bool = True


def _one(traffic: Traffic, seconds: float) -> Case:
    return Case({"t": traffic}, seconds, 10.0)


def _wave() -> Case:
    traffic = even(daily_wave(TARGET / 4, 20 * TARGET))
    return Case({"t": traffic}, 7 * DAY_SECONDS, MINUTE, settles=False)


def _flood() -> Case:
    """Many topics, of which one in a hundred is flooded."""
    quiet = even(steady(TARGET / 10))
    flooded = even(flood(TARGET / 10, times=100, from_seconds=FLOOD_AT_SECONDS, to_seconds=DAY_SECONDS))
    topics = {f"t{n}": quiet if n % (TOPICS // FLOODED_TOPICS) else flooded for n in range(TOPICS)}
    seconds = FLOOD_AT_SECONDS + FLOOD_SECONDS
    return Case(topics, seconds, 10.0, brokers=BROKERS, since_seconds=FLOOD_AT_SECONDS, compared=False)


def _many(kinds: Sequence[Callable[[float, random.Random], Traffic]], seconds: float) -> Case:
    """Topics of very different sizes, from hundredths of the target to many times the target."""
    chance = random.Random(SEED)
    rates = [TARGET * min(0.1 * chance.paretovariate(0.8), 20) for _ in range(MANY_TOPICS)]
    topics = {f"t{n}": kinds[n % len(kinds)](rate, chance) for n, rate in enumerate(rates)}
    return Case(topics, seconds, 4 * MINUTE, brokers=BROKERS, settles=False)


def _steady_topic(rate: float, chance: random.Random) -> Traffic:
    return even(steady(rate))


def _wave_topic(rate: float, chance: random.Random) -> Traffic:
    """A daily wave with its peak at its own time of day."""
    level, noon = daily_wave(rate / 20, rate), chance.uniform(0, DAY_SECONDS)
    return even(lambda seconds: level(seconds + noon))


def _zipf_topic(rate: float, chance: random.Random) -> Traffic:
    return shaped(steady(rate), shares_of(zipf_weights(chance.choice(("key {}", "user-{}", "{}", "sensor/{}")))))


def _hot_key_topic(rate: float, chance: random.Random) -> Traffic:
    return shaped(steady(rate), hot_slot_shares(chance.randrange(SLOTS), 0.6))


def _moving_topic(rate: float, chance: random.Random) -> Traffic:
    return moving_hot_spot(rate, width=500, share=0.8, every_seconds=chance.uniform(1, 4) * HOUR)


def _floods_topic(rate: float, chance: random.Random) -> Traffic:
    """Ten times the rate for half an hour, once a day."""
    at_seconds = chance.uniform(0, DAY_SECONDS)
    return even(flood(rate / 10, times=10, from_seconds=at_seconds, to_seconds=at_seconds + HOUR / 2))


_KINDS = (_steady_topic, _wave_topic, _zipf_topic, _hot_key_topic, _moving_topic, _floods_topic)
CASES: dict[str, tuple[str, Callable[[], Case]]] = {
    "steady": ("20 x target, steady, a day", lambda: _one(even(steady(20 * TARGET)), DAY_SECONDS)),
    "wave": ("daily wave, 0.25 to 20 x target, a week", _wave),
    "zipf": (
        "Zipf keys (s=1.1 of 100,000), 20 x target, a day",
        lambda: _one(shaped(steady(20 * TARGET), shares_of(zipf_weights())), DAY_SECONDS),
    ),
    "hot-key": (
        "one key has 60% of 4 x target, a day",
        lambda: _one(shaped(steady(4 * TARGET), hot_slot_shares(31_000, 0.6)), DAY_SECONDS),
    ),
    "moving": (
        "80% of 10 x target in 500 slots that move each 2 h, a day",
        lambda: _one(moving_hot_spot(10 * TARGET, width=500, share=0.8, every_seconds=2 * HOUR), DAY_SECONDS),
    ),
    "flood": (f"0.1 to 10 x target at once in {FLOODED_TOPICS} of {TOPICS:,} topics", _flood),
    "many-steady": (f"{MANY_TOPICS:,} topics of all sizes, steady, 6 h", lambda: _many([_steady_topic], 6 * HOUR)),
    "many-waves": (
        f"{MANY_TOPICS:,} daily waves, each at its time of day, a day",
        lambda: _many([_wave_topic], DAY_SECONDS),
    ),
    "many-kinds": (f"{MANY_TOPICS:,} topics of all kinds, a day", lambda: _many(_KINDS, DAY_SECONDS)),
}
DECIDING = "deciding"


COLUMNS = (
    "traffic", "first split", "near target", "splits", "merges", "moves", "most segments", "busiest broker",
    "by number", "requests",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[*CASES, DECIDING], metavar="CASE", help="may be repeated")
    chosen = parser.parse_args().only or [*CASES, DECIDING]
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    if simulated := [name for name in chosen if name in CASES]:
        table = Table(*COLUMNS)
        for name in simulated:
            _show_progress(CASES[name][0])
            table.add_row(CASES[name][0], *_simulated(CASES[name][1]()))
        console.print(table)
    if DECIDING in chosen:
        table = Table(
            f"{TOPICS:,} topics, {TOPICS * SEGMENTS_EACH:,} segments, {BROKERS:,} brokers", "measured", "target", ""
        )
        for row in _deciding():
            table.add_row(*row)
        console.print(table)


# -- simulated time ----------------------------------------------------------------------------------------


def _simulated(case: Case) -> tuple[str, ...]:
    """The figures of one case.

    "near target": no segment above it could be split. "busiest broker": relative to the least possible, which is the
    mean of all brokers or the largest segment. "by number": the same with placement by the number of segments only.
    """
    braid, near, most, busiest = _run(case)
    before = f"{_run(case, by_number=True)[-1]:.2f}" if case.compared else ""
    splits = [change for change in braid.changes if change.reason == "split"]
    first = f"{splits[0].seconds - case.since_seconds:.0f} s" if splits and case.settles else ""
    return (
        first, near, f"{braid.groups('split'):,}", f"{braid.groups('merge'):,}", f"{braid.moves():,}", f"{most:,}",
        f"{busiest:.2f} x least", before, f"{braid.requests:,}",
    )  # fmt: skip


def _run(case: Case, *, by_number: bool = False) -> tuple[Braid, str, int, float]:
    braid = Braid(
        case.traffic, TopicConfig(), segments=case.segments, brokers=case.brokers, tick_seconds=case.tick_seconds,
        by_number=by_number,
    )  # fmt: skip
    most = 0
    busiest: list[float] = []
    near_seconds = None if case.settles else math.nan
    braid.run(case.since_seconds)
    while braid.seconds < case.seconds:
        # A full check takes longer than a tick: once the topics have settled, now and then is enough.
        braid.run(case.tick_seconds if near_seconds is None else max(20 * case.tick_seconds, 10 * MINUTE))
        most = max(most, sum(len(braid.open(topic)) for topic in case.traffic))
        busiest.append(braid.imbalance())
        if near_seconds is None and _is_near(braid):
            near_seconds = braid.seconds - case.since_seconds
    near = "never" if near_seconds is None else f"{near_seconds:.0f} s" if case.settles else ""
    return braid, near, most, statistics.median(busiest)


def _is_near(braid: Braid) -> bool:
    return bool(braid.changes) and all(
        rate <= TARGET or (topic, segment.id) in braid.hot_slots
        for topic in braid.traffic
        for segment, rate in zip(braid.open(topic), braid.segment_rates(topic), strict=True)
    )


# -- real time ---------------------------------------------------------------------------------------------


def _deciding() -> Iterator[tuple[str, str, str, str]]:
    _show_progress("making topics")
    states, states_mb = _traced(lambda: [TopicState.from_json(_topic(number).to_json()) for number in range(TOPICS)])
    table, table_mb = _traced(lambda: _table_of(states))
    yield "memory: what topic.json says of all topics", f"{states_mb:.0f} MB", "", ""
    yield "memory: table of traffic", f"{table_mb:.0f} MB, {table.bytes_held / 1e6:.0f} MB of it columns", "", ""
    yield "a new leader takes in all topics", f"{_seconds(lambda: _table_of(states)) * 1000:.0f} ms", "", ""
    steps = dict(_round_steps(table, states))
    for step, seconds in steps.items():
        yield step, f"{seconds * 1000:.1f} ms", "", ""
    longest = max(seconds for step, seconds in steps.items() if step != TAKING)
    yield "the longest of these: what the event loop waits", *_judged(longest, LONGEST_STEP_SECONDS)
    yield "a round: reports, records, decision, rebalancing, 32 splits", *_judged(_whole_round(steps), REPORT_SECONDS)


TAKING = f"taking {BROKERS:,} reports, one by one"
CHECKING = f"checking {TOPICS:,} topics for changes"
CHANGED = f"taking the records of {TOPICS // 10:,} topics that changed"
CUTTING = "cutting and placing a split into 8"


def _round_steps(table: TrafficTable, states: list[TopicState]) -> Iterator[tuple[str, float]]:
    """Processor time of the steps of a round. Only the first step lets other tasks run in between."""
    chance = random.Random(SEED)
    reported = [_traffic(s.topic, segment.id, chance.uniform(0.1, 0.9)) for s in states for segment in s.segments]
    yield TAKING, _median_seconds(lambda: _take(table, [reported[number::BROKERS] for number in range(BROKERS)]))
    yield CHECKING, _median_seconds(lambda: _check(table, states))
    brokers = [BrokerInfo(_broker(number), "", f"zone {number % 3}", "1") for number in range(BROKERS)]
    yield "rebalancing, all even", _median_seconds(lambda: rebalance(table, brokers))
    emptied = [BrokerInfo(f"new-{number}", "", "", "1") for number in range(10)]
    yield "rebalancing, 10 brokers have joined", _median_seconds(lambda: rebalance(table, brokers + emptied))
    yield "deciding, all quiet", _median_seconds(lambda: _decide(table))
    flooded = [replace(each, pressure=20, recent=100, firing_average=100) for each in reported[: 10 * FLOODED_TOPICS]]
    table.record(flooded, now_seconds=1)
    yield f"deciding, {FLOODED_TOPICS} topics flooded", _median_seconds(lambda: _decide(table))
    yield CUTTING, _median_seconds(lambda: _split(table, states[0], brokers))
    table.record([replace(each, pressure=20, recent=100, firing_average=100) for each in reported], now_seconds=1)
    yield "deciding, all flooded", _median_seconds(lambda: _decide(table))
    table.record([replace(each, warmest=0, merge_average=0, recent=0) for each in reported], now_seconds=1)
    yield "deciding, all idle: all merge", _median_seconds(lambda: _decide(table))
    yield CHANGED, _median_seconds(lambda: _apply_changes(table, states[: TOPICS // 10]))


def _whole_round(steps: Mapping[str, float]) -> float:
    each = [max(seconds for step, seconds in steps.items() if step.startswith(kind)) for kind in ("decid", "rebalanc")]
    return sum(each) + steps[TAKING] + steps[CHECKING] + steps[CHANGED] + MOST_AT_ONCE * steps[CUTTING]


def _judged(seconds: float, target_seconds: float) -> tuple[str, str, str]:
    met = "met" if seconds <= target_seconds else "missed"
    return f"{seconds * 1000:.0f} ms", f"{target_seconds * 1000:.0f} ms", met


def _decide(table: TrafficTable) -> list[ScalingDecision]:
    return decide(table, now_seconds=1, stale_seconds=STALE_SECONDS, most=MOST_AT_ONCE)


def _split(table: TrafficTable, state: TopicState, brokers: Sequence[BrokerInfo]) -> TopicState | None:
    segment = state.segments[0]
    slot_traffic = zipf_weights()[segment.start_slot : segment.stop_slot]
    cut = cut_hot(slot_traffic, *segment.range, 8, observations=OBSERVED_MESSAGES)
    weights = weights_of(table, state.topic, [segment.id])
    return begin_split_or_merge(
        state, {segment.id: cut}, [], brokers=brokers, carried=carried(table), weights=weights, now_us=2
    )


def _broker(number: int) -> str:
    return f"broker-{number % BROKERS}"


def _topic(number: int) -> TopicState:
    def brokers_for(segment: int) -> tuple[str, ...]:
        return (_broker(number * SEGMENTS_EACH + segment),)

    return new_topic(f"topic-{number}", TopicConfig(), SEGMENTS_EACH, brokers_for, now_us=1)


def _traffic(topic: str, segment: int, average: float) -> SegmentTraffic:
    """Traffic that is neither hot nor cold."""
    return SegmentTraffic(
        topic, segment, average * TARGET, average * 5e5, average, average, average, average, average, 1e5
    )


def _table_of(states: Sequence[TopicState]) -> TrafficTable:
    table = TrafficTable()
    for state in states:
        table.apply(state)
    return table


def _traced(make: Callable[[], _Made]) -> tuple[_Made, float]:
    """The result of `make`, and the memory that it takes in MB."""
    tracemalloc.start()
    made = make()
    megabytes = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    return made, megabytes


def _check(table: TrafficTable, states: list[TopicState]) -> None:
    for state in states:
        table.apply(state)


def _take(table: TrafficTable, reports: Sequence[Sequence[SegmentTraffic]]) -> None:
    for report in reports:
        table.record(report, now_seconds=1)


def _apply_changes(table: TrafficTable, states: list[TopicState]) -> None:
    """Apply each state again, with its first segment replaced."""
    for index, state in enumerate(states):
        first = state.segments[0].model_copy(update={"id": state.next_segment})
        states[index] = state.model_copy(
            update={
                "segments": (first, *state.segments[1:]),
                "next_segment": state.next_segment + 1,
                "version": state.version + 1,
            }
        )
        table.apply(states[index])


def _median_seconds(call: Callable[[], object]) -> float:
    return statistics.median(_seconds(call) for _ in range(ROUNDS))


def _seconds(call: Callable[[], object]) -> float:
    """The processor time of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def _show_progress(doing: str) -> None:
    print(doing, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
