"""Read TLS certificates once per process. httpx reads them for each client and each `httpx.get`, 25 ms each time."""

from functools import cache

import httpx._config
import httpx._transports.default


def share_certificates() -> None:
    """Make httpx read the certificates once per process."""
    httpx._transports.default.create_ssl_context = cache(httpx._config.create_ssl_context)
