"""The traffic of segments as a table: messages published, read, and waiting to be stored."""

from collections.abc import Iterable

from braidmq.models import Segment, SegmentTraffic
from mq.cli.output import size

COLUMNS = ("segment", "messages/s", "size/s", "read/s", "read size/s", "pending", "of target", "hot slot")


def traffic_rows(segments: Iterable[Segment]) -> list[tuple[object, ...]]:
    """A row for each segment whose traffic is known."""
    return [_row(segment, segment.traffic) for segment in segments if segment.traffic is not None]


def _row(segment: Segment, traffic: SegmentTraffic) -> tuple[object, ...]:
    return (
        str(segment.segment),
        traffic.messages_per_second,
        size(traffic.bytes_per_second),
        traffic.read_messages_per_second,
        size(traffic.read_bytes_per_second),
        size(traffic.pending_bytes),
        f"{traffic.times_target:.0%}",
        None if segment.hot_slot is None else str(segment.hot_slot),
    )
