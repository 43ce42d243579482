"""A TLS context that passes each new connection to another context, which may be replaced at any time."""

import ssl
from typing import Any, Self


class NewestContext(ssl.SSLContext):
    """Connections are of the context that was set last. Those that have begun stay with theirs.

    A context in use cannot just be changed: it cannot stop trusting, and if one step fails it is half old.
    """

    _newest: ssl.SSLContext

    @classmethod
    def of(cls, context: ssl.SSLContext, *, server_side: bool) -> Self:
        """Return one that begins with this context."""
        made = cls(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
        made._newest = context
        return made

    def use(self, context: ssl.SSLContext) -> None:
        """Use this context for connections that begin from now on."""
        self._newest = context

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Begin a connection of an event loop."""
        return self._newest.wrap_bio(*given, **named)

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        """Begin a connection of blocking code."""
        return self._newest.wrap_socket(*given, **named)
