"""Where a read begins: at a `marker`, or `from` earliest, latest or a time."""

from filer.errors import InvalidInput
from filer.topic.positions import PositionExpired, Positions, from_marker, to_marker
from mq.base.errors import NotFound, PositionTooOld
from mq.bodies.times import parse_time
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_view import TopicView


async def start_positions(
    topic: str, reader: TopicReader, marker: str | None, from_: str | None, *, default: str, field: str = "from"
) -> Positions:
    """The wanted positions; raises `InvalidMarker`, `InvalidInput`, `PositionTooOld`. `field`: the name of `from_`."""
    if marker is not None:
        if from_ is not None:
            raise InvalidInput(f"marker or {field}, not both: a marker already says where to begin")
        positions = from_marker(topic, marker)
        await check_positions(topic, reader, positions)
        return positions
    begin = from_ if from_ is not None else default
    if begin == "earliest":
        return reader.earliest()
    if begin == "latest":
        return await reader.latest()
    return await reader.at_time(moment_of(begin, field))


def moment_of(begin: str, field: str = "from") -> int:
    """The time in `field`, which may also be earliest or latest. Raises `InvalidInput`."""
    return parse_time(begin, field, instead="earliest, latest, or ")


async def check_positions(topic: str, reader: TopicReader, positions: Positions) -> None:
    """Raise `PositionTooOld`, with the marker of the oldest messages, or `InvalidMarker`."""
    try:
        await reader.check(positions)
    except PositionExpired as error:
        raise PositionTooOld(str(error), to_marker(topic, reader.earliest())) from error


async def check_offset(view: TopicView, segment: int, offset: int, reader: TopicReader) -> None:
    """Raise `NotFound` for an unknown segment, `PositionTooOld` or `InvalidInput` for an offset outside it."""
    runtime = view.runtime
    found = runtime.state.segment(segment)
    if found is None:
        # Another broker may have opened it, and this one does not know it yet.
        await runtime.refresh()
        found = runtime.state.segment(segment)
    if found is None:
        if segment < runtime.state.next_segment and segment >= 0:
            raise PositionTooOld(
                f"segment {segment} has been removed by retention",
                to_marker(view.topic, reader.earliest()),
            )
        raise NotFound("segment", f"topic {view.topic!r} has no segment {segment}")
    if offset < found.start_offset:
        raise PositionTooOld(
            f"offset {offset} of segment {segment} is older than what is kept (from {found.start_offset} on)",
            to_marker(view.topic, reader.earliest()),
        )
    end = found.end_offset if found.end_offset is not None else await runtime.reads.end_of(segment, at_least=offset)
    if offset > end:
        raise InvalidInput(f"offset {offset} is beyond the end of segment {segment}, {end} now")
