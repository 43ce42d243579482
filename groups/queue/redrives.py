"""Records which dead letters of a group were published to its topic again."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from groups.offset_set import OffsetSet
from groups.records import Done, Redriven, Redriving


class Redrives:
    """The state of a group's redrives, as its records add up.

    A record first names the dead letters that are redriven, and the sequence of `producer` for them. Then they are
    published as one request. Then a record says that they are. A coordinator that takes over repeats the second step:
    each message is there once. At most one redrive is `pending`. `next_sequence` is that of the next one.
    """

    __slots__ = ("_settled", "next_sequence", "pending", "producer")

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.pending: Redriving | None = None
        self.next_sequence = 0
        self._settled: dict[str, dict[int, OffsetSet]] = {}

    @property
    def group_id(self) -> str:
        """The id by which a group's dead letters name it: resets do not change it, and another group has another one.

        It is the id of the group's first incarnation, without the origin in it.
        """
        return self.producer.partition(".")[0]

    def add(self, record: Redriving | Redriven) -> None:
        """Add a record up."""
        if isinstance(record, Redriven):
            self.pending = None
            return
        self.pending = record if record.letters else None
        self.next_sequence = record.sequence + 1
        by_segment = self._settled.setdefault(record.topic, {})
        for segment, start, stop in (*record.letters, *record.passed):
            by_segment.setdefault(segment, OffsetSet()).add(start, stop)

    def is_settled(self, topic: str, segment: int, offset: int) -> bool:
        """Whether a dead letter was redriven, or is to be skipped from now on."""
        settled = self._settled.get(topic, {}).get(segment)
        return settled is not None and offset in settled

    def settled(self, topic: str, segment: int) -> list[tuple[int, int]]:
        """The letters of a segment that were redriven, or are to be skipped from now on."""
        settled = self._settled.get(topic, {}).get(segment)
        return [] if settled is None else settled.ranges()

    def skip(self, topic: str, segment: int, offset: int) -> int:
        """The first offset, from that one on, that is not settled."""
        settled = self._settled.get(topic, {}).get(segment)
        return offset if settled is None else settled.next_outside(offset)

    @property
    def range_count(self) -> int:
        """How many ranges it remembers."""
        return sum(settled.range_count for each in self._settled.values() for settled in each.values())

    def forget(self, topic: str, starts: Mapping[int, int]) -> None:
        """Forget all of that topic except segments from these offsets on: nothing else is left of it."""
        by_segment = self._settled.get(topic, {})
        for segment, settled in list(by_segment.items()):
            if segment not in starts:
                del by_segment[segment]
            else:
                settled.remove(0, starts[segment])
                if not settled:
                    del by_segment[segment]

    def to_plain(self) -> dict[str, Any]:
        """For a snapshot."""
        return {
            "producer": self.producer,
            "pending": None if self.pending is None else asdict(self.pending),
            "next_sequence": self.next_sequence,
            "settled": [
                [topic, [[segment, settled.to_plain()] for segment, settled in by_segment.items()]]
                for topic, by_segment in self._settled.items()
            ],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Redrives":
        """From a snapshot. Raises `KeyError` and `TypeError` for anything else."""
        redrives = cls(plain["producer"])
        redrives.next_sequence = plain["next_sequence"]
        redrives._settled = {
            topic: {segment: OffsetSet.from_plain(bounds) for segment, bounds in by_segment}
            for topic, by_segment in plain["settled"]
        }
        if (pending := plain["pending"]) is not None:
            done = {name: [Done(*each) for each in pending[name]] for name in ("letters", "passed")}
            redrives.pending = Redriving(**(pending | done))
        return redrives


def count_of(ranges: Iterable[Done]) -> int:
    """How many messages these are."""
    return sum(each.stop - each.start for each in ranges)
