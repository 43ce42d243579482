"""Turns a request for a stream or a socket with a ticket into one with the token that the ticket stands for."""

from typing import NoReturn
from urllib.parse import parse_qsl, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from filer.errors import BraidError
from mq.base.errors import Unauthenticated
from mq.http.reply import serve
from mq.http.routes import match_of
from mq.http.tickets import Tickets
from mq.security.authorization import AUTHORIZATION

_TICKET = "ticket"


class Redeemed:
    """Before all code that looks at a request's principal. From here on it is as if the client had sent the header."""

    def __init__(self, app: ASGIApp, tickets: Tickets) -> None:
        self._app, self._tickets = app, tickets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "http" and scope["query_string"] and match_of(scope).is_endless:
            try:
                scope = self._redeemed(scope)
            except Unauthenticated as refusal:
                await serve(_raise(refusal), scope, send)
                return
        await self._app(scope, receive, send)

    def _redeemed(self, scope: Scope) -> Scope:
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, encoding="latin-1")
        given = [value for name, value in asked if name == _TICKET]
        if not given:
            return scope
        if len(given) > 1 or any(name == AUTHORIZATION for name, _ in scope["headers"]):
            raise Unauthenticated("a request has one ticket, or the header Authorization, and not both")
        header = (AUTHORIZATION, self._tickets.redeem(given[0], scope["path"]))
        rest = urlencode([each for each in asked if each[0] != _TICKET], encoding="latin-1").encode()
        return {**scope, "headers": [*scope["headers"], header], "query_string": rest}


async def _raise(refusal: BraidError) -> NoReturn:
    raise refusal
