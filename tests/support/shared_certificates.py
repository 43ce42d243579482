"""httpx reads all certificates anew for each client, and for each `httpx.get`: 25 ms, over and over in each test."""

from functools import cache

import httpx._config
import httpx._transports.default


def share_certificates() -> None:
    """From now on they are read once a process."""
    httpx._transports.default.create_ssl_context = cache(httpx._config.create_ssl_context)
