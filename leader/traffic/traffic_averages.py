"""How busy a segment is: averages that its owner keeps, so that a new leader starts with them (docs/design.md §8).

For each window of the topic's rules there is an exponentially weighted moving average of messages/s and of bytes/s. A
tick moves it by the time that has really passed, so idle ticks decay. The averages are plain rates: they are compared
with the target only when they are reported, so a changed target holds at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log

from filer.topic.topic_config import Scaling, Target, TopicConfig
from filer.topic.topic_state import Segment, published_before

RECENT_SHARE = 1 / 8
"""The window of `recent`, as a share of the shortest window of the rules."""


@dataclass(frozen=True, slots=True)
class RecentTraffic:
    """How busy a segment is now, for operators."""

    messages_per_second: float
    bytes_per_second: float
    times_target: float
    read_messages_per_second: float = 0.0
    read_bytes_per_second: float = 0.0
    pending_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SegmentTraffic:
    """The report of one segment. Averages are multiples of the target, of messages or of bytes: the larger one.

    `pressure` above 1 means that a split rule holds. `firing_average` is the average of the rule with that pressure, 0
    while the segment is too young for every rule. `warmest` is the highest average over any window, `merge_average` the
    one over the merge rule's window. The rates are recent and for operators: messages stored, and messages that the
    owner gave to readers and other brokers. So is `pending_bytes`, the bytes of the segment that wait in the owner's
    front store. No decision uses these.

    Fields with a default may be missing from the report of an older broker.
    """

    topic: str
    segment: int
    messages_per_second: float
    bytes_per_second: float
    recent: float
    pressure: float
    firing_average: float
    warmest: float
    merge_average: float
    age_seconds: float
    read_messages_per_second: float = 0.0
    read_bytes_per_second: float = 0.0
    pending_bytes: int = 0

    @property
    def shown(self) -> RecentTraffic:
        """The fields for operators."""
        return RecentTraffic(
            messages_per_second=self.messages_per_second,
            bytes_per_second=self.bytes_per_second,
            times_target=self.recent,
            read_messages_per_second=self.read_messages_per_second,
            read_bytes_per_second=self.read_bytes_per_second,
            pending_bytes=self.pending_bytes,
        )


@dataclass(frozen=True, slots=True)
class KnownAverages:
    """The averages that one owner of a key range gives to the next.

    `sums` has, by window in seconds, the weighted sums of messages/s and bytes/s, and the sum of the weights.
    """

    age_seconds: float
    sums: Mapping[float, tuple[float, float, float]]


class _Average:
    """A moving average of two rates, corrected for its start at zero: a young one is the mean so far."""

    __slots__ = ("bytes", "messages", "weight", "window_seconds")

    def __init__(
        self, window_seconds: float, messages: float = 0.0, size_bytes: float = 0.0, weight: float = 0.0
    ) -> None:
        self.window_seconds = window_seconds
        self.messages, self.bytes, self.weight = messages, size_bytes, weight

    def move(self, elapsed_seconds: float, messages_per_second: float, bytes_per_second: float) -> None:
        kept = exp(-elapsed_seconds / self.window_seconds)
        self.messages = kept * self.messages + (1 - kept) * messages_per_second
        self.bytes = kept * self.bytes + (1 - kept) * bytes_per_second
        self.weight = kept * self.weight + (1 - kept)

    def rates(self) -> tuple[float, float]:
        """Messages and bytes a second; zeros before the first tick."""
        return (self.messages / self.weight, self.bytes / self.weight) if self.weight else (0.0, 0.0)

    def times_target(self, target: Target) -> float:
        messages, size = self.rates()
        return max(messages / target.messages, size / target.bytes)

    def starting(self, window_seconds: float) -> "_Average":
        """An average over another window that starts with what this one knows."""
        return _Average(window_seconds, self.messages, self.bytes, self.weight)


class TrafficAverages:
    """The averages of one segment."""

    def __init__(self, config: TopicConfig, *, now_seconds: float) -> None:
        """For a segment that opened at `now_seconds` of a monotonic clock."""
        self._opened_seconds = self._ticked_seconds = now_seconds
        self._config = config
        self._averages = {window: _Average(window) for window in _windows(config.scaling)}
        self._recent = _Average(_recent_window(config.scaling))
        self._recent_reads = _Average(_recent_window(config.scaling))

    @property
    def age_seconds(self) -> float:
        """How long the traffic has been counted."""
        return self._ticked_seconds - self._opened_seconds

    def tick(
        self,
        now_seconds: float,
        messages: float,
        size_bytes: float,
        *,
        read_messages: float = 0.0,
        read_bytes: float = 0.0,
    ) -> None:
        """Add the messages stored and read since the last tick, even if there were none.

        Raises `ValueError` if no time has passed since: go on counting, and tick later.
        """
        elapsed_seconds = now_seconds - self._ticked_seconds
        if elapsed_seconds <= 0:
            raise ValueError(f"no time has passed between two ticks: {elapsed_seconds} s")
        self._ticked_seconds = now_seconds
        messages_per_second, bytes_per_second = messages / elapsed_seconds, size_bytes / elapsed_seconds
        for average in (*self._averages.values(), self._recent):
            average.move(elapsed_seconds, messages_per_second, bytes_per_second)
        self._recent_reads.move(elapsed_seconds, read_messages / elapsed_seconds, read_bytes / elapsed_seconds)

    def configure(self, config: TopicConfig) -> None:
        """Take a changed configuration: a new window begins with the averages of the nearest window."""
        if config.scaling != self._config.scaling:
            known = [*self._averages.values(), self._recent]
            self._averages = {window: _nearest(known, window) for window in _windows(config.scaling)}
            self._recent = _nearest(known, _recent_window(config.scaling))
            self._recent_reads = self._recent_reads.starting(_recent_window(config.scaling))
        self._config = config

    def known(self) -> KnownAverages:
        """Everything that the next owner needs to continue."""
        averages = (self._recent, *self._averages.values())
        return KnownAverages(self.age_seconds, {a.window_seconds: (a.messages, a.bytes, a.weight) for a in averages})

    def take_over(self, known: KnownAverages) -> None:
        """Continue with the averages of an owner that has counted for longer; what was counted here is dropped."""
        if known.age_seconds > self.age_seconds and known.sums:
            self._opened_seconds = self._ticked_seconds - known.age_seconds
            averages = [_Average(window, *sums) for window, sums in known.sums.items()]
            self._averages = {window: _nearest(averages, window) for window in self._averages}
            self._recent = _nearest(averages, self._recent.window_seconds)

    def load(self, topic: str, segment: int, *, pending_bytes: int = 0) -> SegmentTraffic:
        """The segment's report for the leader."""
        target, scaling = self._config.target, self._config.scaling
        averages = {window: average.times_target(target) for window, average in self._averages.items()}
        recent = self._recent.times_target(target)
        pressure, firing_average = self._pressure(averages, recent)
        messages_per_second, bytes_per_second = self._recent.rates()
        read_messages_per_second, read_bytes_per_second = self._recent_reads.rates()
        return SegmentTraffic(
            topic=topic,
            segment=segment,
            messages_per_second=messages_per_second,
            bytes_per_second=bytes_per_second,
            recent=recent,
            pressure=pressure,
            firing_average=firing_average,
            warmest=max(averages.values()),
            merge_average=averages[scaling.merge.for_seconds],
            age_seconds=self.age_seconds,
            read_messages_per_second=read_messages_per_second,
            read_bytes_per_second=read_bytes_per_second,
            pending_bytes=pending_bytes,
        )

    def _pressure(self, averages: dict[float, float], recent: float) -> tuple[float, float]:
        """The largest quotient of a split rule's average and limit, and that rule's average.

        A rule does not count before the segment is as old as its window. It holds only while the recent rate is above
        the limit too: a long average remembers a flood that is over, when a split is no longer of use.
        """
        old_enough = [rule for rule in self._config.scaling.split if self.age_seconds >= rule.for_seconds]
        return max(
            (
                (min(averages[rule.for_seconds], recent) / rule.times_target, averages[rule.for_seconds])
                for rule in old_enough
            ),
            default=(0.0, 0.0),
        )


def goes_on_for(segment: Segment, known: Mapping[int, Segment]) -> Segment | None:
    """The predecessor with exactly the slots of this segment: knowledge of its traffic holds for both.

    None if there is none, or if it is not in `known`, the segments by id. A bulk load in between is skipped: it says
    nothing about what is published.
    """
    before = known.get(segment.predecessors[0]) if len(segment.predecessors) == 1 else None
    if before is not None and before.load is None:
        return before if before.range == segment.range else None
    return next((each for each in published_before(segment, known) if each.range == segment.range), None)


def _windows(scaling: Scaling) -> list[float]:
    return sorted({scaling.merge.for_seconds, *(rule.for_seconds for rule in scaling.split)})


def _recent_window(scaling: Scaling) -> float:
    return _windows(scaling)[0] * RECENT_SHARE


def _nearest(known: Iterable[_Average], window_seconds: float) -> _Average:
    nearest = min(known, key=lambda each: (abs(log(each.window_seconds / window_seconds)), each.window_seconds))
    return nearest.starting(window_seconds)
