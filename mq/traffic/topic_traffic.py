"""The traffic of those open segments of a topic that this broker owns."""

from collections.abc import Callable

from filer.clock import Clock
from filer.segment.later_table import Rows
from filer.topic.topic_state import TopicState
from leader.policy.cut_points import SlotTraffic
from leader.traffic.traffic_averages import KnownAverages, RecentTraffic, SegmentTraffic, goes_on_for
from mq.traffic.traffic_meter import TrafficMeter


class TopicTraffic:
    """A meter for each segment. `pending_bytes` gives the bytes of a segment that wait to be stored, by segment id."""

    def __init__(self, clock: Clock, broker: str, pending_bytes: Callable[[int], int]) -> None:
        self._clock, self._broker, self._pending_bytes = clock, broker, pending_bytes
        self._topic = ""
        self._meters: dict[int, TrafficMeter] = {}

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

    def count(self, segment: int, rows: Rows, size_bytes: int) -> None:
        """Count the messages of a file that has been stored."""
        meter = self._meters.get(segment)
        if meter is not None:
            meter.count(rows, size_bytes)

    def count_read(self, segment: int, messages: int, size_bytes: int) -> None:
        """Count an answer to a reader, or to another broker that has readers."""
        meter = self._meters.get(segment)
        if meter is not None:
            meter.count_read(messages, size_bytes)

    def tick(self) -> list[SegmentTraffic]:
        """Update all averages to the current time; returns what to report to the leader."""
        return [
            meter.tick(self._topic, segment, pending_bytes=self._pending_bytes(segment))
            for segment, meter in self._meters.items()
        ]

    def recent(self, segment: int) -> RecentTraffic | None:
        """A segment's traffic as of the last tick; None for another broker's segment, and before the first tick."""
        meter = self._meters.get(segment)
        return None if meter is None else meter.recent

    def averages(self, segment: int) -> KnownAverages | None:
        """What the next owner of a segment's key range continues with; None for another broker's segment."""
        meter = self._meters.get(segment)
        return None if meter is None else meter.averages.known()

    def take_over(self, segment: int, known: KnownAverages) -> None:
        """Continue with the averages of the former owner of a segment's key range, if this broker owns the segment."""
        meter = self._meters.get(segment)
        if meter is not None:
            meter.averages.take_over(known)

    def slot_traffic(self, segment: int) -> SlotTraffic | None:
        """A segment's traffic per slot; None if it is not known here."""
        meter = self._meters.get(segment)
        return None if meter is None else meter.slot_traffic()
