"""A segment of a bulk load: what the writers of its files and the check need to know about it."""

from dataclasses import dataclass

from filer.format.schema import OF_BYTES, MessageSchema


@dataclass(frozen=True, slots=True)
class LoadSegment:
    """A segment that is reserved for a bulk load, as in the answer to the reservation.

    `timestamp_us` is the time of the bulk load, which all its messages get. `schema` is the topic's. `digests`: whether
    the broker accepts files with digests. A broker of version 0.1 refuses what it does not know.
    """

    load: str
    segment: int
    start_slot: int
    stop_slot: int
    timestamp_us: int
    schema: MessageSchema = OF_BYTES
    digests: bool = True


def writer_of(load: str) -> str:
    """The writer in the footers of a bulk load's files."""
    return f"load:{load}"
