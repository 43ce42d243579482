"""How topics split and merge, under a virtual clock, and what it costs the leader to decide, in two tables.

    python bench/scaling.py [--only CASE ...]

The real averages, policy, cut points, transitions and placement; synthetic traffic. See bench/README.md.
"""

import argparse
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from filer.slots import SLOTS
from filer.topic_config import TopicConfig
from filer.topic_state import TopicState
from leader.cut_points import cut_hot
from leader.load_averages import SegmentLoad
from leader.load_table import LoadTable
from leader.scaling import decide
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
TARGET = TopicConfig().target.messages
HOUR = 3600.0
FLOOD_AT_SECONDS, FLOOD_SECONDS = 1200.0, 900.0
_PLAIN_WIDTH = 150


@dataclass(frozen=True, slots=True)
class Case:
    """Traffic under the default rules, for how long; where it `settles`, the reaction to `since_seconds` is timed."""

    traffic: dict[str, Traffic]
    seconds: float
    tick_seconds: float
    segments: int = 1
    brokers: int = 10
    since_seconds: float = 0.0
    settles: bool = True


def _flood() -> Case:
    level = flood(TARGET / 10, times=100, from_seconds=FLOOD_AT_SECONDS, to_seconds=DAY_SECONDS)
    topics = {f"t{n}": even(level) for n in range(FLOODED_TOPICS)}
    return Case(topics, FLOOD_AT_SECONDS + FLOOD_SECONDS, 1.0, brokers=BROKERS, since_seconds=FLOOD_AT_SECONDS)


def _one(traffic: Traffic, seconds: float) -> Case:
    return Case({"t": traffic}, seconds, 10.0)


def _wave() -> Case:
    traffic = even(daily_wave(TARGET / 4, 20 * TARGET))
    return Case({"t": traffic}, 7 * DAY_SECONDS, 30.0, settles=False)


