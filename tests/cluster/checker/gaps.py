"""Gaps that readers are told of: what an answer says, and whether there was a reason to say it."""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from tests.cluster.checker.history import Fault, Gap, Reader

TOLD_TYPES = ("urn:braidmq:data-missing", "urn:braidmq:data-damaged")
HEALING_SECONDS = 15.0
"""How long after an object is back a broker may still tell of its absence."""


def gap_in(problem: bytes | str) -> Gap | None:
    """The gap that a problem document tells of; None if it tells of something else."""
    try:
        document: Any = orjson.loads(problem)
        if document["type"] not in TOLD_TYPES or not document.get("key"):
            return None
        segment, offset = document.get("segment"), document.get("offset")
        # A record that is damaged stands for the whole topic.
        return Gap(document["key"], -1 if segment is None else segment, offset or 0, document.get("next_offset"))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None


def false_alarms(readers: Iterable[Reader], faults: Iterable[Fault]) -> Iterator[str]:
    """Complaints about gaps that were told while nobody had touched the object."""
    spans = [
        (fault.key, fault.started_seconds, float("inf") if fault.ended_seconds is None else fault.ended_seconds)
        for fault in faults
        if fault.key
    ]
    for reader in readers:
        for visit in reader.visits:
            for gap in visit.told:
                if not any(
                    key == gap.key and start <= visit.ended_seconds and visit.started_seconds <= end + HEALING_SECONDS
                    for key, start, end in spans
                ):
                    yield f"false alarm: {reader.name} was told by {visit.url} of {gap}, which nobody had touched"
