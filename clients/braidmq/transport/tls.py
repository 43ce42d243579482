"""The TLS settings that all connections of a process share."""

import ssl
from functools import cache

import httpx


@cache
def tls_context() -> ssl.SSLContext:
    """Return httpx's TLS context, made once: reading certificates takes 25 ms, and Spark tasks make many clients."""
    return httpx.create_ssl_context()
