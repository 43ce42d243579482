"""The TLS settings of connections: those that a whole process shares, and those of a client that names files."""

import os
import ssl
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn, Self, TypeAlias

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
        except OSError as failure:  # also TLS's error for a file without certificates
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
    """Return the context, one for a process: Spark tasks make many clients. It trusts the same CAs as httpx's own."""
    return _MadeOnUse(ssl.PROTOCOL_TLS_CLIENT)


def broker_tls(ca: FileName | None = None, client_cert: ClientCert | None = None) -> ssl.SSLContext:
    """Return the context for connections to brokers.

    With `ca` it trusts only what the certificates in that file have signed. Settings that are not given come from
    `BRAIDMQ_CA`, `BRAIDMQ_CLIENT_CERT` and `BRAIDMQ_CLIENT_KEY`. Files that are renewed are read again. Raises
    `InvalidArgument` for files that cannot be used.
    """
    environment = os.environ.get
    ca = ca or environment(CA_VARIABLE) or None
    if client_cert is None and (cert := environment(CLIENT_CERT_VARIABLE)):
        client_cert = (cert, environment(CLIENT_KEY_VARIABLE) or cert)
    elif client_cert is None and environment(CLIENT_KEY_VARIABLE):
        raise InvalidArgument(
            f"a key (--client-key or {CLIENT_KEY_VARIABLE}) is of no use without its certificate (--client-cert or "
            f"{CLIENT_CERT_VARIABLE}): name both files"
        )
    if ca is None and client_cert is None:
        return tls_context()
    pair = None
    if client_cert is not None:
        both = client_cert if isinstance(client_cert, tuple) else (client_cert, client_cert)
        pair = Path(both[0]), Path(both[1])
    return _OfFiles(None if ca is None else Path(ca), pair)


class _OfFiles(ssl.SSLContext):
    """The context of files. Each new connection checks them again: renewing them stops no client.

    While their new content cannot be used, as in the middle of a renewal, connections use the content before.
    """

    def __new__(cls, ca: Path | None, pair: tuple[Path, Path] | None) -> Self:
        """As `SSLContext` does: a context of a client."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, ca: Path | None, pair: tuple[Path, Path] | None) -> None:
        self._ca, self._pair = ca, pair
        self._alpn: list[str] = []
        self._seen = self._look()
        self._newest = self._made()

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        """Offer these protocols, at later connections too."""
        self._alpn = list(alpn_protocols)
        self._newest.set_alpn_protocols(self._alpn)

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Begin a connection of an event loop."""
        return self._current().wrap_bio(*given, **named)

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        """Begin a connection of blocking code."""
        return self._current().wrap_socket(*given, **named)

    def _current(self) -> ssl.SSLContext:
        seen = self._look()
        if None not in seen and seen != self._seen:
            with suppress(InvalidArgument):
                self._newest = self._made()
                self._newest.set_alpn_protocols(self._alpn)
                self._seen = seen
        return self._newest

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        """A mark of each file's content, which changes with it; None for a file that is not there."""
        files = [*([] if self._ca is None else [self._ca]), *(self._pair or ())]
        return tuple(map(_mark_of, files))

    def _made(self) -> ssl.SSLContext:
        context = httpx.create_ssl_context() if self._ca is None else _trusting(self._ca)
        if self._pair is not None:
            _show(context, *self._pair)
        return context


def _mark_of(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


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
    """Make the context show that certificate to servers that ask for one."""
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
    """Without this, OpenSSL would ask for one at the terminal."""
    raise InvalidArgument("the client's key is encrypted: give it without a passphrase, as openssl pkey writes it")
