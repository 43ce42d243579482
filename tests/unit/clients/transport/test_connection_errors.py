"""What a client says of an exchange that failed."""

import ssl
from errno import ECONNRESET

import httpx
import pytest

from braidmq.transport.connection_errors import connection_error


@pytest.mark.parametrize("waits", [ssl.SSLWantReadError, ssl.SSLWantWriteError])
def test_that_tls_waited_is_not_why(waits: type[ssl.SSLError]) -> None:
    """Libraries wait, and raise what ends the wait, while they handle what TLS says: that it needs to wait."""
    failure, reset = httpx.ReadError(""), ConnectionResetError(ECONNRESET, "asyncio says less")
    failure.__cause__ = reset
    reset.__context__ = waits(2, "The operation did not complete (read)")
    told = connection_error(failure, httpx.URL("https://host:1"), publishing=False)
    assert str(told) == "the answer of https://host:1 was lost: Connection reset by peer"


@pytest.mark.parametrize("kind", [httpx.ConnectError, httpx.ReadError])
def test_that_a_connection_ended_within_tls_says_who_may_have_ended_it(kind: type[httpx.TransportError]) -> None:
    """`kubectl port-forward` still accepts connections for a moment when its pod is gone."""
    failure, ended = (
        kind(""),
        ssl.SSLEOFError(8, "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol"),
    )
    ended.reason = "UNEXPECTED_EOF_WHILE_READING"
    failure.__cause__ = ended
    told = str(connection_error(failure, httpx.URL("https://host:1"), publishing=False))
    assert told.endswith(": the connection ended within TLS: a proxy or port-forward may have lost what it leads to")
