"""A CA of this cluster alone, and the certificates that it signs. Plain data: nothing is read or written here."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from filer.errors import InvalidInput

NAMES = ("localhost", "127.0.0.1", "::1")
"""The names of this machine. The CA is good for nothing else: its users trust it for these names only."""
CA_DAYS, CERTIFICATE_DAYS = 3650, 90
CA_DAYS_LEFT, CERTIFICATE_DAYS_LEFT = 365, 30
"""With less time left, another one takes its place."""
_SLACK = timedelta(hours=1)  # clocks differ
_PERMITTED = (
    x509.DNSName("localhost"),
    x509.IPAddress(ip_network("127.0.0.1/32")),
    x509.IPAddress(ip_network("::1/128")),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def pem(self) -> str:
        """Both, in one text: so a file never has one without the other."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return key.decode() + self.certificate_pem()

    def certificate_pem(self) -> str:
        """The certificate alone, which is no secret."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def until(self) -> datetime:
        """When it ends."""
        return self.certificate.not_valid_after_utc


def new_authority(now: datetime) -> Identity:
    """Return a CA, which signs certificates for this machine's own names and for no others."""
    # The library draws the key: a random source that tests can choose has no place here.
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("Local CA")
    public = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(name, name, key, now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.NameConstraints(_PERMITTED, None), critical=True)
        .add_extension(public, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Identity(key, certificate)


def new_identity(authority: Identity, name: str, now: datetime) -> Identity:
    """Return a certificate for this machine, as server and as client: brokers are both to each other."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = authority.certificate
    of_signer = signer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        _builder(signer.subject, _named(name), key, now, CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative(each) for each in NAMES]), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(of_signer), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Identity(key, certificate)


def parse_identity(text: bytes) -> Identity:
    """Parse a key and its certificate, as `Identity.pem` writes them. Raises `InvalidInput`."""
    try:
        key = serialization.load_pem_private_key(text, password=None)
        certificate = x509.load_pem_x509_certificate(text)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"it has no key and certificate in PEM form: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        raise InvalidInput("its certificate does not belong to its key")
    return Identity(key, certificate)


def is_due(identity: Identity, now: datetime, *, days_left: int) -> bool:
    """Whether it ends so soon that another one has to take its place, or has not begun."""
    return not identity.certificate.not_valid_before_utc <= now < identity.until - timedelta(days=days_left)


def is_from_the_future(identity: Identity, now: datetime) -> bool:
    """Whether it has not begun, though it is valid from an hour before its creation: so a clock is or was wrong."""
    return now < identity.certificate.not_valid_before_utc


def is_signed_by(identity: Identity, authority: Identity) -> bool:
    """Whether that CA has signed it."""
    try:
        identity.certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def moment(now_us: int) -> datetime:
    """Return a time of the clock as certificates have it: in whole seconds."""
    return datetime.fromtimestamp(now_us // 1_000_000, UTC)


def _builder(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + timedelta(days=days))
    )


def _named(name: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "BraidMQ"), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    return x509.DNSName(name) if name == "localhost" else x509.IPAddress(ip_address(name))
