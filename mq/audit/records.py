"""The content of the audit trail: one record for each change asked for, one for refusals that are alike. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import orjson
import pyarrow as pa

from filer.format.schema import MessageSchema
from mq.security.grants import Action
from mq.security.needs import Need

Outcome: TypeAlias = Literal["done", "failed", "refused"]
SCHEMA = MessageSchema.of("string", "json")
FORMAT = 1
REFUSED = (401, 403)
"""The statuses that say that a request is not allowed."""
MOST_REQUEST_CHARACTERS = 300
MANY = "(many)"
"""Stands for the part in which refusals differ that are counted together."""
UNDER_WAY = " (under way)"
"""Stands behind a request that was allowed when it came."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A request that changes something, or one that was refused.

    `principal` is empty if no credential names one. `request` is its method and path, without the query.
    """

    principal: str
    address: str
    action: Action
    resource: str
    request: str
    outcome: Outcome
    status: int
    request_id: str = ""

    @property
    def sender(self) -> tuple[str, str]:
        """The sender of the request, as far as it is known."""
        return self.principal, self.address

    @property
    def alike(self) -> "AuditRecord":
        """The common part of refusals that are counted together, whatever else each says.

        For senders without a name it is their address: they may ask for any number of different things.
        """
        if not self.principal:
            return AuditRecord("", self.address, "observe", "", "", self.outcome, self.status)
        return AuditRecord(*self.sender, self.action, self.resource, self.request, self.outcome, self.status)

    @property
    def of_sender(self) -> "AuditRecord":
        """The rest of a refusal if its sender has too many different ones at a time."""
        return AuditRecord(*self.sender, self.action, MANY, MANY, self.outcome, self.status)

    @property
    def overflowing(self) -> "AuditRecord":
        """The rest of a refusal if there are too many different ones in all."""
        return AuditRecord(MANY, MANY, self.action, MANY, MANY, self.outcome, self.status)


def record_of(
    principal: str, address: str, need: Need, request: str, status: int, *, request_id: str = ""
) -> AuditRecord:
    """The record of a request that was answered with that status. `request` names it; no secret may be in it."""
    return AuditRecord(
        principal,
        address,
        need.action,
        need.resource,
        f"{request:.{MOST_REQUEST_CHARACTERS}}",
        _outcome_of(status),
        status,
        request_id,
    )


def record_of_end(
    principal: str, address: str, need: Need, request: str, status: int, *, request_id: str = ""
) -> AuditRecord:
    """The record of an endless answer that a refusal of that status ends."""
    record = record_of(principal, address, need, request, status, request_id=request_id)
    return replace(record, request=f"{record.request}{UNDER_WAY}")


def _outcome_of(status: int) -> Outcome:
    """The outcome of a request with that status."""
    if status in REFUSED:
        return "refused"
    return "done" if status < 400 else "failed"


def rows_of(records: Iterable[tuple[AuditRecord, int]], broker: str) -> pa.RecordBatch:
    """The messages of records, each with how often it counts. Keys are principals, so those of one keep their order."""
    listed = list(records)
    columns: Mapping[str, list[str | None]] = {
        "key": [record.principal or None for record, _ in listed],
        "value": [orjson.dumps(_document(record, count, broker)).decode() for record, count in listed],
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns.get(field.name, [None] * len(listed)), field.type) for field in SCHEMA.published],
        schema=SCHEMA.published,
    )


def _document(record: AuditRecord, count: int, broker: str) -> dict[str, object]:
    return {
        "format": FORMAT,
        "principal": record.principal or None,
        "address": record.address,
        "action": record.action,
        "resource": record.resource,
        "request": record.request,
        "outcome": record.outcome,
        "status": record.status,
        "count": count,
        "broker": broker,
        "request_id": record.request_id or None,
    }
