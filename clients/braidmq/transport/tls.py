"""The TLS settings that all connections of a process share."""

import os
import ssl
from functools import cache, cached_property
from typing import Any

import httpx

from braidmq.errors import InvalidArgument

# httpx reads it.
_TRUSTED = "SSL_CERT_FILE"


class _MadeOnUse(ssl.SSLContext):
    """httpx's TLS context, made at the first connection that needs it: reading certificates takes 25 ms."""

    @cached_property
    def _trusting(self) -> ssl.SSLContext:
        try:
            return httpx.create_ssl_context()
        except OSError as failure:  # also what TLS makes of a file without certificates
            name = os.environ.get(_TRUSTED)
            if not name:
                raise
            reason = "it has no certificates" if isinstance(failure, ssl.SSLError) else failure.strerror
            raise InvalidArgument(
                f"{_TRUSTED} is {name!r}, which cannot be read: {reason}; it names a file of certificates to trust"
            ) from failure

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        """Offer these protocols."""
        self._trusting.set_alpn_protocols(alpn_protocols)

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Begin a connection of an event loop."""
        return self._trusting.wrap_bio(*given, **named)

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        """Begin a connection of blocking code."""
        return self._trusting.wrap_socket(*given, **named)


@cache
def tls_context() -> ssl.SSLContext:
    """Return the context, one for a process: Spark tasks make many clients. It trusts what httpx's own does."""
    return _MadeOnUse(ssl.PROTOCOL_TLS_CLIENT)
