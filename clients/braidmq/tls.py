"""What all connections of a process know of TLS."""

import ssl
from functools import cache

import httpx


@cache
def tls_context() -> ssl.SSLContext:
    """As httpx makes it, once: reading the certificates takes 25 ms, and Spark's tasks make clients by the dozen."""
    return httpx.create_ssl_context()
