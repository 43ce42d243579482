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
