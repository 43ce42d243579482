"""The missing or damaged objects of a topic's segments, as far as this broker knows: logged once, counted, shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from filer.event_log import EventLog
from filer.segment.live_files import Hole
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from mq.metrics.topic_families import LOSSES, MISSING_OBJECTS
from mq.metrics.topic_metrics import TopicSeries

SHOWN = 100

_log = EventLog(__name__)


@dataclass(frozen=True, slots=True)
class LostObject:
    """An object, and the messages `[offset, next_offset)` that need it; None: their end is not known."""

    segment: int
    offset: int
    next_offset: int | None
    key: str
    damaged: bool

    @property
    def what(self) -> str:
        """What has happened to it."""
        return "damaged" if self.damaged else "missing"


class LostObjects:
    """The lost objects of one topic, by segment, as far as this broker has read its indexes.

    All methods belong to the event loop's thread.
    """

    def __init__(self, topic: str, ref: Callable[[int], SegmentRef], series: TopicSeries) -> None:
        self._topic, self._ref, self._series = topic, ref, series
        self._lost: dict[int, frozenset[LostObject]] = {}

    def note(self, segment_id: int, index: SegmentIndex) -> None:
        """Apply what an index knows. Logs an object that was not lost before."""
        if not index.lost and index.blocked is None and segment_id not in self._lost:
            return
        ref, before = self._ref(segment_id), self._lost.get(segment_id, frozenset())
        lost = {_of_hole(ref, hole) for hole in index.lost}
        if index.blocked is not None:
            lost.add(LostObject(segment_id, index.end, None, ref.key(index.blocked), damaged=True))
        known = {(each.key, each.damaged) for each in before}
        for each in sorted(lost, key=lambda each: each.offset):
            if (each.key, each.damaged) not in known:
                _log.warning(
                    "object_unreadable",
                    topic=self._topic,
                    segment=segment_id,
                    key=each.key,
                    condition=each.what,
                    offset=each.offset,
                    next_offset=each.next_offset,
                )
        for key in {each.key for each in before} - {each.key for each in lost}:
            _log.warning("object_readable_again", topic=self._topic, segment=segment_id, key=key)
        self._lost[segment_id] = frozenset(lost)
        self._count()

    def forget(self, segment_id: int) -> None:
        """Forget a segment that the topic has no longer."""
        if self._lost.pop(segment_id, None):
            self._count()

    def shown(self) -> list[dict[str, Any]]:
        """Return the lost objects as answers show them, the first `SHOWN` of them."""
        ordered = sorted((each for lost in self._lost.values() for each in lost), key=lambda e: (e.segment, e.offset))
        return [
            {
                "segment": each.segment,
                "offset": each.offset,
                "next_offset": each.next_offset,
                "key": each.key,
                "what": each.what,
            }
            for each in ordered[:SHOWN]
        ]

    def _count(self) -> None:
        for what in LOSSES:
            count = sum(each.what == what for lost in self._lost.values() for each in lost)
            self._series.set(MISSING_OBJECTS, count, what)


def _of_hole(ref: SegmentRef, hole: Hole) -> LostObject:
    return LostObject(ref.segment, hole.start, hole.end, ref.key(hole.name), hole.damaged)
