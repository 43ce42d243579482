"""The key ranges of a topic's segments, fetched when an answer names one that is not known yet."""

from collections.abc import Iterable, Mapping

from braidmq.admin import Admin
from braidmq.errors import BraidMQError
from braidmq.placement import KeyRange
from braidmq.retry import ONE_ROUND


class SegmentRanges:
    """Ranges by segment. A segment never changes its range, so that what is known stays true."""

    def __init__(self, admin: Admin, topic: str) -> None:
        self._admin = admin
        self._topic = topic
        self._known: Mapping[int, KeyRange] = {}

    async def of(self, segments: Iterable[int]) -> Mapping[int, KeyRange]:
        """The ranges of at least these segments, as far as they can be told at once.

        Failures leave them unknown: the messages in question are acknowledged already.
        """
        if not set(segments) <= self._known.keys():
            try:
                topic = await self._admin.topic(self._topic, retry=ONE_ROUND)
            except BraidMQError:
                return self._known
            self._known = {each.segment: each.range for each in topic.segments}
        return self._known
