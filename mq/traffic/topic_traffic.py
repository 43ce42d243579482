"""The traffic of the open segments of a topic that this broker owns."""

from collections.abc import Callable

from filer.clock import Clock
from filer.segment.later_table import Rows
from filer.topic.topic_state import TopicState
from leader.policy.cut_points import SlotTraffic
from leader.traffic.traffic_averages import KnownAverages, RecentTraffic, SegmentTraffic, goes_on_for
from leader.traffic.traffic_table import YOUNG_SECONDS
from mq.traffic.traffic_meter import TrafficMeter

IDLE_SHARE, IDLE_READS_PER_SECOND = 1e-2, 1e-2
"""A topic with less than that share of its lowest rule's threshold is idle: to the leader it has no traffic."""
REPEAT_INTERVALS, LONGEST_REST_INTERVALS = 3, 60
"""The report of an idle topic is repeated every so many intervals, before the leader takes it for stale (5).

It is made anew after the second number of intervals.
"""


class TopicTraffic:
    """A meter for each segment. `pending_bytes` returns the bytes of a segment that wait to be stored, by its id.

    `files` counts stored files.
    """

    def __init__(self, clock: Clock, broker: str, pending_bytes: Callable[[int], int]) -> None:
        self._clock, self._broker, self._pending_bytes = clock, broker, pending_bytes
        self._topic = ""
        self._meters: dict[int, TrafficMeter] = {}
        self.files = 0
        self._last: list[SegmentTraffic] = []
        self._is_idle, self._ticked_seconds, self._due_seconds = False, 0.0, 0.0
        self._idle_times_target = 0.0

    def apply(self, state: TopicState) -> None:
        """Measure exactly the segments that this broker owns in that state.

        A segment that continues the key range of another one keeps its meter.
        """
        known, self._topic = self._meters, state.topic
        segments = {segment.id: segment for segment in state.segments}
        self._meters = {}
        for segment in state.open_segments:
            if segment.owner == self._broker:
                before = goes_on_for(segment, segments)
                meter = known.get(segment.id) or (known.get(before.id) if before is not None else None)
                self._meters[segment.id] = meter or TrafficMeter(segment, state.config, self._clock)
        for meter in self._meters.values():
            meter.configure(state.config)
        rules = state.config.scaling
        lowest = min(rules.merge.times_target, *(rule.times_target for rule in rules.split), 1.0)
        self._is_idle, self._due_seconds, self._idle_times_target = False, 0.0, IDLE_SHARE * lowest

    def count(self, segment: int, rows: Rows, size_bytes: int) -> None:
        """Count the messages of a file that has been stored."""
        self.files += 1
        self._due_seconds = 0.0
        meter = self._meters.get(segment)
        if meter is not None:
            meter.count(rows, size_bytes)

    def count_read(self, segment: int, messages: int, size_bytes: int) -> None:
        """Count an answer to a reader, or to another broker that has readers."""
        self._due_seconds = 0.0
        meter = self._meters.get(segment)
        if meter is not None:
            meter.count_read(messages, size_bytes)

    def rests(self, now_seconds: float) -> bool:
        """Whether there is nothing to report: the topic has no traffic, and the leader knows."""
        return now_seconds < self._due_seconds

    def repeat(self, interval_seconds: float) -> list[SegmentTraffic] | None:
        """Return the report before, if it still holds, as mostly for a topic without traffic. None: make another."""
        now_seconds = self._clock.monotonic_seconds()
        rests = self._is_idle and self._due_seconds
        if not rests or now_seconds - self._ticked_seconds >= LONGEST_REST_INTERVALS * interval_seconds:
            return None
        self._due_seconds = now_seconds + REPEAT_INTERVALS * interval_seconds
        return self._last

    def report(self, interval_seconds: float) -> list[SegmentTraffic]:
        """As `tick`, once in `interval_seconds`, if the report before cannot be repeated."""
        now_seconds = self._clock.monotonic_seconds()
        if self._is_idle:
            # It was idle until the interval that ends now.
            for meter in self._meters.values():
                meter.pass_idle(now_seconds - interval_seconds)
        self._last, self._ticked_seconds = self.tick(), now_seconds
        self._is_idle = all(_is_idle(each, self._idle_times_target) for each in self._last)
        self._due_seconds = now_seconds + REPEAT_INTERVALS * interval_seconds if self._is_idle else 0.0
        return self._last

    def tick(self) -> list[SegmentTraffic]:
        """Update all averages to the current time; returns what to report to the leader."""
        return [
            meter.tick(self._topic, segment, pending_bytes=self._pending_bytes(segment))
            for segment, meter in self._meters.items()
        ]

    def recent(self, segment: int) -> RecentTraffic | None:
        """Return a segment's traffic as of the last tick; None for others' segments, and before the first tick."""
        meter = self._meters.get(segment)
        return None if meter is None else meter.recent

    def averages(self, segment: int) -> KnownAverages | None:
        """Return what the next owner of a segment's key range continues with; None for another broker's segment."""
        meter = self._meters.get(segment)
        return None if meter is None else meter.averages.known()

    def take_over(self, segment: int, known: KnownAverages) -> None:
        """Continue with the averages of the former owner of a segment's key range, if this broker owns the segment."""
        meter = self._meters.get(segment)
        if meter is not None:
            meter.averages.take_over(known)

    def slot_traffic(self, segment: int) -> SlotTraffic | None:
        """Return a segment's traffic per slot; None if it is not known here."""
        meter = self._meters.get(segment)
        return None if meter is None else meter.slot_traffic()


def _is_idle(report: SegmentTraffic, below_times_target: float) -> bool:
    return (
        report.age_seconds >= YOUNG_SECONDS
        and max(report.recent, report.warmest) < below_times_target
        and report.read_messages_per_second < IDLE_READS_PER_SECOND
        and not report.pending_bytes
    )
