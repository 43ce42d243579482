"""Which segments split and which merge: a pure decision from what is known of the load (DESIGN.md §8).

- **Split** where an owner says that a rule of the topic holds (`SegmentLoad.pressure` above 1). A young segment's
  owner says nothing yet, so the rules' windows are the pause between a split and its children's.
- **Merge** two neighbours that have been cold for as long as the merge rule says, and that are as old as that and as
  the cool-down. What is not known, or not any more, is neither hot nor cold.
- **`min_segments`** raised above what is open splits at once, known load or not, scaling switched on or not: it is
  asked for by name.

A topic has one transition at a time. It takes up to `MOST_GROUPS` splits, the hottest first, or as many merges, the
coldest first; merges wait while there is anything to split, so no split starves.

Nothing flaps under steady load. Merged segments carry less than the merge rule's share of the target, which `Scaling`
keeps clear of the lowest split rule, so they never split; only what was split before splits again, each child with at
most `LARGEST_SHARE` of its parent's load. Two children of a split carry together what is far above the merge rule.

DESIGN.md asks of a merge that the pair's rate be "below the average per segment". Taken of the sum, no two equal
segments could ever merge, and a topic of evenly spread keys would keep for ever what a flood has left it. So it is
taken of the pair's mean, against the mean of a topic with one segment fewer: hot neighbours wait, and yet there is
always a pair that passes (n segments have n - 1 pairs, whose sums come to at most twice the total). An idle topic gets
to its minimum.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from leader.load_table import LoadTable

MOST_PARTS = 8
MOST_GROUPS = 8
_ROUNDING = 1 + 1e-9

_Rows = npt.NDArray[np.intp]
_Mask = npt.NDArray[np.bool_]
_IsWanted = Callable[[int], bool]
_Need = Callable[["LoadTable", _Mask, float, _IsWanted], Iterator[tuple[int, "Reshape"]]]


@dataclass(frozen=True, slots=True)
class Split:
    """Cut a segment into `parts`; into up to `most_parts` where only that puts a hot slot apart.

    Not `by_load`: `min_segments` wants exactly as many parts, however the load lies.
    """

    segment: int
    parts: int
    most_parts: int
    by_load: bool = True


@dataclass(frozen=True, slots=True)
class Merge:
    """Make one of two neighbours."""

    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Reshape:
    """One transition of a topic: either splits or merges."""

    topic: str
    splits: tuple[Split, ...] = ()
    merges: tuple[Merge, ...] = ()


def decide(
    table: LoadTable,
    *,
    now_seconds: float,
    stale_seconds: float,
    most: int | None = None,
    is_free: Callable[[str], bool] = lambda topic: True,
    minimum_only: bool = False,
) -> list[Reshape]:
    """What topics need, at most one transition each, the most urgent first; the same for the same table and time.

    A report older than `stale_seconds` counts as none. At most so many topics, and only those that are free: columns
    tell who comes first, and what takes a look at each segment is done for those alone. `minimum_only`: no more than
    the splits of topics with fewer segments than they are to have.
    """
    needs: Sequence[_Need] = (_to_minimum,) if minimum_only else (_to_minimum, _splits, _merges)
    segments = table.segments
    known = (segments["topic"] >= 0) & (segments["heard_seconds"] >= now_seconds - stale_seconds)
    decided: dict[int, Reshape] = {}

    def is_wanted(topic: int) -> bool:
        return topic not in decided and is_free(table.topic_name(topic))

    for need in needs:
        for topic, reshape in need(table, known, now_seconds, is_wanted):
            if most is not None and len(decided) >= most:
                return list(decided.values())
            decided[topic] = reshape
    return list(decided.values())


def _by_topic(table: LoadTable, rows: _Rows, is_wanted: _IsWanted) -> Iterator[tuple[int, list[int]]]:
    """The rows of each wanted topic, in their order; topics in the order of their first ones."""
    topics = table.segments["topic"][rows]
    by_topic = np.argsort(topics, kind="stable")
    starts = np.flatnonzero(np.diff(topics[by_topic], prepend=-1))
    stops = np.append(starts[1:], len(rows))
    for place in np.argsort(by_topic[starts], kind="stable").tolist():
        own = rows[by_topic[starts[place] : stops[place]]]
        topic = int(table.segments["topic"][own[0]])
        if is_wanted(topic):
            yield topic, own.tolist()


# -- splits ------------------------------------------------------------------------------------------------


def _hot(table: LoadTable, known: _Mask, now_seconds: float) -> _Rows:
    """Rows of segments that are to split, the hottest first."""
    segments, topics = table.segments, table.topics
    hot = np.flatnonzero(known & (segments["pressure"] > 1) & (segments["held_until_seconds"] <= now_seconds))
    may_split = topics["scaling"] & ~topics["busy"] & (topics["open"] < topics["max_segments"])
    hot = hot[may_split[segments["topic"][hot]]]
    hottest_first: _Rows = hot[np.argsort(-segments["pressure"][hot], kind="stable")]
    return hottest_first


def _splits(table: LoadTable, known: _Mask, now_seconds: float, is_wanted: _IsWanted) -> Iterator[tuple[int, Reshape]]:
    for topic, rows in _by_topic(table, _hot(table, known, now_seconds), is_wanted):
        yield topic, Reshape(table.topic_name(topic), splits=_sized(table, topic, rows[:MOST_GROUPS]))


def _sized(table: LoadTable, topic: int, rows: list[int]) -> tuple[Split, ...]:
    """Into how many parts each, as far as `max_segments` has room; the hottest get theirs first."""
    limits = table.topics[topic]
    room = int(limits["max_segments"] - limits["open"])
    sized: list[tuple[int, int]] = []
    for row in rows:
        segment = table.segments[row]
        load = max(float(segment["recent"]), float(segment["firing_average"]))
        parts = min(max(ceil(load), 2), MOST_PARTS, room + 1)
        if parts >= 2:
            room -= parts - 1
            sized.append((int(segment["segment"]), parts))
    spare = 1 if room >= len(sized) else 0
    return tuple(Split(segment, parts, min(parts + spare, MOST_PARTS)) for segment, parts in sized)


def _to_minimum(
    table: LoadTable, known: _Mask, now_seconds: float, is_wanted: _IsWanted
) -> Iterator[tuple[int, Reshape]]:
    """Splits of topics with fewer segments than they are to have."""
    topics = table.topics
    short = np.flatnonzero(~topics["busy"] & (topics["open"] < topics["min_segments"]))
    for topic in short.tolist():
        if is_wanted(topic):
            yield topic, Reshape(table.topic_name(topic), splits=_raised(table, topic, known))


def _raised(table: LoadTable, topic: int, known: _Mask) -> tuple[Split, ...]:
    """One part more, again and again, for the segment whose parts are the largest by load; by slots if that is unknown.

    Segments that have no slot to spare are left as they are.
    """
    limits = table.topics[topic]
    first, count, wanted = (int(limits[name]) for name in ("first_row", "open", "min_segments"))
    rows = table.segments[first : first + count]
    use_load = known[first : first + count].all() and rows["recent"].sum() > 0
    sizes = rows["recent"] if use_load else rows["slots"]
    parts = [1] * count
    largest = [(-float(size), place) for place, size in enumerate(sizes)]
    heapq.heapify(largest)
    for _ in range(wanted - count):
        while parts[largest[0][1]] >= rows["slots"][largest[0][1]]:
            heapq.heappop(largest)
        place = largest[0][1]
        parts[place] += 1
        heapq.heapreplace(largest, (-float(sizes[place]) / parts[place], place))
    return tuple(
        Split(int(rows["segment"][place]), many, many, by_load=False) for place, many in enumerate(parts) if many > 1
    )


# -- merges ------------------------------------------------------------------------------------------------


def _cold_pairs(table: LoadTable, known: _Mask) -> _Rows:
    """Rows of the left ones of neighbours that may merge, the coldest first."""
    segments, topics = table.segments, table.topics
    topic = segments["topic"]
    # The recent rate too: a flood that has just begun is in no average yet.
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


def _warmest_merged(table: LoadTable, known: _Mask) -> npt.NDArray[np.float64]:
    """Per topic twice the average load of its known segments, were they one fewer."""
    topic, load = table.segments["topic"][known], table.segments["merge_average"][known]
    total = np.bincount(topic, load, minlength=len(table.topics))
    count = np.bincount(topic, minlength=len(table.topics))
    return 2 * _ROUNDING * total / np.maximum(count - 1, 1)


def _merges(table: LoadTable, known: _Mask, now_seconds: float, is_wanted: _IsWanted) -> Iterator[tuple[int, Reshape]]:
    """Pairs that share no segment, and leave each topic its minimum."""
    for topic, rows in _by_topic(table, _cold_pairs(table, known), is_wanted):
        limits = table.topics[topic]
        spare = min(int(limits["open"] - limits["min_segments"]), MOST_GROUPS)
        taken: set[int] = set()
        pairs: list[Merge] = []
        for row in rows:
            if len(pairs) < spare and row not in taken and row + 1 not in taken:
                taken |= {row, row + 1}
                pairs.append(Merge(*table.segments["segment"][row : row + 2].tolist()))
        yield topic, Reshape(table.topic_name(topic), merges=tuple(pairs))
