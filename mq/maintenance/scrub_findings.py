"""Damaged or missing objects that the scrubs of all brokers have found: logged once, counted, and shown."""

from typing import Any

from filer.event_log import EventLog
from filer.keys import FileName
from filer.verification.scrub_record import RECORDS, Finding, ScrubRecord
from mq.metrics.metrics import Metrics
from mq.metrics.topic_families import LOSSES, SCRUB_FINDINGS

_log = EventLog(__name__)


class ScrubFindings:
    """The findings by topic and key, as of this broker's last look at the scrub's records."""

    def __init__(self, metrics: Metrics) -> None:
        self._series_of = metrics.topics.of
        self._found: dict[str, dict[str, tuple[int, Finding]]] = {}

    def apply(self, topic: str, record: ScrubRecord) -> None:
        """Apply a topic's record. Logs what was not known, and what is sound again."""
        before = self._found.get(topic, {})
        found = {each.key: (scrub.segment, each) for scrub in record.segments for each in scrub.findings}
        if not before and not found:
            return
        for key, (_, each) in found.items():
            if key not in before:
                _log.warning("scrub_found", topic=topic, key=key, condition=each.condition, error=each.why)
        for key in before.keys() - found.keys():
            _log.warning("scrub_found_sound", topic=topic, key=key)
        self._found[topic] = found
        for kind in LOSSES:
            number = sum(each.condition == kind for _, each in found.values())
            self._series_of(topic).set(SCRUB_FINDINGS, number, kind)

    def forget(self, topic: str) -> None:
        """Forget a deleted topic."""
        if self._found.pop(topic, None):
            self._series_of(topic).close()

    def topics(self) -> dict[str, int]:
        """Return how many objects of each topic are damaged or missing; only topics that have some."""
        return {topic: len(found) for topic, found in self._found.items() if found}

    def shown(self, topic: str) -> list[dict[str, Any]]:
        """Return a topic's findings as answers show them. Objects that are no segment files have no offsets."""
        return [
            {
                "segment": None if segment == RECORDS else segment,
                "offset": None if (name := FileName.parse(each.key)) is None else name.base,
                "next_offset": None if name is None else name.end,
                "key": each.key,
                "what": each.condition,
                "why": each.why,
            }
            for segment, each in self._found.get(topic, {}).values()
        ]
