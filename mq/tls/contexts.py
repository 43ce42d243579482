"""TLS contexts from files. A bad file is refused in one line that names the file and its setting."""

import contextlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from filer.errors import InvalidConfig
from filer.regular_file import read_regular_file
from mq.base.private_file import tell_if_open
from mq.base.settings import BrokerSettings

# From TLS 1.2, the ciphers with forward secrecy and authenticated encryption. All of TLS 1.3 have both.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
MOST_BYTES = 16 * 1024 * 1024
"""The most of a file. That of all public CAs has a fraction of a MiB."""
_CERTIFICATE, _KEY = b"-----BEGIN CERTIFICATE-----", b"PRIVATE KEY-----"
_ENCRYPTED = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")
# A rehearsal of TLS 1.3 takes three.
_MOST_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Contexts:
    """The TLS contexts of a listener: `server` for itself, `peers` for calls to those of other brokers.

    None if it needs none of its own. `expires` is when the broker's certificate expires, as OpenSSL writes it.
    """

    server: ssl.SSLContext | None
    peers: ssl.SSLContext | None
    expires: str | None = None


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files for the contexts of a listener, and the beginning of the flags that name them.

    `client_ca` has the CAs of the listener's clients, `ca` those of the brokers that are called. With `own_host`, the
    broker calls itself by that name before it uses anything: as the others will call it.
    """

    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    ca: Path | None = None
    flags: str = "--tls"
    client_ca_flag: str = "--tls-client-ca"
    own_host: str | None = None
    listener: Literal["clients", "brokers"] = "clients"

    @property
    def all(self) -> tuple[Path, ...]:
        """Return all files that are set."""
        return tuple(each for each in (self.cert, self.key, self.client_ca, self.ca) if each is not None)


def public_files(settings: BrokerSettings) -> TlsFiles:
    """Return the files of the listener for clients, and of calls to other brokers' listeners for clients."""
    return TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca, settings.tls_ca)


def peer_files(settings: BrokerSettings, own_host: str) -> TlsFiles | None:
    """Return the files of the listener for brokers; None if it has none of its own.

    One CA vouches for all: a holder of its certificate for clients only, or for another name, is no broker.
    """
    cert, key, ca = settings.peer_tls_cert, settings.peer_tls_key, settings.peer_tls_ca
    return None if cert is None else TlsFiles(cert, key, ca, ca, "--peer-tls", "--peer-tls-ca", own_host, "brokers")


def read_contexts(files: TlsFiles) -> Contexts:
    """Read all files. Raises `InvalidConfig` if one of them cannot be used."""
    server, peers, expires = None, None, None
    if files.cert is not None and files.key is not None:
        server = _server_context(files, files.cert, files.key)
        tell_if_open(files.key)
        expires = _rehearse(server, files, files.cert)
        if files.client_ca is not None:
            _trust(server, files.client_ca, files.client_ca_flag)
            server.verify_mode = ssl.CERT_REQUIRED
            _resume_nothing(server)
    if server is not None or files.ca is not None:
        peers = _peers_context(files)
    if server is not None and peers is not None and files.own_host is not None:
        _call_itself(server, peers, files, files.own_host)
    return Contexts(server, peers, expires)


