"""The TLS context of clients: made when it is needed, and no less strict for that."""

import ssl
from pathlib import Path

import httpx
import pytest

from braidmq import Client, InvalidArgument
from braidmq.transport.tls import broker_tls, tls_context
from tests.support.net.own_certificate import write_certificate


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


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file or directory"), ("no", "it has no certificates")])
def test_certificates_that_cannot_be_read_are_told_by_name(
    content: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "certificates.pem"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    tls_context.cache_clear()
    with pytest.raises(InvalidArgument) as failure:
        tls_context().set_alpn_protocols(["http/1.1"])
    assert str(failure.value).startswith(f"SSL_CERT_FILE is '{path}', which cannot be read: {reason}; ")
    tls_context.cache_clear()


def used(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context of a new connection."""
    return context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost").context


def trusted(context: ssl.SSLContext) -> list[bytes]:
    return used(context).get_ca_certs(binary_form=True)


def test_files_that_are_renewed_are_read_again(tmp_path: Path) -> None:
    ca, cert = tmp_path / "ca.pem", tmp_path / "cert.pem"
    for file in (ca, cert):
        write_certificate(file)
    context = broker_tls(ca, cert)
    context.set_alpn_protocols(["http/1.1"])
    first, before = used(context), trusted(context)
    assert used(context) is first
    write_certificate(tmp_path / "new.pem")
    (tmp_path / "new.pem").replace(ca)
    renewed = trusted(context)
    assert len(renewed) == 1 and renewed != before
    write_certificate(tmp_path / "new.pem")
    (tmp_path / "new.pem").replace(cert)
    assert used(context) is not first
    assert trusted(context) == renewed


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\n"])
def test_files_in_the_middle_of_a_renewal_leave_what_was_there(tmp_path: Path, content: bytes | None) -> None:
    cert = tmp_path / "cert.pem"
    write_certificate(cert)
    context = broker_tls(cert, cert)
    first = used(context)
    if content is None:
        cert.unlink()
    else:
        cert.write_bytes(content)
    assert used(context) is first
    write_certificate(cert)
    assert used(context) is not first
