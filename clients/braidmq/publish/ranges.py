"""The key ranges of a topic's segments, fetched when an answer names an unknown one."""

from collections.abc import Iterable, Mapping

from braidmq.cluster.admin import Admin
from braidmq.errors import BraidMQError
from braidmq.publish.row_positions import KeyRange
from braidmq.transport.retry import ONE_ROUND


class SegmentRanges:
    """Key ranges by segment. A segment never changes its range, so a known range stays valid."""

    def __init__(self, admin: Admin, topic: str) -> None:
        self._admin = admin
        self._topic = topic
        self._known: Mapping[int, KeyRange] = {}

    async def of(self, segments: Iterable[int]) -> Mapping[int, KeyRange]:
        """Return all known ranges, which include those of these segments if a single request can fetch them.

        A failure leaves them unknown: the messages in question have been acknowledged already.
        """
        if not set(segments) <= self._known.keys():
            try:
                topic = await self._admin.topic(self._topic, retry=ONE_ROUND)
            except BraidMQError:
                return self._known
            self._known = {each.segment: each.range for each in topic.segments}
        return self._known
