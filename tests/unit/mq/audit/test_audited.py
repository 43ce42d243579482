"""What passes the audit trail without a record."""

from typing import cast

import pytest
from starlette.types import Message, Receive, Scope, Send

from mq.audit.records import AuditRecord
from mq.audit.trail import AuditTrail
from mq.http.guard import Guard
from mq.http.middleware.audited import Audited
from mq.peer_keys.signatures import REFUSAL_HEADER


class ListedTrail:
    """Lists records."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    async def record(self, record: AuditRecord) -> None:
        self.records.append(record)


class NobodyKnown:
    """A guard that knows nobody."""

    def name_of(self, *_: object) -> str:
        return ""


@pytest.mark.parametrize(("name", "is_recorded"), [(REFUSAL_HEADER, False), ("content-type", True)])
async def test_a_broker_that_is_told_to_sign_anew_is_not_refused(name: str, is_recorded: bool) -> None:
    start = {"type": "http.response.start", "status": 403, "headers": [(name.encode(), b"receiver")]}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start)

    trail, sent = ListedTrail(), list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    scope = {"type": "http", "method": "POST", "path": "/internal/v1/traffic", "headers": [], "client": ("10.0.0.1", 5)}
    await Audited(app, cast(AuditTrail, trail), cast(Guard, NobodyKnown()))(scope, receive, send)
    assert sent == [start]
    assert bool(trail.records) is is_recorded
