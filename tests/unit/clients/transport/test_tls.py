"""The TLS context of clients: made when it is needed, and no less strict for that."""

import ssl

import httpx
import pytest

from braidmq import Client
from braidmq.transport.tls import tls_context


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[ssl.SSLContext]:
    """The contexts that httpx makes with the certificates it trusts."""
    contexts: list[ssl.SSLContext] = []
    make = httpx.create_ssl_context

    def counted() -> ssl.SSLContext:
        contexts.append(make())
        return contexts[-1]

    monkeypatch.setattr(httpx, "create_ssl_context", counted)
    tls_context.cache_clear()
    return contexts


def test_a_client_that_needs_no_tls_reads_no_certificates(made: list[ssl.SSLContext]) -> None:
    with Client("http://127.0.0.1:9"):
        pass
    assert made == []


def test_connections_are_of_the_context_that_httpx_makes(made: list[ssl.SSLContext]) -> None:
    context = tls_context()
    context.set_alpn_protocols(["http/1.1"])
    (trusting,) = made
    tunnel = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    assert tunnel.context is trusting and len(made) == 1
    assert trusting.verify_mode is ssl.CERT_REQUIRED and trusting.check_hostname
    assert trusting.cert_store_stats()["x509_ca"] > 0
