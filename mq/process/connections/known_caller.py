"""uvicorn's HTTP protocol, which finds the user of each connection once, and passes it with each request."""

from typing import Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mq.machine_users.kernel_users import KernelUsers
from mq.security.caller import Caller, Seat, offer_caller


class KnownCallerProtocol(HttpToolsProtocol):
    """One connection. `users` finds its user when it is made; without it, only the address is known."""

    def __init__(self, *args: Any, users: KernelUsers | None, **named: Any) -> None:
        super().__init__(*args, **named)
        self._users = users
        self._seat = Seat()
        self.caller = Caller("")

    def connection_made(self, transport: Any) -> None:
        """Find the user that has made it."""
        super().connection_made(transport)
        client, server = self.client, cast("tuple[str, int] | None", self.server)
        user = None if self._users is None else self._users.user(client, server)
        self._seat = Seat()
        self.caller = Caller(client[0] if client else "", user, seat=self._seat)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the user: the connection counts for none any more."""
        self._seat.leave()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Pass the user with the request that begins."""
        super().on_message_begin()
        offer_caller(cast("Scope", self.scope), self.caller)
