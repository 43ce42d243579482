"""The loads of those open segments of a topic that this broker owns."""

import pyarrow as pa

from filer.clock import Clock
from filer.topic_state import TopicState
from leader.cut_points import SlotLoads
from leader.load_averages import KnownAverages, RecentLoad, SegmentLoad, goes_on_for
from mq.load_meter import LoadMeter


class TopicLoads:
    """A meter for each of them."""

    def __init__(self, clock: Clock, broker: str) -> None:
        self._clock, self._broker = clock, broker
        self._topic = ""
        self._meters: dict[int, LoadMeter] = {}

    def apply(self, state: TopicState) -> None:
        """Watch what is ours by that state, and nothing else; a segment that was rolled goes on with what is known."""
        known, self._topic = self._meters, state.topic
        segments = {segment.id: segment for segment in state.segments}
        self._meters = {}
        for segment in state.open_segments:
            if segment.owner == self._broker:
                before = goes_on_for(segment, segments)
                meter = known.get(segment.id) or (known.get(before.id) if before is not None else None)
                self._meters[segment.id] = meter or LoadMeter(segment, state.config, self._clock)
        for meter in self._meters.values():
            meter.configure(state.config)

    def count(self, segment: int, table: pa.Table, size_bytes: int) -> None:
        """Take in the messages of a file that has been stored."""
        meter = self._meters.get(segment)
        if meter is not None:
            meter.count(table, size_bytes)

    def tick(self) -> list[SegmentLoad]:
        """Move all averages on to now; what the leader is to hear."""
        return [meter.tick(self._topic, segment) for segment, meter in self._meters.items()]

    def recent(self, segment: int) -> RecentLoad | None:
        """How busy a segment is, as of the last tick; None where it is not ours, or there was none yet."""
        meter = self._meters.get(segment)
        return None if meter is None else meter.recent

    def averages(self, segment: int) -> KnownAverages | None:
        """What another owner of a segment's key range is to go on with; None where the segment is not ours."""
        meter = self._meters.get(segment)
        return None if meter is None else meter.averages.known()

    def take_over(self, segment: int, known: KnownAverages) -> None:
        """Go on with what the former owner of a segment's key range knows, if the segment is ours."""
        meter = self._meters.get(segment)
        if meter is not None:
            meter.averages.take_over(known)

    def slot_loads(self, segment: int) -> SlotLoads | None:
        """How a segment's load lies over its slots; None where that is not known here."""
        meter = self._meters.get(segment)
        return None if meter is None else meter.slot_loads()
