"""How busy segments are, as a table: what is published to them, what is read of them, what waits to be stored."""

from collections.abc import Iterable

from braidmq.models import Segment, SegmentLoad
from mq.cli.output import size

COLUMNS = ("segment", "messages/s", "size/s", "read/s", "read size/s", "pending", "of target", "hot slot")


def load_rows(segments: Iterable[Segment]) -> list[tuple[object, ...]]:
    """A row for each segment whose load is known."""
    return [_row(segment, segment.load) for segment in segments if segment.load is not None]


def _row(segment: Segment, load: SegmentLoad) -> tuple[object, ...]:
    return (
        str(segment.segment),
        load.messages_per_second,
        size(load.bytes_per_second),
        load.read_messages_per_second,
        size(load.read_bytes_per_second),
        size(load.pending_bytes),
        f"{load.times_target:.0%}",
        None if segment.hot_slot is None else str(segment.hot_slot),
    )
