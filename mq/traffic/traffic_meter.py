"""Measures one segment's traffic where it is stored and read: per file and per page, not per message."""

import numpy as np

from filer.clock import Clock
from filer.segment.later_table import Rows
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment
from leader.policy.cut_points import SlotTraffic
from leader.traffic.traffic_averages import RecentTraffic, SegmentTraffic, TrafficAverages
from mq.traffic.slot_counters import SlotCounters

COUNT_SLOTS_FROM, COUNT_SLOTS_UNTIL = 0.5, 0.25
"""Counting slots begins when the recent traffic exceeds the first share of the lowest traffic that may split the
segment. It ends when the traffic falls below the second share."""
FILES_PER_WINDOW, SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 240, 0.05, 0.25
"""How many files are counted by slot within the shortest of the rules' windows, and the bounds of the pause between two
of them. Counting more would cost publishers much (some 0.3 ms a file) and help the leader little."""


class TrafficMeter:
    """Messages and bytes of a segment that this broker owns and, while it is busy, how they spread over its slots."""

    def __init__(self, segment: Segment, config: TopicConfig, clock: Clock) -> None:
        self._range, self._config, self._clock = segment.range, config, clock
        self._ticked_seconds = clock.monotonic_seconds()
        self.averages = TrafficAverages(config, now_seconds=self._ticked_seconds)
        self._messages = self._bytes = self._read_messages = self._read_bytes = 0
        self._last_report: SegmentTraffic | None = None
        self._slots: SlotCounters | None = None
        self._slots_due_seconds = 0.0
        self._slots_are_known = False

    def count(self, rows: Rows, size_bytes: int) -> None:
        """Count a stored file's messages, in the columns of `MessageSchema.log`."""
        self._messages += rows.num_rows
        self._bytes += size_bytes
        if self._slots is not None and self._clock.monotonic_seconds() >= self._slots_due_seconds:
            self._slots.count(rows)
            self._slots_due_seconds = self._clock.monotonic_seconds() + self._pause_seconds

    def count_read(self, messages: int, size_bytes: int) -> None:
        """Count an answer to a reader."""
        self._read_messages += messages
        self._read_bytes += size_bytes

    def configure(self, config: TopicConfig) -> None:
        """Apply changed settings."""
        self._config = config
        self.averages.configure(config)
        if self._slots is not None:
            self._slots.window_seconds = self._window_seconds

    def pass_idle(self, until_seconds: float) -> None:
        """Note that nothing was stored or read until then: later counts came in the time behind it."""
        if until_seconds > self._ticked_seconds:
            self.averages.tick(until_seconds, 0, 0)
            self._ticked_seconds = until_seconds

    def tick(self, topic: str, segment: int, *, pending_bytes: int) -> SegmentTraffic:
        """Update the averages to the current time; returns what to report to the leader under this segment id."""
        now_seconds = self._clock.monotonic_seconds()
        elapsed_seconds = now_seconds - self._ticked_seconds
        if elapsed_seconds > 0:
            self.averages.tick(
                now_seconds,
                self._messages,
                self._bytes,
                read_messages=self._read_messages,
                read_bytes=self._read_bytes,
            )
            self._ticked_seconds = now_seconds
            self._messages = self._bytes = self._read_messages = self._read_bytes = 0
        report = self._last_report = self.averages.load(topic, segment, pending_bytes=pending_bytes)
        self._start_or_stop_counting_slots(report.recent, elapsed_seconds)
        return report

    @property
    def recent(self) -> RecentTraffic | None:
        """Return the segment's traffic as of the last tick; None before the first one."""
        return None if self._last_report is None else self._last_report.shown

    def slot_traffic(self) -> SlotTraffic | None:
        """Return how the traffic spreads over the segment's slots.

        None while the segment is not busy enough to be counted, and until it was counted for a whole interval. Without
        that interval a sudden flood would be reported at the tick at which counting begins, and a cut based on the
        first few messages would be wrong.
        """
        return self._slots.traffic() if self._slots is not None and self._slots_are_known else None

    @property
    def _window_seconds(self) -> float:
        """Return the shortest window of the rules that may split the segment."""
        scaling = self._config.scaling
        return min((rule.for_seconds for rule in scaling.split), default=scaling.merge.for_seconds)

    @property
    def _pause_seconds(self) -> float:
        """Return the pause between two files that are counted by slot."""
        return min(max(self._window_seconds / FILES_PER_WINDOW, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)

    def _start_or_stop_counting_slots(self, recent: float, elapsed_seconds: float) -> None:
        """Count slots only if a split is near: counting them for every segment of a large cluster costs memory."""
        rules = self._config.scaling.split
        limit = min((1.0, *(rule.times_target for rule in rules)))
        if self._slots is None and recent > COUNT_SLOTS_FROM * limit:
            generator = np.random.default_rng(int.from_bytes(self._clock.entropy(8), "big"))
            self._slots = SlotCounters(*self._range, window_seconds=self._window_seconds, generator=generator)
            self._slots_are_known = False
        elif self._slots is not None and recent < COUNT_SLOTS_UNTIL * limit:
            self._slots = None
        elif self._slots is not None:
            self._slots.fade(elapsed_seconds)
            self._slots_are_known = self._slots_are_known or elapsed_seconds > 0
