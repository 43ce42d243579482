"""Reports the traffic of this broker's segments to the leader, once each report interval (docs/design.md §8)."""

from collections.abc import Awaitable, Callable, Iterable

from filer.clock import Clock
from filer.errors import BraidError
from filer.event_log import EventLog
from leader.membership.coordinator import Coordinator
from leader.traffic.traffic_averages import SegmentTraffic
from leader.traffic_reports import TrafficReports
from mq.limits.front_store import FrontStore
from mq.peers.peers import Peers
from mq.peers.traffic_report import TrafficReport
from mq.traffic.topic_traffic import TopicTraffic

TOPICS_AT_ONCE = 32
"""Some 0.5 ms."""
REPEATED_PER_NEW = 16
"""To repeat so many reports takes as long as to make one."""

_log = EventLog(__name__)


class TrafficReporter:
    """Updates the averages and reports them. A report that is lost is followed by the next one.

    `traffic` returns the traffic of all running topics; each `turn` looks at a few of them. A leading broker passes its
    report to `reports`.
    """

    def __init__(
        self,
        *,
        broker: str,
        clock: Clock,
        interval_seconds: float,
        traffic: Callable[[], Iterable[TopicTraffic]],
        front_store: FrontStore,
        coordinator: Coordinator,
        peers: Peers,
        url_of: Callable[[str], str | None],
        reports: TrafficReports,
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        self._broker, self._clock, self._interval_seconds = broker, clock, interval_seconds
        self._traffic, self._front_store = traffic, front_store
        self._coordinator, self._peers, self._url_of = coordinator, peers, url_of
        self._reports, self._turn = reports, turn

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._clock.sleep(self._interval_seconds)
            try:
                await self.report()
            except BraidError as error:
                # The leader may be gone. The next one learns everything it needs from the next report.
                _log.info("report_not_taken", error=error)
            except Exception as error:
                _log.warning("report_failed", error=error)

    async def report(self) -> None:
        """Report once. Raises `PeerUnreachable` or `OutcomeUnknown` if the leader does not answer."""
        segments, repeated, now_seconds = (
            list[SegmentTraffic](),
            list[SegmentTraffic](),
            self._clock.monotonic_seconds(),
        )
        left = 0
        for traffic in [each for each in self._traffic() if not each.rests(now_seconds)]:
            if left <= 0:
                await self._turn()
                left = TOPICS_AT_ONCE * REPEATED_PER_NEW
            if (same := traffic.repeat(self._interval_seconds)) is None:
                segments += traffic.report(self._interval_seconds)
                left -= REPEATED_PER_NEW
            else:
                repeated += same
                left -= 1
        leader = self._coordinator.leader()
        if leader == self._broker:
            self._reports.record(self._broker, self._front_store.pending_bytes, segments, repeated)
        elif leader is not None:
            url = self._url_of(leader)
            report = TrafficReport(self._broker, self._front_store.pending_bytes, [*segments, *repeated])
            for batch in report.batches():
                await self._peers.report_traffic(url, batch)
