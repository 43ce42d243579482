"""The records that go to the store together. Pure.

Refusals that are alike are one record: so a flood of them is small.
"""

from collections import Counter
from collections.abc import Iterator

from mq.audit.records import AuditRecord

MOST_KINDS, MOST_OF_A_SENDER = 200, 10
"""So many different refusals have a record of their own at a time. Others are counted together."""


class Gathering:
    """Records of changes in the order in which they came, then those of refusals."""

    def __init__(self) -> None:
        self._changes: list[AuditRecord] = []
        self._refusals: dict[AuditRecord, tuple[AuditRecord, int]] = {}
        self._kinds = Counter[tuple[str, str]]()

    def __len__(self) -> int:
        return len(self._changes) + len(self._refusals)

    def __iter__(self) -> Iterator[tuple[AuditRecord, int]]:
        """Each record, and how often it came. Of refusals that are alike it is the first."""
        yield from ((record, 1) for record in self._changes)
        yield from self._refusals.values()

    @property
    def has_changes(self) -> bool:
        """Whether a record of a change waits here."""
        return bool(self._changes)

    def add(self, record: AuditRecord) -> None:
        """Take a record. A change that a client asked for is never counted together with another."""
        if record.outcome != "refused":
            self._changes.append(record)
            return
        kind = self._kind_of(record)
        if kind not in self._refusals:
            self._kinds[record.sender] += 1
        first, count = self._refusals.get(kind, (record if kind == record.alike else kind, 0))
        self._refusals[kind] = first, count + 1

    def _kind_of(self, record: AuditRecord) -> AuditRecord:
        """The record that this one is counted as. So no sender can cause any number of records."""
        if record.alike in self._refusals:
            return record.alike
        if len(self._refusals) >= MOST_KINDS:
            return record.overflowing
        return record.alike if self._kinds[record.sender] < MOST_OF_A_SENDER else record.of_sender
