"""Traffic as any broker shows it: its own counts, and the owners' reports to the leader for the others."""

import contextlib
from collections.abc import Callable, Mapping

from filer.errors import BraidError
from filer.topic.topic_state import TopicState
from leader.membership.coordinator import Coordinator
from leader.traffic_reports import TrafficReports
from mq.peers.peers import Peers
from mq.peers.traffic_report import ShownTraffic
from mq.traffic.topic_traffic import TopicTraffic

ASK_SECONDS = 1.0
"""How long an answer waits for the leader: people often look when brokers do not answer."""


class TrafficView:
    """The traffic of open segments, for people."""

    def __init__(
        self,
        *,
        broker: str,
        coordinator: Coordinator,
        peers: Peers,
        url_of: Callable[[str], str | None],
        reports: TrafficReports,
    ) -> None:
        self._broker, self._coordinator, self._peers, self._url_of = broker, coordinator, peers, url_of
        self._reports = reports

    async def of(self, state: TopicState, traffic: TopicTraffic) -> Mapping[int, ShownTraffic]:
        """Return what is known of a topic's open segments, by id: from here, and from the leader if it answers."""
        shown = await self._from_leader(state)
        for segment in state.open_segments:
            if (own := traffic.recent(segment.id)) is not None:
                hot_slot = shown[segment.id].hot_slot if segment.id in shown else None
                shown[segment.id] = ShownTraffic(own, hot_slot)
        return shown

    def reported(self, state: TopicState) -> dict[int, ShownTraffic]:
        """Return what owners have reported to this broker as the leader; empty if it does not lead."""
        topic, reports = state.topic, self._reports
        shown = {
            segment.id: ShownTraffic(reports.traffic(topic, segment.id), reports.hot_slot(topic, segment.id))
            for segment in state.open_segments
        }
        return {segment_id: each for segment_id, each in shown.items() if each != ShownTraffic(None, None)}

    async def _from_leader(self, state: TopicState) -> dict[int, ShownTraffic]:
        leader = self._coordinator.leader()
        if leader is None or leader == self._broker:
            return self.reported(state)
        # Without the leader's answer the traffic is shown as unknown.
        with contextlib.suppress(BraidError):
            return await self._peers.traffic_view(self._url_of(leader), state.topic, timeout_seconds=ASK_SECONDS)
        return {}
