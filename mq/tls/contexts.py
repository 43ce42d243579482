"""TLS contexts from files. What cannot be used is refused in one line that names the file and its setting."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from filer.errors import InvalidConfig
from mq.base.regular_file import read_regular_file
from mq.base.settings import BrokerSettings

# Of TLS 1.2, what has forward secrecy and authenticated encryption. All of TLS 1.3 is so.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
MOST_BYTES = 16 * 1024 * 1024
"""Of a file. That of all public CAs has a fraction of a MiB."""
_CERTIFICATE, _KEY = b"-----BEGIN CERTIFICATE-----", b"PRIVATE KEY-----"
_ENCRYPTED = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")
# A rehearsal of TLS 1.3 takes three.
_MOST_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Contexts:
    """What a broker needs of TLS: `server` for its listener, `peers` for its calls to other brokers.

    None where it needs none of its own. `expires` is when the broker's certificate does, as OpenSSL writes it.
    """

    server: ssl.SSLContext | None
    peers: ssl.SSLContext | None
    expires: str | None = None


def needs_tls(settings: BrokerSettings) -> bool:
    """Whether there is anything to read for TLS."""
    return bool(tls_files(settings))


def tls_files(settings: BrokerSettings) -> tuple[Path, ...]:
    """The files that the settings name."""
    named = (settings.tls_cert, settings.tls_key, settings.tls_client_ca, settings.tls_ca)
    return tuple(each for each in named if each is not None)


def read_contexts(settings: BrokerSettings) -> Contexts:
    """Read all files. Raises `InvalidConfig` if one of them cannot be used."""
    server, peers, expires = None, None, None
    if settings.tls_cert is not None and settings.tls_key is not None:
        server = _server_context(settings.tls_cert, settings.tls_key)
        expires = _rehearse(server, settings.tls_cert)
        if settings.tls_client_ca is not None:
            _trust(server, settings.tls_client_ca, "--tls-client-ca")
            server.verify_mode = ssl.CERT_REQUIRED
    if server is not None or settings.tls_ca is not None:
        peers = _peers_context(settings)
    return Contexts(server, peers, expires)


def _server_context(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _load_identity(context, cert, key)
    return context


def _peers_context(settings: BrokerSettings) -> ssl.SSLContext:
    """For calls to other brokers: their names are verified, and they may ask who this one is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.tls_ca is None:
        context.load_default_certs()
    else:
        _trust(context, settings.tls_ca, "--tls-ca")
    if settings.tls_cert is not None and settings.tls_key is not None:
        _load_identity(context, settings.tls_cert, settings.tls_key)
    return context


def _load_identity(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    _expect(cert, "--tls-cert", _CERTIFICATE, "certificate")
    data = _expect(key, "--tls-key", _KEY, "private key")
    if any(each in data for each in _ENCRYPTED):
        raise InvalidConfig(
            f"the key {str(key)!r} (--tls-key) is encrypted, and nobody is there to type its passphrase: give it "
            "without one, as openssl pkey writes it"
        )
    try:
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidConfig(
                f"the key {str(key)!r} (--tls-key) does not belong to the first certificate in {str(cert)!r} "
                "(--tls-cert)"
            ) from error
        raise InvalidConfig(
            f"the certificate {str(cert)!r} (--tls-cert) with the key {str(key)!r} (--tls-key) cannot be used: "
            f"{_words(error)}"
        ) from error
    except OSError as error:  # it went between the look at it and its use
        raise InvalidConfig(f"--tls-cert or --tls-key cannot be read: {error.strerror}") from error


def _trust(context: ssl.SSLContext, path: Path, flag: str) -> None:
    """Trust the certificates in the file, and no others."""
    data = _expect(path, flag, _CERTIFICATE, "certificate")
    try:
        # What stands between certificates is for people, in any language.
        context.load_verify_locations(cadata=data.decode("ascii", "ignore"))
    except ssl.SSLError as error:
        raise InvalidConfig(f"the certificates in {str(path)!r} ({flag}) cannot be used: {_words(error)}") from error


def _expect(path: Path, flag: str, sign: bytes, what: str) -> bytes:
    """What the file has, which must be of that kind, as PEM."""
    try:
        data = read_regular_file(path, MOST_BYTES)
    except OSError as error:
        raise InvalidConfig(f"{str(path)!r} ({flag}) cannot be read: {error.strerror}") from error
    if sign not in data:
        raise InvalidConfig(f"{str(path)!r} ({flag}) has no {what} in PEM form (-----BEGIN …)")
    return data


def _no_passphrase() -> NoReturn:
    """Else OpenSSL would ask for one at the terminal, and wait."""
    raise InvalidConfig("the key (--tls-key) is encrypted: give it without a passphrase")


def _rehearse(server: ssl.SSLContext, cert: Path) -> str:
    """Have a client in this process greet the server, and return when the certificate expires.

    So a certificate that is of no use is found now, and not by the first client: expired, not valid yet, or for another
    purpose. The client trusts this very certificate, whoever has signed it, under any name.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cert)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there, here = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for side in (there, here) * _MOST_ROUNDS:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLCertVerificationError as error:
        raise InvalidConfig(
            f"the certificate {str(cert)!r} (--tls-cert) cannot be used: {error.verify_message}"
        ) from error
    except ssl.SSLError as error:
        raise InvalidConfig(f"the certificate {str(cert)!r} (--tls-cert) cannot be used: {_words(error)}") from error
    shown = there.getpeercert() or {}
    return str(shown.get("notAfter", ""))


def _words(error: ssl.SSLError) -> str:
    return (error.reason or error.strerror or str(error)).replace("_", " ").lower()
