"""A CA for tests, and the certificates that it signs."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_PEM = serialization.Encoding.PEM
DAY = timedelta(days=1)
ORGANIZATION = "Braid, tests"
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


class Identity(NamedTuple):
    """The files of a certificate and of its key."""

    cert: Path
    key: Path


class Authority:
    """A CA. Its certificate is in the file `ca`, and so is all that it signs in files of that folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder, self.ca = folder, folder / f"{name}.pem"
        self._key, self._name, self._signed = ec.generate_private_key(ec.SECP256R1()), _named(name), 0
        now = datetime.now(UTC)
        self._certificate = (
            x509.CertificateBuilder(self._name, self._name, self._key.public_key(), 1, now - DAY, now + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca.write_bytes(self._certificate.public_bytes(_PEM))

    def sign(
        self,
        name: str,
        *alternatives: str,
        since: timedelta = -DAY,
        until: timedelta = DAY,
        purposes: tuple[x509.ObjectIdentifier, ...] = (SERVER, CLIENT),
        passphrase: bytes | None = None,
        organization: str = ORGANIZATION,
    ) -> Identity:
        """A new key, and a certificate for it, by default for this machine. Times count from now."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        self._signed += 1
        names = [_alternative(each) for each in alternatives or ("127.0.0.1", "localhost")]
        certificate = (
            x509.CertificateBuilder(
                self._name, _named(name, organization), key.public_key(), 1000 + self._signed, now + since, now + until
            )
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        file = f"{name.replace(':', '-')}-{self._signed}"
        made = Identity(self.folder / f"{file}.pem", self.folder / f"{file}.key")
        made.cert.write_bytes(certificate.public_bytes(_PEM))
        _write_key(key, made.key, passphrase)
        return made

    def write_key(self, path: Path) -> None:
        """Its own key, for a program that signs by itself."""
        _write_key(self._key, path)

    def client(self, identity: Identity | None = None) -> ssl.SSLContext:
        """For clients that trust it, and show that certificate."""
        context = ssl.create_default_context(cafile=self.ca)
        if identity is not None:
            context.load_cert_chain(*identity)
        return context


def _named(name: str, organization: str = ORGANIZATION) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )


def _write_key(key: ec.EllipticCurvePrivateKey, path: Path, passphrase: bytes | None = None) -> None:
    how = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, how))


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.UniformResourceIdentifier(text) if "://" in text else x509.DNSName(text)
