"""The parts of a topic's segments that were given up, as a table."""

from collections.abc import Iterable

from braidmq.models import GivenUp

GIVEN_UP_COLUMNS = ("given up in segment", "from offset", "to offset", "object", "was", "since")


def given_up_rows(segments: Iterable[tuple[int, Iterable[GivenUp]]]) -> list[tuple[object, ...]]:
    """A row for each range of offsets, from the segments and the parts given up of each."""
    return [
        (str(segment), str(each.offset), last_offset(each.offset, each.next_offset), each.key, each.what,
         each.since.isoformat(timespec="seconds"))
        for segment, ranges in segments
        for each in ranges
    ]  # fmt: skip


def last_offset(offset: int, next_offset: int | None) -> str:
    """The last offset of a range, in words if it has none, or if that is unknown."""
    if next_offset is None:
        return "unknown"
    return "no message" if next_offset == offset else str(next_offset - 1)
