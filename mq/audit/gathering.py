"""The records that go to the store together. Pure.

Refusals that are alike are one record: so a flood of them is small.
"""

from collections.abc import Iterator

from mq.audit.records import AuditRecord

MOST_KINDS = 200
"""So many different refusals have a record of their own at a time; others are counted together."""


class Gathering:
    """Records of changes in the order in which they came, then those of refusals."""

    def __init__(self) -> None:
        self._changes: list[AuditRecord] = []
        self._refusals: dict[AuditRecord, tuple[AuditRecord, int]] = {}

    def __len__(self) -> int:
        return len(self._changes) + len(self._refusals)

    def __iter__(self) -> Iterator[tuple[AuditRecord, int]]:
        """Each record, and how often it came. Of refusals that are alike it is the first."""
        yield from ((record, 1) for record in self._changes)
        yield from self._refusals.values()

    @property
    def has_changes(self) -> bool:
        """Whether somebody waits who changes something."""
        return bool(self._changes)

    def add(self, record: AuditRecord) -> None:
        """Take a record. A change that somebody asked for is never counted together with another."""
        if record.outcome != "refused":
            self._changes.append(record)
            return
        kind = record.alike
        if kind not in self._refusals and len(self._refusals) >= MOST_KINDS:
            kind = record = record.overflowing
        first, count = self._refusals.get(kind, (record, 0))
        self._refusals[kind] = first, count + 1
