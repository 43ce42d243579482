"""Calls about the traffic of segments: to the leader, which decides by it, and to owners, which count it."""

from starlette.types import Receive

from filer.errors import SegmentMoved
from leader.policy.cut_points import SlotTraffic
from leader.traffic.traffic_averages import KnownAverages
from mq.bodies.intake import Intake
from mq.broker import Broker
from mq.http.internal.topic_at import topic_at
from mq.limits.front_store import FrontStore
from mq.peers.calls import Call, ToBroker, ToSegment, ToSegmentAt, ToTopic
from mq.peers.traffic_report import MOST_REPORT_BYTES, ShownTraffic, unpack_averages, unpack_report
from mq.peers.transport import PeerAnswer

REPORTS_AT_ONCE = 4


class TrafficCalls:
    """The work of the leader and of owners with the traffic of segments, for other brokers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # Reports have room of their own: a leader whose front store is full must learn of the flood all the same.
        self._room = FrontStore(REPORTS_AT_ONCE * MOST_REPORT_BYTES)

    async def take_report(self, call: Call[ToBroker, bool], asked: ToBroker, receive: Receive) -> PeerAnswer:
        """Take a broker's report of the traffic of its segments; False if this broker does not lead."""
        report = unpack_report(await self._read(receive))
        reports = self._broker.traffic_reports
        return call.pack(reports.record(report.broker, report.pending_bytes, report.segments))

    async def view(self, call: Call[ToTopic, dict[int, ShownTraffic]], asked: ToTopic, receive: Receive) -> PeerAnswer:
        """The traffic of the topic's segments, as far as this broker, as the leader, knows it."""
        return call.pack(self._broker.traffic_view.reported((await self._broker.topics.topic(asked.topic)).state))

    async def by_slot(
        self, call: Call[ToSegment, SlotTraffic | None], asked: ToSegment, receive: Receive
    ) -> PeerAnswer:
        """The traffic of a segment of ours, per slot."""
        return call.pack((await self._broker.topics.topic(asked.topic)).traffic.slot_traffic(asked.segment))

    async def averages(self, call: Call[ToSegment, KnownAverages], asked: ToSegment, receive: Receive) -> PeerAnswer:
        """The averages that we know of the traffic of a segment of ours."""
        known = (await self._broker.topics.topic(asked.topic)).traffic.averages(asked.segment)
        if known is None:
            raise SegmentMoved(f"segment {asked.segment} of topic {asked.topic!r} is not ours")
        return call.pack(known)

    async def take_averages(self, call: Call[ToSegmentAt, bool], asked: ToSegmentAt, receive: Receive) -> PeerAnswer:
        """Go on with the former owner's averages for a segment that is ours now."""
        known = unpack_averages(await self._read(receive))
        runtime = await topic_at(self._broker, asked.topic, asked.version)
        runtime.traffic.take_over(asked.segment, known)
        return call.pack(True)

    async def _read(self, receive: Receive) -> bytes:
        with Intake(self._room, MOST_REPORT_BYTES, None, wait=True) as intake:
            return await intake.read(receive, None)
