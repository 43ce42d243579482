"""Faults that keep topics from being used: records that cannot be read, and repairs that fail."""

import contextlib
from collections.abc import Awaitable, Callable

from filer.clock import Clock
from filer.errors import BraidError, DataMissing, UnreadableObject
from filer.event_log import EventLog
from filer.topic.known_records import OlderRecord
from mq.metrics.metrics import Metrics
from mq.metrics.topic_families import FAULTS, REPAIR_FAILURES

RECHECK_SECONDS = 5.0
"""How often unusable records are read again: once such a record is put back, its topic goes on."""

_log = EventLog(__name__)


class TopicFaults:
    """The faults of topics by name. All methods belong to the event loop's thread.

    Each fault is logged and counted when it appears and when it changes, and logged when it is over.
    """

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock, self._metrics = clock, metrics
        self._records: dict[str, UnreadableObject] = {}
        self._repairs: dict[str, Exception] = {}

    def fault_of(self, topic: str) -> UnreadableObject | None:
        """Return the damaged or lost object that keeps a topic from being used or repaired; None if there is none."""
        repair = self._repairs.get(topic)
        return self._records.get(topic) or (repair if isinstance(repair, UnreadableObject) else None)

    def record_read(self, topic: str, fault: UnreadableObject | None) -> None:
        """Note that a topic's record was read; `fault` says why it cannot be used."""
        before = self._records.get(topic)
        if str(before) == str(fault):
            return
        if fault is None:
            del self._records[topic]
            _log.warning("topic_usable_again", topic=topic)
        else:
            self._records[topic] = fault
            self._metrics.topics.of(topic).count(FAULTS, label=_kind(fault))
            _log.warning("topic_unusable", topic=topic, key=fault.key, error=fault)
        self._metrics.upkeep.unusable_records.set(len(self._records))

    def repair_failed(self, topic: str, error: Exception) -> None:
        """Note that a topic could not be taken over or repaired; that is tried again."""
        before = self._repairs.get(topic)
        self._repairs[topic] = error
        self._metrics.topics.of(topic).count(REPAIR_FAILURES)
        if before is None or (type(before), str(before)) != (type(error), str(error)):
            _log.warning("repair_failed", topic=topic, error=error)

    def repaired(self, topic: str) -> None:
        """Note that a topic needs no repair any more."""
        if self._repairs.pop(topic, None) is not None:
            _log.warning("topic_repaired", topic=topic)

    async def recheck(self, refresh: Callable[[str], Awaitable[None]]) -> None:
        """Read unusable records again, until cancelled."""
        while True:
            await self._clock.sleep(RECHECK_SECONDS)
            for topic in list(self._records):
                with contextlib.suppress(BraidError):
                    await refresh(topic)


def _kind(fault: UnreadableObject) -> str:
    if isinstance(fault, DataMissing):
        return "missing"
    return "older" if isinstance(fault, OlderRecord) else "damaged"
