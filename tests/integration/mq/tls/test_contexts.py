"""What is wrong with certificates and keys is said in one line, before a broker serves."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from filer.clock import ManualClock, SystemClock
from filer.errors import InvalidConfig
from mq.base.settings import BrokerSettings
from mq.tls import reload
from mq.tls.contexts import Contexts, TlsFiles, public_files, read_contexts
from mq.tls.reload import Certificates
from tests.support.net.authority import CLIENT, DAY, Authority, Identity


def refusal(**named: Path | None) -> str:
    with pytest.raises(InvalidConfig) as caught:
        read_contexts(public_files(BrokerSettings(**named)))
    return str(caught.value)


def unusable(authority: Authority, tmp_path: Path) -> dict[str, tuple[Identity, str]]:
    good = authority.sign("good")
    text = tmp_path / "text"
    text.write_text("no")
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    missing = tmp_path / "missing.pem"
    return {
        "no certificate": (Identity(missing, good.key), f"'{missing}' (--tls-cert) cannot be read: No such file or "),
        "no key": (Identity(good.cert, missing), f"'{missing}' (--tls-key) cannot be read: No such file or directory"),
        "a folder": (Identity(tmp_path, good.key), f"'{tmp_path}' (--tls-cert) cannot be read: Is a directory"),
        "text": (Identity(text, good.key), f"'{text}' (--tls-cert) has no certificate in PEM form"),
        "no PEM key": (Identity(good.cert, text), f"'{text}' (--tls-key) has no private key in PEM form"),
        "damaged": (Identity(damaged, good.key), f"the certificate '{damaged}' (--tls-cert) with the key "),
        "exchanged": (Identity(good.key, good.cert), f"'{good.key}' (--tls-cert) has no certificate in PEM form"),
        "another key": (
            Identity(good.cert, authority.sign("other").key),
            "does not belong to the first certificate in ",
        ),
        "encrypted": (authority.sign("secret", passphrase=b"secret"), "(--tls-key) is encrypted, and nobody is there"),
        "expired": (
            authority.sign("old", since=-2 * DAY, until=-timedelta(seconds=1)),
            "(--tls-cert) cannot be used: certificate has expired",
        ),
        "not yet": (
            authority.sign("new", since=timedelta(hours=1)),
            "(--tls-cert) cannot be used: certificate is not yet valid",
        ),
        "for clients": (
            authority.sign("client", purposes=(CLIENT,)),
            "(--tls-cert) cannot be used: unsuitable certificate purpose",
        ),
    }


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    for name, (identity, part) in unusable(Authority(tmp_path), tmp_path).items():
        told = refusal(tls_cert=identity.cert, tls_key=identity.key)
        assert part in told and "\n" not in told, name


def test_a_ca_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    identity = Authority(tmp_path).sign("good")
    missing, text = tmp_path / "missing", tmp_path / "text"
    text.write_text("no")
    own = {"tls_cert": identity.cert, "tls_key": identity.key}
    told = refusal(**own, tls_client_ca=missing)
    assert told == f"'{missing}' (--tls-client-ca) cannot be read: No such file or directory"
    assert refusal(**own, tls_ca=text) == f"'{text}' (--tls-ca) has no certificate in PEM form (-----BEGIN …)"
    assert refusal(tls_ca=missing) == f"'{missing}' (--tls-ca) cannot be read: No such file or directory"


def test_what_can_be_used_makes_what_is_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    identity = authority.sign("good")
    nothing = read_contexts(public_files(BrokerSettings()))
    assert (nothing.server, nothing.peers) == (None, None)
    calls_only = read_contexts(public_files(BrokerSettings(tls_ca=authority.ca)))
    assert calls_only.server is None and calls_only.peers is not None and calls_only.peers.check_hostname
    # A key and its certificate may stand in one file, as they do for other servers.
    both = tmp_path / "both.pem"
    both.write_bytes(identity.cert.read_bytes() + identity.key.read_bytes())
    found = read_contexts(public_files(BrokerSettings(tls_cert=both, tls_key=both)))
    assert found.server is not None and found.expires is not None and found.expires.endswith("GMT")


def test_what_stands_between_certificates_is_for_people(tmp_path: Path) -> None:
    """A comment in another script than ASCII was an internal error, and ended the watch of the files."""
    authority = Authority(tmp_path)
    good = authority.sign("good")
    (tmp_path / "commented.pem").write_bytes("# Autorité\n".encode() + authority.ca.read_bytes())
    made = read_contexts(
        public_files(BrokerSettings(tls_cert=good.cert, tls_key=good.key, tls_client_ca=tmp_path / "commented.pem"))
    )
    assert made.server is not None


async def test_no_error_ends_the_watch_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Authority(tmp_path).sign("good")
    certificates = Certificates(TlsFiles(good.cert, good.key), SystemClock())

    def failing(files: TlsFiles) -> Contexts:
        raise TypeError("nobody foresaw this")

    monkeypatch.setattr(reload, "read_contexts", failing)
    await certificates._read_again()


class Told:
    """A log of events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, **_: object) -> None:
        self.events.append(event)

    warning = error = info


async def test_files_that_cannot_be_used_are_tried_again_and_an_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that becomes valid 7 s after it has come was never looked at again."""
    authority, clock, told = Authority(tmp_path), ManualClock(), Told()
    monkeypatch.setattr(reload, "_log", told)
    used, later = authority.sign("used"), authority.sign("later")
    monkeypatch.setattr(reload, "read_contexts", lambda files: read_at(files, clock, valid_us))
    valid_us, tries = 0, 0

    def read_at(files: TlsFiles, clock: ManualClock, valid_us: int) -> Contexts:
        nonlocal tries
        tries += 1
        if clock.now_us() < valid_us:
            raise InvalidConfig("certificate is not yet valid")
        return read_contexts(files)

    certificates = Certificates(TlsFiles(used.cert, used.key), clock)
    certificates.expires_seconds = int(clock.now_us() / 1e6) + 3
    valid_us, tries = clock.now_us() + 7_000_000, 0
    used.cert.write_bytes(later.cert.read_bytes())
    used.key.write_bytes(later.key.read_bytes())
    watching = asyncio.create_task(certificates.watch())
    try:
        for _ in range(26):
            while not clock._sleepers:  # it looks at the files in a thread
                await asyncio.sleep(0.001)
            await clock.advance(0.5)
    finally:
        watching.cancel()
    assert told.events == ["tls_not_reloaded", "tls_certificate_expired", "tls_reloaded"]
    assert tries == 3, "every five seconds, and not once it works"
