"""The traffic of a segment as its owner knows it: asked of the owner, and handed on to the next one."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping

from filer.errors import BraidError
from filer.topic.topic_state import Segment, TopicState
from leader.policy.cut_points import SlotTraffic
from leader.traffic.traffic_averages import KnownAverages, goes_on_for
from mq.peers.peers import Peers
from mq.traffic.topic_traffic import TopicTraffic

ASK_SECONDS = 1.0
"""How long a move waits for averages at most: they are useful, not necessary."""


class OwnerTraffic:
    """Asks owners for traffic, in memory if this broker is the owner, and carries averages from owner to owner.

    Averages that are lost start again: unknown is neither hot nor cold.

    `traffic_of` returns the traffic of a topic that runs here, None for others. `url_of` returns a broker's address.
    """

    def __init__(
        self,
        *,
        broker: str,
        peers: Peers,
        url_of: Callable[[str], str | None],
        traffic_of: Callable[[str], TopicTraffic | None],
    ) -> None:
        self._broker, self._peers, self._url_of, self._traffic_of = broker, peers, url_of, traffic_of

    async def slot_traffic(self, topic: str, segment: Segment) -> SlotTraffic | None:
        """Return the traffic per slot of an open segment; None if the owner does not know it or does not answer."""
        if segment.owner == self._broker:
            traffic = self._traffic_of(topic)
            return None if traffic is None else traffic.slot_traffic(segment.id)
        with contextlib.suppress(BraidError):
            return await self._peers.slot_traffic(self._url_of(segment.owner), topic, segment.id)
        return None

    async def collect(self, state: TopicState, segment_ids: Iterable[int]) -> Mapping[int, KnownAverages]:
        """Return the averages of those segments that are open and whose owners answer, by segment id."""
        leaving = [segment for i in segment_ids if (segment := state.segment(i)) and segment.state == "open"]
        known = await asyncio.gather(*(self._averages(state.topic, segment) for segment in leaving))
        return {segment.id: each for segment, each in zip(leaving, known, strict=True) if each is not None}

    async def deliver(self, state: TopicState, known: Mapping[int, KnownAverages]) -> None:
        """Give the averages to the new owners of the same key ranges."""
        segments = {segment.id: segment for segment in state.segments}
        for segment in state.open_segments:
            before = goes_on_for(segment, segments)
            if before is not None and before.id in known and before.owner != segment.owner:
                with contextlib.suppress(BraidError):
                    await self._give(state, segment, known[before.id])

    async def _averages(self, topic: str, segment: Segment) -> KnownAverages | None:
        if segment.owner == self._broker:
            traffic = self._traffic_of(topic)
            return None if traffic is None else traffic.averages(segment.id)
        with contextlib.suppress(BraidError):
            url = self._url_of(segment.owner)
            return await self._peers.averages(url, topic, segment.id, timeout_seconds=ASK_SECONDS)
        return None

    async def _give(self, state: TopicState, segment: Segment, averages: KnownAverages) -> None:
        if segment.owner != self._broker:
            url = self._url_of(segment.owner)
            await self._peers.give_averages(url, state.topic, segment.id, state.version, averages)
        elif (traffic := self._traffic_of(state.topic)) is not None:
            traffic.take_over(segment.id, averages)
