"""The TLS settings of connections: those that a whole process shares, and those of a client that names files."""

import os
import ssl
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import httpx

from braidmq.defaults import CA_VARIABLE, CLIENT_CERT_VARIABLE, CLIENT_KEY_VARIABLE
from braidmq.errors import InvalidArgument

# httpx reads it.
_TRUSTED = "SSL_CERT_FILE"
FileName: TypeAlias = str | os.PathLike[str]
ClientCert: TypeAlias = FileName | tuple[FileName, FileName]
"""A file with a certificate and its key, or two files: the certificate, and the key."""


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


def broker_tls(ca: FileName | None = None, client_cert: ClientCert | None = None) -> ssl.SSLContext:
    """Return the context for connections to brokers.

    With `ca` it trusts what is signed by the certificates in that file, and nothing else. What is not given is taken
    from `BRAIDMQ_CA`, `BRAIDMQ_CLIENT_CERT` and `BRAIDMQ_CLIENT_KEY`. Raises `InvalidArgument` for files that cannot be
    used.
    """
    environment = os.environ.get
    ca = ca or environment(CA_VARIABLE) or None
    if client_cert is None and (cert := environment(CLIENT_CERT_VARIABLE)):
        client_cert = (cert, environment(CLIENT_KEY_VARIABLE) or cert)
    elif client_cert is None and environment(CLIENT_KEY_VARIABLE):
        raise InvalidArgument(f"{CLIENT_KEY_VARIABLE} is of no use without {CLIENT_CERT_VARIABLE}: name both files")
    if ca is None and client_cert is None:
        return tls_context()
    context = httpx.create_ssl_context() if ca is None else _trusting(Path(ca))
    if client_cert is not None:
        pair = client_cert if isinstance(client_cert, tuple) else (client_cert, client_cert)
        _show(context, *(Path(each) for each in pair))
    return context


def _trusting(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    data = _read(ca, "certificates to trust")
    try:
        context.load_verify_locations(cadata=data.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as failure:
        raise InvalidArgument(f"the file {str(ca)!r} has no certificates to trust (PEM)") from failure
    return context


def _show(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Have the context show that certificate to servers that ask for one."""
    _read(cert, "client's certificate")
    if b"PRIVATE KEY-----" not in _read(key, "client's key") and key == cert:
        raise InvalidArgument(
            f"the client's certificate {str(cert)!r} is without its key: client_cert=(cert, key), --client-key or "
            f"{CLIENT_KEY_VARIABLE} names the key's file"
        )
    try:
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except ssl.SSLError as failure:
        cause = (
            f"the key in {str(key)!r} does not belong to it"
            if failure.reason == "KEY_VALUES_MISMATCH"
            else "they have to be PEM"
        )
        raise InvalidArgument(f"the client's certificate {str(cert)!r} cannot be used: {cause}") from failure


def _read(file: Path, what: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as failure:
        raise InvalidArgument(f"the file of the {what} cannot be read: {str(file)!r}: {failure.strerror}") from failure


def _no_passphrase() -> NoReturn:
    """Else OpenSSL would ask for one at the terminal."""
    raise InvalidArgument("the client's key is encrypted: give it without a passphrase, as openssl pkey writes it")
