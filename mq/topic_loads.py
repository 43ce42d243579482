"""The loads of those open segments of a topic that this broker owns."""

import pyarrow as pa

from filer.clock import Clock
from filer.topic_state import Segment, TopicState
from leader.cut_points import SlotLoads
from leader.load_averages import RecentLoad, SegmentLoad, taken_over
from mq.load_meter import LoadMeter


class TopicLoads:
    """A meter for each of them."""

    def __init__(self, clock: Clock, broker: str) -> None:
        self._clock, self._broker = clock, broker
        self._topic = ""
        self._meters: dict[int, LoadMeter] = {}
        self._latest: dict[int, SegmentLoad] = {}

    def apply(self, state: TopicState) -> None:
        """Watch what is ours by that state, and nothing else; a segment that was rolled goes on with what is known."""
        known, self._topic = self._meters, state.topic
        self._meters = {
            segment.id: known.get(segment.id) or self._new_meter(state, segment, known)
            for segment in state.open_segments
            if segment.owner == self._broker
        }
        self._latest = {segment: load for segment, load in self._latest.items() if segment in self._meters}
        for meter in self._meters.values():
            meter.configure(state.config)

    def _new_meter(self, state: TopicState, segment: Segment, known: dict[int, LoadMeter]) -> LoadMeter:
        averages = taken_over(state, segment, {each: meter.averages for each, meter in known.items()})
        if averages is not None:
            return known[segment.predecessors[0]]
        return LoadMeter(segment, state.config, self._clock)

    def count(self, segment: int, table: pa.Table, size_bytes: int) -> None:
        """Take in the messages of a file that has been stored."""
        meter = self._meters.get(segment)
        if meter is not None:
            meter.count(table, size_bytes)

    def tick(self) -> list[SegmentLoad]:
        """Move all averages on to now; what the leader is to hear."""
        self._latest = {segment: meter.tick(self._topic, segment) for segment, meter in self._meters.items()}
        return list(self._latest.values())

    def recent(self, segment: int) -> RecentLoad | None:
        """How busy a segment is, as of the last tick; None where it is not ours, or there was none yet."""
        load = self._latest.get(segment)
        if load is None:
            return None
        return RecentLoad(load.messages_per_second, load.bytes_per_second, load.recent)

    def slot_loads(self, segment: int) -> SlotLoads | None:
        """How a segment's load lies over its slots; None where that is not known here."""
        meter = self._meters.get(segment)
        return None if meter is None else meter.slot_loads()
