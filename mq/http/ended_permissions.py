"""Records the early end of an answer whose credential has ended, in the audit trail, as a refusal."""

import contextlib

from starlette.types import Scope

from filer import request_ids
from filer.errors import BraidError
from mq.audit.records import record_of_end
from mq.base.errors import AuditFailed
from mq.broker import Broker
from mq.http.principals import PRINCIPAL
from mq.http.problems import problem_of
from mq.http.routes import match_of
from mq.security.caller import caller_of


async def record_end(broker: Broker, scope: Scope, refusal: BraidError) -> None:
    """Record the end before the client learns why its answer, subscription or socket ends.

    The client gets nothing more meanwhile. Stopped before the record is stored, the client gets no reason. If the trail
    cannot be written, which the trail logs, the answer ends all the same: going on would be worse.
    """
    if broker.audit is None:
        return
    match = match_of(scope)
    record = record_of_end(
        scope[PRINCIPAL].name,
        caller_of(scope).address,
        match.need,
        match.text,
        problem_of(refusal).status,
        request_id=request_ids.current() or "",
    )
    with contextlib.suppress(AuditFailed):
        await broker.audit.record(record)
