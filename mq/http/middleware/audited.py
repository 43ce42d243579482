"""Stores changes and refusals in the audit trail before they are answered."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filer import request_ids
from mq.audit.records import REFUSED, AuditRecord, record_of
from mq.audit.trail import AuditTrail
from mq.base.errors import AuditFailed
from mq.http.guard import Guard
from mq.http.principals import PRINCIPAL
from mq.http.problems import problem_of
from mq.http.reply import problem_reply, send_reply
from mq.http.routes import match_of
from mq.peer_keys.signatures import REFUSAL_HEADER
from mq.peers.calls import PREFIX
from mq.security.caller import caller_of

_PEER_REFUSAL = REFUSAL_HEADER.lower().encode()


class Audited:
    """Around the dispatcher: all answers pass here, also those of publishes that the fast path leaves to it."""

    def __init__(self, app: ASGIApp, trail: AuditTrail, guard: Guard) -> None:
        self._app, self._trail, self._guard = app, trail, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kept_back = False

        async def recorded(message: Message) -> None:
            nonlocal kept_back
            if kept_back:
                return
            if message["type"] == "http.response.start" and (record := self._record(scope, message)):
                try:
                    await self._trail.record(record)
                except AuditFailed as error:
                    kept_back = True
                    told = AuditFailed(f"{_told_of(record)}, but {error}")
                    await send_reply(problem_reply(problem_of(told)), scope, send)
                    return
            await send(message)

        await self._app(scope, receive, recorded)

    def _record(self, scope: Scope, start: Message) -> AuditRecord | None:
        """The record of a request with that answer; None if none is needed."""
        match, status = match_of(scope), start["status"]
        is_recorded = match.is_recorded and not scope["path"].startswith(PREFIX)
        if (status not in REFUSED and not is_recorded) or _is_of_brokers(start):
            return None
        caller = caller_of(scope)
        principal = scope.get(PRINCIPAL)
        name = self._guard.name_of(caller, scope["headers"]) if principal is None else principal.name
        return record_of(name, caller.address, match.need, match.text, status, request_id=request_ids.current() or "")


def _is_of_brokers(start: Message) -> bool:
    """Whether a broker only asks another one, which it knows by its key, to sign anew: that refuses no request."""
    return any(bytes(name).lower() == _PEER_REFUSAL for name, _ in start["headers"])


def _told_of(record: AuditRecord) -> str:
    if record.outcome == "refused":
        return "the request was refused"
    return f"the request was {'done' if record.outcome == 'done' else 'not done'} (status {record.status})"
