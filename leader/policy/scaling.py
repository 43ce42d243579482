"""Which segments split and which merge: a pure decision from the traffic that is known (docs/design.md §8).

- **Split** if an owner reports that a split rule of the topic holds (`SegmentTraffic.pressure` above 1). The owner of a
  young segment reports no pressure yet. So the rules' windows are the pause between a split and a split of its parts.
- **Merge** two neighbours that have been cold for the time of the merge rule, and that are as old as that and as
  the cool-down. Traffic that is unknown, or that is not reported any more, is neither hot nor cold.
- **`min_segments`** raised above the number of open segments splits at once, whether traffic is known or not, and
  whether scaling is enabled or not: the user asked for it.

A topic has one transition at a time. It takes up to `MOST_GROUPS` splits, the hottest first, or as many merges, the
coldest first. Merges wait while there is anything to split, so splits do not starve.

Nothing flaps under steady traffic. Merged segments carry less than the merge rule's share of the target, which
`Scaling` keeps clear of the lowest split rule, so they never split. Only successors of a split split again, each with
at most `LARGEST_SHARE` of its predecessor's traffic. Two parts of a split together are far above the merge rule.

docs/design.md says that a merged pair's rate is "below the average per segment". If that were the pair's sum, no two
equal segments could ever merge, and a topic of evenly spread keys would keep the segments of a flood for ever. So the
pair's mean is compared, with the mean of a topic with one segment fewer: hot neighbours wait, and still there is always
a pair that passes (n segments have n - 1 pairs, whose sums come to at most twice the total). An idle topic reaches its
minimum.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from leader.traffic.traffic_table import TrafficTable

MOST_PARTS = 8
MOST_GROUPS = 8
_ROUNDING = 1 + 1e-9

_Rows = npt.NDArray[np.intp]
_Mask = npt.NDArray[np.bool_]
_IsWanted = Callable[[int], bool]
_Need = Callable[["TrafficTable", _Mask, float, _IsWanted], Iterator[tuple[int, "ScalingDecision"]]]


@dataclass(frozen=True, slots=True)
class SplitDecision:
    """Cut a segment into `parts`, or into up to `most_parts` if only that puts a hot slot apart.

    Not `by_traffic`: `min_segments` requires exactly `parts`, wherever the traffic is.
    """

    segment: int
    parts: int
    most_parts: int
    by_traffic: bool = True


@dataclass(frozen=True, slots=True)
class MergeDecision:
    """Make one segment of two neighbours."""

    left: int
    right: int


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """One transition of a topic: either splits or merges."""

    topic: str
    splits: tuple[SplitDecision, ...] = ()
    merges: tuple[MergeDecision, ...] = ()


def decide(
    table: TrafficTable,
    *,
    now_seconds: float,
    stale_seconds: float,
    most: int | None = None,
    is_free: Callable[[str], bool] = lambda topic: True,
    minimum_only: bool = False,
) -> list[ScalingDecision]:
    """The transitions that topics need, at most one each, the most urgent first; the same for the same table and time.

    A report older than `stale_seconds` counts as none. Returns at most `most` decisions, for topics that are free. The
    order comes from columns, and only the topics that are returned are looked at segment by segment. `minimum_only`:
    decide only the splits of topics with fewer segments than their minimum.
    """
    needs: Sequence[_Need] = (_to_minimum,) if minimum_only else (_to_minimum, _splits, _merges)
    segments = table.segments
    known = (segments["topic"] >= 0) & (segments["reported_seconds"] >= now_seconds - stale_seconds)
    decided: dict[int, ScalingDecision] = {}

    def is_wanted(topic: int) -> bool:
        return topic not in decided and is_free(table.topic_name(topic))

    for need in needs:
        for topic, decision in need(table, known, now_seconds, is_wanted):
            if most is not None and len(decided) >= most:
                return list(decided.values())
            decided[topic] = decision
    return list(decided.values())


def _by_topic(table: TrafficTable, rows: _Rows, is_wanted: _IsWanted) -> Iterator[tuple[int, list[int]]]:
    """The rows of each wanted topic, in their order; topics in the order of their first ones."""
    topics = table.segments["topic"][rows]
    by_topic = np.argsort(topics, kind="stable")
    starts = np.flatnonzero(np.diff(topics[by_topic], prepend=-1))
    stops = np.append(starts[1:], len(rows))
    for group in np.argsort(by_topic[starts], kind="stable").tolist():
        own = rows[by_topic[starts[group] : stops[group]]]
        topic = int(table.segments["topic"][own[0]])
        if is_wanted(topic):
            yield topic, own.tolist()


# -- splits ------------------------------------------------------------------------------------------------


def _hot(table: TrafficTable, known: _Mask, now_seconds: float) -> _Rows:
    """Rows of segments that must split, the hottest first."""
    segments, topics = table.segments, table.topics
    hot = np.flatnonzero(known & (segments["pressure"] > 1) & (segments["held_until_seconds"] <= now_seconds))
    may_split = topics["scaling"] & ~topics["busy"] & (topics["open"] < topics["max_segments"])
    hot = hot[may_split[segments["topic"][hot]]]
    hottest_first: _Rows = hot[np.argsort(-segments["pressure"][hot], kind="stable")]
    return hottest_first


def _splits(
    table: TrafficTable, known: _Mask, now_seconds: float, is_wanted: _IsWanted
) -> Iterator[tuple[int, ScalingDecision]]:
    for topic, rows in _by_topic(table, _hot(table, known, now_seconds), is_wanted):
        yield topic, ScalingDecision(table.topic_name(topic), splits=_sized(table, topic, rows[:MOST_GROUPS]))


def _sized(table: TrafficTable, topic: int, rows: list[int]) -> tuple[SplitDecision, ...]:
    """The splits of these rows, with as many parts as `max_segments` has room for, the hottest first."""
    limits = table.topics[topic]
    room = int(limits["max_segments"] - limits["open"])
    sized: list[tuple[int, int]] = []
    for row in rows:
        segment = table.segments[row]
        traffic = max(float(segment["recent"]), float(segment["firing_average"]))
        parts = min(max(ceil(traffic), 2), MOST_PARTS, room + 1)
        if parts >= 2:
            room -= parts - 1
            sized.append((int(segment["segment"]), parts))
    spare = 1 if room >= len(sized) else 0
    return tuple(SplitDecision(segment, parts, min(parts + spare, MOST_PARTS)) for segment, parts in sized)


def _to_minimum(
    table: TrafficTable, known: _Mask, now_seconds: float, is_wanted: _IsWanted
) -> Iterator[tuple[int, ScalingDecision]]:
    """Splits of topics with fewer segments than their minimum."""
    topics = table.topics
    short = np.flatnonzero(~topics["busy"] & (topics["open"] < topics["min_segments"]))
    for topic in short.tolist():
        if is_wanted(topic):
            yield topic, ScalingDecision(table.topic_name(topic), splits=_raised(table, topic, known))


def _raised(table: TrafficTable, topic: int, known: _Mask) -> tuple[SplitDecision, ...]:
    """Add one part at a time to the segment with the largest parts: by traffic, or, if that is unknown, by slots.

    Segments without a slot to spare are left as they are.
    """
    limits = table.topics[topic]
    first, count, wanted = (int(limits[name]) for name in ("first_row", "open", "min_segments"))
    rows = table.segments[first : first + count]
    by_traffic = known[first : first + count].all() and rows["recent"].sum() > 0
    sizes = rows["recent"] if by_traffic else rows["slots"]
    parts = [1] * count
    largest = [(-float(size), index) for index, size in enumerate(sizes)]
    heapq.heapify(largest)
    for _ in range(wanted - count):
        while parts[largest[0][1]] >= rows["slots"][largest[0][1]]:
            heapq.heappop(largest)
        index = largest[0][1]
        parts[index] += 1
        heapq.heapreplace(largest, (-float(sizes[index]) / parts[index], index))
    return tuple(
        SplitDecision(int(rows["segment"][index]), many, many, by_traffic=False)
        for index, many in enumerate(parts)
        if many > 1
    )


# -- merges ------------------------------------------------------------------------------------------------


def _cold_pairs(table: TrafficTable, known: _Mask) -> _Rows:
    """Rows of the left segments of neighbours that may merge, the coldest first."""
    segments, topics = table.segments, table.topics
    topic = segments["topic"]
    # The recent rate counts too: a flood that has just begun is in no average yet.
    cold = np.flatnonzero(known & (segments["warmest"] < 1) & (segments["recent"] < 1))
    may_merge = topics["scaling"] & ~topics["busy"] & (topics["open"] > topics["min_segments"])
    cold = cold[may_merge[topic[cold]]]
    cold = cold[segments["age_seconds"][cold] >= topics["merge_age_seconds"][topic[cold]]]
    is_left = np.zeros(len(segments) + 1, np.bool_)
    is_left[cold] = True
    left = cold[is_left[cold + 1]]
    left = left[topic[left] == topic[left + 1]]
    together = segments["merge_average"][left] + segments["merge_average"][left + 1]
    passes = (_ROUNDING * together < topics["merge_below"][topic[left]]) & (
        together <= _warmest_merged(table, known)[topic[left]]
    )
    coldest_first: _Rows = left[passes][np.argsort(together[passes], kind="stable")]
    return coldest_first


def _warmest_merged(table: TrafficTable, known: _Mask) -> npt.NDArray[np.float64]:
    """Per topic twice the average traffic of its known segments, if there were one segment fewer."""
    topic, traffic = table.segments["topic"][known], table.segments["merge_average"][known]
    total = np.bincount(topic, traffic, minlength=len(table.topics))
    count = np.bincount(topic, minlength=len(table.topics))
    return 2 * _ROUNDING * total / np.maximum(count - 1, 1)


def _merges(
    table: TrafficTable, known: _Mask, now_seconds: float, is_wanted: _IsWanted
) -> Iterator[tuple[int, ScalingDecision]]:
    """Pairs that share no segment and leave each topic its minimum."""
    for topic, rows in _by_topic(table, _cold_pairs(table, known), is_wanted):
        limits = table.topics[topic]
        spare = min(int(limits["open"] - limits["min_segments"]), MOST_GROUPS)
        taken: set[int] = set()
        pairs: list[MergeDecision] = []
        for row in rows:
            if len(pairs) < spare and row not in taken and row + 1 not in taken:
                taken |= {row, row + 1}
                pairs.append(MergeDecision(*table.segments["segment"][row : row + 2].tolist()))
        yield topic, ScalingDecision(table.topic_name(topic), merges=tuple(pairs))
