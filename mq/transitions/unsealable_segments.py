"""Segments that cannot be sealed, because their last file is damaged: transitions go on without them."""

import contextlib
from dataclasses import dataclass, field

from filer.backoff import backoff_seconds
from filer.clock import Clock
from filer.errors import BraidError, UnreadableObject
from filer.event_log import EventLog
from filer.segment.segment_log import check_end
from mq.topic.topic_registry import TopicRegistry

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0

_log = EventLog(__name__)


@dataclass(slots=True)
class _LeftOut:
    """Why a segment was left out, how often it was checked since, and when that is due again."""

    error: UnreadableObject
    due_seconds: float
    looks: int = field(default=0)


class UnsealableSegments:
    """The segments that transitions of this broker have left out, until the damaged file is repaired.

    They are checked again, at growing intervals, before another transition would name them: so a segment that stays
    damaged costs a check, and no change of topic.json. All methods belong to the event loop's thread.
    """

    def __init__(self, clock: Clock, topics: TopicRegistry) -> None:
        self._clock, self._topics = clock, topics
        self._known: dict[tuple[str, int], _LeftOut] = {}

    def left_out(self, topic: str, segment_id: int, error: UnreadableObject) -> None:
        """Note that a transition goes on without this segment."""
        if self.has(topic, segment_id):
            return
        _log.error("segment_left_out", topic=topic, segment=segment_id, error=error)
        self._known[topic, segment_id] = _LeftOut(error, self._clock.monotonic_seconds() + FIRST_PAUSE_SECONDS)

    def has(self, topic: str, segment_id: int) -> bool:
        """Whether a transition should leave this segment out."""
        return (topic, segment_id) in self._known

    def check(self, topic: str, segments: list[int]) -> None:
        """Raise the error of the first of these segments that was left out."""
        for segment_id in segments:
            if (found := self._known.get((topic, segment_id))) is not None:
                raise found.error

    async def look_again(self, topic: str) -> None:
        """Forget the segments of a topic that can be sealed now, or that others have sealed."""
        now_seconds = self._clock.monotonic_seconds()
        for (name, segment_id), left_out in list(self._known.items()):
            if name != topic or now_seconds < left_out.due_seconds:
                continue
            left_out.looks += 1
            pause_seconds = backoff_seconds(
                left_out.looks, first_seconds=FIRST_PAUSE_SECONDS, longest_seconds=LONGEST_PAUSE_SECONDS
            )
            left_out.due_seconds = now_seconds + pause_seconds
            with contextlib.suppress(BraidError):
                if await self._is_mended(topic, segment_id):
                    self._known.pop((topic, segment_id), None)

    async def _is_mended(self, topic: str, segment_id: int) -> bool:
        runtime = self._topics.get(topic)
        if runtime is not None:
            await runtime.refresh()  # an operator may have given the file up
        segment = None if runtime is None else runtime.state.segment(segment_id)
        if runtime is None or segment is None or segment.state != "open":
            return True
        check_end(runtime.ref(segment_id), await runtime.reads.index(segment_id, fresh=True))
        return True
