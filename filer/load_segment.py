"""A segment of a load, as those who write its files and those who check them know it."""

from dataclasses import dataclass

from filer.schema import KeyType, ValueType


@dataclass(frozen=True, slots=True)
class LoadSegment:
    """One of the segments that were reserved for a load, as the answer to the reservation describes it.

    `timestamp_us` is the load's own time, which every message gets; the types are those of the topic.
    """

    load: str
    segment: int
    start_slot: int
    stop_slot: int
    timestamp_us: int
    key_type: KeyType = "binary"
    value_type: ValueType = "binary"


def writer_of(load: str) -> str:
    """Who the footers of a load's files say wrote them."""
    return f"load:{load}"