def _server_context(files: TlsFiles, cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _load_identity(context, files, cert, key)
    return context


def _resume_nothing(context: ssl.SSLContext) -> None:
    """Make each connection verify the client's certificate anew: a client that resumes a session shows none.

    Sessions of TLS 1.2 that are kept here can still be resumed: for these, handshakes check the certificate's end.
    """
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


def _peers_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context for calls to other brokers: their names are verified, and they may ask for a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.ca is None:
        context.load_default_certs()
    else:
        _trust(context, files.ca, f"{files.flags}-ca")
    if files.cert is not None and files.key is not None:
        _load_identity(context, files, files.cert, files.key)
    return context


def _load_identity(context: ssl.SSLContext, files: TlsFiles, cert: Path, key: Path) -> None:
    cert_flag, key_flag = f"{files.flags}-cert", f"{files.flags}-key"
    _expect(cert, cert_flag, _CERTIFICATE, "certificate")
    data = _expect(key, key_flag, _KEY, "private key")
    if any(each in data for each in _ENCRYPTED):
        raise InvalidConfig(
            f"the key {str(key)!r} ({key_flag}) is encrypted, and nobody is there to type its passphrase: give it "
            "without one, as openssl pkey writes it"
        )
    try:
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidConfig(
                f"the key {str(key)!r} ({key_flag}) does not belong to the first certificate in {str(cert)!r} "
                f"({cert_flag})"
            ) from error
        raise InvalidConfig(
            f"the certificate {str(cert)!r} ({cert_flag}) with the key {str(key)!r} ({key_flag}) cannot be used: "
            f"{_words(error)}"
        ) from error
    except OSError as error:  # it went between the check and the use
        raise InvalidConfig(f"{cert_flag} or {key_flag} cannot be read: {error.strerror}") from error


def _trust(context: ssl.SSLContext, path: Path, flag: str) -> None:
    """Trust the certificates in the file, and no others."""
    data = _expect(path, flag, _CERTIFICATE, "certificate")
    try:
        # Text between certificates is for people, in any language.
        context.load_verify_locations(cadata=data.decode("ascii", "ignore"))
    except ssl.SSLError as error:
        raise InvalidConfig(f"the certificates in {str(path)!r} ({flag}) cannot be used: {_words(error)}") from error


def _expect(path: Path, flag: str, sign: bytes, what: str) -> bytes:
    """Return the content of the file, which must be of that kind, as PEM."""
    try:
        data = read_regular_file(path, MOST_BYTES)
    except OSError as error:
        raise InvalidConfig(f"{str(path)!r} ({flag}) cannot be read: {error.strerror}") from error
    if sign not in data:
        raise InvalidConfig(f"{str(path)!r} ({flag}) has no {what} in PEM form (-----BEGIN …)")
    return data


def _no_passphrase() -> NoReturn:
    """Refuse: else OpenSSL would ask for one at the terminal, and wait."""
    raise InvalidConfig("the key of a certificate is encrypted: give it without a passphrase")


def _rehearse(server: ssl.SSLContext, files: TlsFiles, cert: Path) -> str:
    """Make a client in this process greet the server, and return when the certificate expires.

    So a useless certificate is found now, and not by the first client: expired, not valid yet, or for another purpose.
    The client trusts this very certificate, with any signer and any name.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cert)
    try:
        shown = _handshake(client, server, None).getpeercert() or {}
    except ssl.SSLError as error:
        why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else _words(error)
        raise InvalidConfig(f"the certificate {str(cert)!r} ({files.flags}-cert) cannot be used: {why}") from error
    return str(shown.get("notAfter", ""))


def _call_itself(server: ssl.SSLContext, peers: ssl.SSLContext, files: TlsFiles, host: str) -> None:
    """Make this broker call itself as another one with such files would: each side has to take the other for a broker.

    So a broker that could join, and then be called by none, finds out now.
    """
    try:
        _handshake(peers, server, host)
    except ssl.SSLError as error:
        why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else _words(error)
        raise InvalidConfig(
            f"no other broker would take the certificate {str(files.cert)!r} ({files.flags}-cert) by the CAs in "
            f"{str(files.ca)!r} ({files.flags}-ca), for {host!r}, where others call this one: {why}"
        ) from error


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext, host: str | None) -> ssl.SSLObject:
    """Do one handshake in memory; returns the client's side. Raises `ssl.SSLError` of the side that refuses it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = client.wrap_bio(to_client, to_server, server_hostname=host)
    here = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (there, here) * _MOST_ROUNDS:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return there


def _words(error: ssl.SSLError) -> str:
    return (error.reason or error.strerror or str(error)).replace("_", " ").lower()