CASES: dict[str, tuple[str, Callable[[], Case]]] = {
    "steady": ("20 x target, steady, a day", lambda: _one(even(steady(20 * TARGET)), DAY_SECONDS)),
    "wave": ("daily wave, 0.25 to 20 x target, a week", _wave),
    "flood": (
        f"0.1 to 10 x target at once, {FLOODED_TOPICS} topics ({FLOODED_TOPICS / TOPICS:.0%} of {TOPICS:,})",
        _flood,
    ),
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
}
DECIDING = "deciding"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[*CASES, DECIDING], metavar="CASE", help="may be repeated")
    chosen = parser.parse_args().only or [*CASES, DECIDING]
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    if simulated := [name for name in chosen if name in CASES]:
        columns = (
            "traffic",
            "first split",
            "near target",
            "splits",
            "merges",
            "most segments",
            "busiest broker",
            "puts",
        )
        table = Table(*columns)
        for name in simulated:
            _tell(CASES[name][0])
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

    "near target": no segment above it that could be split; "busiest broker": over the least its load can be, the mean
    of all brokers or the largest segment's.
    """
    braid = Braid(
        case.traffic, TopicConfig(), segments=case.segments, brokers=case.brokers, tick_seconds=case.tick_seconds
    )
    most = 0
    busiest: list[float] = []
    near_seconds = None if case.settles else -1.0
    braid.run(case.since_seconds)
    while braid.seconds < case.seconds:
        # Looking at everything takes longer than a tick: now and then will do once the load has been taken up.
        braid.run(case.tick_seconds if near_seconds is None else 60 * case.tick_seconds)
        most = max(most, sum(len(braid.open(topic)) for topic in case.traffic))
        busiest.append(braid.imbalance())
        if near_seconds is None and _is_near(braid):
            near_seconds = braid.seconds - case.since_seconds
    splits = [change for change in braid.changes if change.reason == "split"]
    first = f"{splits[0].seconds - case.since_seconds:.0f} s" if splits else ""
    near = "never" if near_seconds is None else f"{near_seconds:.0f} s"
    return (
        first, near if case.settles else "", str(braid.groups("split")),
        str(braid.groups("merge")), str(sum(c.sealed for c in braid.changes if c.reason == "move")), str(most), f"{statistics.median(busiest):.2f} x least", f"{braid.puts:,}",
    )  # fmt: skip


def _is_near(braid: Braid) -> bool:
    return bool(braid.changes) and all(
        rate <= TARGET or (topic, segment.id) in braid.hot_slots
        for topic in braid.traffic
        for segment, rate in zip(braid.open(topic), braid.segment_rates(topic), strict=True)
    )


# -- real time ---------------------------------------------------------------------------------------------


def _deciding() -> Iterator[tuple[str, str, str, str]]:
    _tell("making topics")
    states = [_topic(number) for number in range(TOPICS)]
    heard = [_load(state.topic, segment.id) for state in states for segment in state.segments]
    table, megabytes = _filled(states)
    reports = [heard[number::BROKERS] for number in range(BROKERS)]
    _tell("deciding")
    taking = _median_seconds(lambda: _take(table, reports))
    quiet = _median_seconds(lambda: decide(table, now_seconds=1, stale_seconds=STALE_SECONDS))
    flooded = [replace(each, pressure=20, recent=100, firing_average=100) for each in heard[: 10 * FLOODED_TOPICS]]
    table.report(flooded, now_seconds=1)
    decisions = decide(table, now_seconds=1, stale_seconds=STALE_SECONDS)
    hot = _median_seconds(lambda: decide(table, now_seconds=1, stale_seconds=STALE_SECONDS))
    table.report([replace(each, warmest=0, merge_average=0, recent=0) for each in heard], now_seconds=1)
    idle = _median_seconds(lambda: decide(table, now_seconds=1, stale_seconds=STALE_SECONDS))
    weights = zipf_weights()
    cutting = _median_seconds(lambda: cut_hot(weights, 0, SLOTS, 8, observations=OBSERVED_MESSAGES))
    changing = _median_seconds(lambda: _see_again(table, states[: TOPICS // 10]))
    yield f"taking {BROKERS:,} reports", f"{taking * 1000:.0f} ms", "", ""
    yield "deciding, all quiet", f"{quiet * 1000:.1f} ms", "", ""
    yield f"deciding, {len(decisions)} topics flooded", f"{hot * 1000:.1f} ms", "", ""
    yield "deciding, all idle: all merge", f"{idle * 1000:.1f} ms", "", ""
    yield f"taking the records of {TOPICS // 10:,} topics that changed", f"{changing * 1000:.0f} ms", "", ""
    yield "finding the cut points of a split", f"{cutting * 1000:.1f} ms", "", ""
    total = taking + max(hot, idle) + changing
    met = "met" if total <= REPORT_SECONDS else "missed"
    yield (
        "a round: reports, the longest decision, records",
        f"{total * 1000:.0f} ms",
        f"{REPORT_SECONDS * 1000:.0f} ms",
        met,
    )
    yield "memory of the table", f"{megabytes:.0f} MB, {table.bytes_held / 1e6:.0f} MB of it columns", "", ""


def _topic(number: int) -> TopicState:
    return new_topic(f"topic-{number}", TopicConfig(), SEGMENTS_EACH, lambda n: ("b",), now_us=1)


def _load(topic: str, segment: int) -> SegmentLoad:
    """Neither hot nor cold."""
    return SegmentLoad(topic, segment, 5e3, 5e5, 0.5, 0.5, 0.5, 0.5, 0.5, 1e5)


def _filled(states: Sequence[TopicState]) -> tuple[LoadTable, float]:
    """The table, and what it takes in MB."""
    tracemalloc.start()
    table = LoadTable()
    for state in states:
        table.see(state)
    megabytes = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    return table, megabytes


def _take(table: LoadTable, reports: Sequence[Sequence[SegmentLoad]]) -> None:
    for report in reports:
        table.report(report, now_seconds=1)


def _see_again(table: LoadTable, states: list[TopicState]) -> None:
    """Each with its first segment replaced."""
    for place, state in enumerate(states):
        first = state.segments[0].model_copy(update={"id": state.next_segment})
        states[place] = state.model_copy(
            update={
                "segments": (first, *state.segments[1:]),
                "next_segment": state.next_segment + 1,
                "version": state.version + 1,
            }
        )
        table.see(states[place])


def _median_seconds(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def _tell(doing: str) -> None:
    print(doing, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
