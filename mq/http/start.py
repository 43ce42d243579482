"""Where reading begins: `marker`, or `from` as earliest, latest or a time."""

from filer.errors import InvalidInput
from filer.positions import PositionExpired, Positions, from_marker, to_marker
from mq.bodies.json_body import parse_time
from mq.errors import PositionTooOld
from mq.topic_reader import TopicReader


async def start_positions(
    topic: str, reader: TopicReader, marker: str | None, from_: str | None, *, default: str
) -> Positions:
    """The positions asked for; raises `InvalidMarker`, `InvalidInput`, `PositionTooOld`."""
    if marker is not None:
        if from_ is not None:
            raise InvalidInput("marker or from, not both: a marker already says where to begin")
        positions = from_marker(topic, marker)
        await check_positions(topic, reader, positions)
        return positions
    begin = from_ if from_ is not None else default
    if begin == "earliest":
        return reader.earliest()
    if begin == "latest":
        return await reader.latest()
    return await reader.at_time(parse_time(begin, "from: earliest, latest, or a time"))


async def check_positions(topic: str, reader: TopicReader, positions: Positions) -> None:
    """Raises `PositionTooOld` with the marker to go on from, or `InvalidMarker`."""
    try:
        await reader.check(positions)
    except PositionExpired as error:
        raise PositionTooOld(str(error), to_marker(topic, reader.earliest())) from error
