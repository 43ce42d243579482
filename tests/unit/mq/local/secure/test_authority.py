"""The CA of a local cluster: what it signs, what is trusted by it, and when another one takes its place."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from filer.errors import InvalidInput
from mq.local.secure.authority import (
    Identity,
    is_due,
    is_signed_by,
    moment,
    new_authority,
    new_identity,
    parse_identity,
)

NOW = datetime(2026, 11, 27, 9, tzinfo=UTC)
AUTHORITY = new_authority(NOW)
BROKER = new_identity(AUTHORITY, "broker", NOW)


def greets(server: Identity, ca: x509.Certificate, host: str, folder: str) -> None:
    """Have a client that trusts that CA, strictly, greet a server. Raises `ssl.SSLCertVerificationError`."""
    there, here = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.verify_flags |= ssl.VERIFY_X509_STRICT
    there.load_verify_locations(cadata=Identity(server.key, ca).certificate_pem())
    with open(f"{folder}/server.pem", "w") as file:
        file.write(server.pem())
    here.load_cert_chain(f"{folder}/server.pem")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [there.wrap_bio(down, up, server_hostname=host), here.wrap_bio(up, down, server_side=True)]
    for side in sides * 4:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_strict_client_trusts_it_under_each_name_of_this_machine(host: str, tmp_path: object) -> None:
    now = datetime.now(UTC)
    authority = new_authority(now)
    greets(new_identity(authority, "broker", now), authority.certificate, host, str(tmp_path))


def test_another_name_another_ca_and_another_time_are_refused(tmp_path: object) -> None:
    now = datetime.now(UTC)
    authority = new_authority(now)
    identity = new_identity(authority, "broker", now)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        greets(identity, authority.certificate, "example.org", str(tmp_path))
    with pytest.raises(ssl.SSLCertVerificationError):
        greets(identity, new_authority(now).certificate, "localhost", str(tmp_path))
    ended = new_identity(authority, "broker", now - timedelta(days=200))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        greets(ended, authority.certificate, "localhost", str(tmp_path))


def test_the_ca_is_good_for_this_machine_alone() -> None:
    """Whoever has its key, and finds somebody who trusts it, is no other host for them."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName("bank.example.org")])
    template = BROKER.certificate
    builder = (
        x509.CertificateBuilder()
        .issuer_name(AUTHORITY.certificate.subject)
        .subject_name(template.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(template.not_valid_before_utc)
        .not_valid_after(template.not_valid_after_utc)
        .add_extension(names, critical=False)
    )
    for extension in template.extensions:
        if extension.oid != x509.SubjectAlternativeName.oid:
            builder = builder.add_extension(extension.value, critical=extension.critical)
    forged = builder.sign(AUTHORITY.key, template.signature_hash_algorithm)
    policy = PolicyBuilder().store(Store([AUTHORITY.certificate])).time(NOW)
    policy.build_server_verifier(x509.DNSName("localhost")).verify(BROKER.certificate, [])
    with pytest.raises(VerificationError):
        policy.build_server_verifier(x509.DNSName("bank.example.org")).verify(forged, [])


@pytest.mark.parametrize(("days", "due"), [(-1, True), (0, False), (59, False), (60, True), (91, True)])
def test_a_certificate_is_due_before_it_ends(days: int, due: bool) -> None:
    assert is_due(BROKER, NOW + timedelta(days=days), days_left=30) is due


def test_who_has_signed_it_is_seen() -> None:
    assert is_signed_by(BROKER, AUTHORITY) and not is_signed_by(BROKER, new_authority(NOW))


def test_what_is_written_is_read_again() -> None:
    found = parse_identity(BROKER.pem().encode())
    assert found.certificate == BROKER.certificate and found.pem() == BROKER.pem()
    assert "PRIVATE" not in BROKER.certificate_pem()


@pytest.mark.parametrize(
    "text",
    ["", "no pem", BROKER.certificate_pem(), BROKER.pem()[:200], BROKER.pem().partition("-----END")[0]],
    ids=["empty", "no-pem", "no-key", "half-a-key", "no-end"],
)
def test_what_is_no_key_with_its_certificate_is_told(text: str) -> None:
    with pytest.raises(InvalidInput, match="no key and certificate"):
        parse_identity(text.encode())


def test_a_key_of_another_certificate_is_told() -> None:
    other = Identity(new_authority(NOW).key, BROKER.certificate)
    with pytest.raises(InvalidInput, match="does not belong"):
        parse_identity(other.pem().encode())


def test_times_are_whole_seconds() -> None:
    assert moment(1_700_000_000_999_999) == datetime.fromtimestamp(1_700_000_000, UTC)
