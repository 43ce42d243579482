"""A TLS context that hands each connection that begins to another one, which may be replaced at any time."""

import ssl
from typing import Any, Self


class NewestContext(ssl.SSLContext):
    """Connections are of the context that was given last. Those that have begun stay with theirs.

    To change a context that is in use would not do: it cannot stop trusting, and where one step fails it is half old.
    """

    _newest: ssl.SSLContext

    @classmethod
    def of(cls, context: ssl.SSLContext, *, server_side: bool) -> Self:
        """One that begins with this context."""
        made = cls(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
        made._newest = context
        return made

    def use(self, context: ssl.SSLContext) -> None:
        """Have connections that begin from now on be of this context."""
        self._newest = context

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Begin a connection of an event loop."""
        return self._newest.wrap_bio(*given, **named)

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        """Begin a connection of blocking code."""
        return self._newest.wrap_socket(*given, **named)
