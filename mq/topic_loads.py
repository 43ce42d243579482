"""The loads of those open segments of a topic that this broker owns."""

from collections.abc import Callable

import pyarrow as pa

from filer.clock import Clock
from filer.topic_state import Segment, TopicState
from leader.cut_points import SlotLoads
from leader.load_averages import RecentLoad, SegmentLoad, taken_over
from mq.load_meter import LoadMeter


class TopicLoads:
    """A meter for each of them. `pending_bytes` tells what of a segment waits to be stored."""

    def __init__(self, clock: Clock, broker: str, pending_bytes: Callable[[int], int]) -> None:
        self._clock, self._broker, self._pending_bytes = clock, broker, pending_bytes
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

    def count_read(self, segment: int, messages: int, size_bytes: int) -> None:
        """Take in an answer to a reader, or to another broker that has readers."""
        meter = self._meters.get(segment)
        if meter is not None:
            meter.count_read(messages, size_bytes)

    def tick(self) -> list[SegmentLoad]:
        """Move all averages on to now; what the leader is to hear."""
        self._latest = {
            segment: meter.tick(self._topic, segment, pending_bytes=self._pending_bytes(segment))
            for segment, meter in self._meters.items()
        }
        return list(self._latest.values())

    def recent(self, segment: int) -> RecentLoad | None:
        """How busy a segment is, as of the last tick; None where it is not ours, or there was none yet."""
        load = self._latest.get(segment)
        if load is None:
            return None
        return RecentLoad(
            messages_per_second=load.messages_per_second,
            bytes_per_second=load.bytes_per_second,
            times_target=load.recent,
            read_messages_per_second=load.read_messages_per_second,
            read_bytes_per_second=load.read_bytes_per_second,
            pending_bytes=load.pending_bytes,
        )

    def slot_loads(self, segment: int) -> SlotLoads | None:
        """How a segment's load lies over its slots; None where that is not known here."""
        meter = self._meters.get(segment)
        return None if meter is None else meter.slot_loads()
