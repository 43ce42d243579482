"""Tells the leader how busy this broker's segments are, once each report interval (DESIGN.md §8)."""

import logging
from collections.abc import Mapping
from typing import Protocol

from filer.errors import BraidError
from leader.reshaping import Reshaping
from mq.load_report import LoadReport
from mq.parts import Parts
from mq.topic_runtime import TopicRuntime

_log = logging.getLogger(__name__)


class Reported(Protocol):
    """A broker with its running topics."""

    @property
    def topics(self) -> Mapping[str, TopicRuntime]:
        """By name, deleted ones included."""
        ...


class LoadReporter:
    """Moves the averages on and reports them. A report that does not arrive is followed by the next."""

    def __init__(self, parts: Parts, broker: Reported, reshaping: Reshaping) -> None:
        self._parts, self._broker, self._reshaping = parts, broker, reshaping

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._parts.clock.sleep(self._parts.settings.report_interval)
            try:
                await self.report()
            except BraidError as error:
                # The leader may just be gone: there is another soon, which learns all there is from the next report.
                _log.info("the leader has not heard of the load: %s: %s", type(error).__name__, error)
            except Exception as error:
                _log.warning("the load could not be reported: %s: %s", type(error).__name__, error)

    async def report(self) -> None:
        """Report once; raises `PeerUnreachable` or `OutcomeUnknown` where the leader does not answer."""
        loads = [load for runtime in self._broker.topics.values() for load in runtime.loads.tick()]
        report = LoadReport(self._parts.broker, self._parts.front_store.pending_bytes, loads)
        leader = self._parts.coordinator.leader()
        if leader == self._parts.broker:
            self._reshaping.hear(report.broker, report.pending_bytes, report.loads)
        elif leader is not None:
            url = self._parts.url_of(leader)
            for part in report.parts():
                await self._parts.peers.report_load(url, part)
