"""A certificate as `ssl` shows it, in words, and where an app finds it."""

from typing import Any

import pytest

from mq.tls.peer_certificate import PeerCertificate, certificate_in, offer_certificate, peer_certificate


def test_subject_and_names() -> None:
    shown = {
        "subject": (
            (("countryName", "DE"),),
            (("organizationName", "Braid, tests"),),
            (("commonName", "billing"),),
        ),
        "subjectAltName": (("DNS", "billing.example.org"), ("URI", "spiffe://example.org/billing")),
    }
    assert peer_certificate(shown) == PeerCertificate(
        subject="CN=billing,O=Braid\\, tests,C=DE",
        common_name="billing",
        names=("DNS:billing.example.org", "URI:spiffe://example.org/billing"),
    )


@pytest.mark.parametrize(
    ("value", "escaped"),
    [("a+b=c", "a\\+b\\=c"), (" a ", "\\ a\\ "), ("#1", "\\#1"), ('"<;>\\', '\\"\\<\\;\\>\\\\'), ("x\0y", "x\\00y")],
)
def test_nobody_gets_a_second_part_into_a_name(value: str, escaped: str) -> None:
    found = peer_certificate({"subject": ((("commonName", value),),)})
    assert found is not None and (found.subject, found.common_name) == (f"CN={escaped}", value)


@pytest.mark.parametrize("shown", [None, {}])
def test_none_was_shown(shown: dict[str, Any] | None) -> None:
    assert peer_certificate(shown) is None


def test_a_scope_has_what_was_put_there() -> None:
    certificate = PeerCertificate("CN=billing", "billing", ())
    scope: dict[str, Any] = {"extensions": {"other": {}}}
    assert certificate_in(scope) is None and certificate_in({}) is None
    offer_certificate(scope, certificate)
    assert certificate_in(scope) is certificate and "other" in scope["extensions"]


@pytest.mark.parametrize(
    ("common", "names", "name"),
    [
        ("billing", ("DNS:b.example.org", "URI:spiffe://example.org/b", "URI:spiffe://x"), "spiffe://example.org/b"),
        ("billing", ("email:b@example.org", "DNS:b.example.org"), "b.example.org"),
        ("billing", ("IP Address:127.0.0.1",), "billing"),
        (None, ("URI:spiffe://x/\n", "DNS:" + "x" * 501, "DNS:y"), "y"),
        (None, ("email:b@example.org",), None),
        ("", (), None),
    ],
)
def test_what_its_owner_is_called(common: str | None, names: tuple[str, ...], name: str | None) -> None:
    assert PeerCertificate("", common, names).name == name


def test_it_tells_when_it_ends() -> None:
    shown = {"subject": ((("commonName", "b"),),), "notAfter": "Nov 27 12:00:00 2026 GMT"}
    found = peer_certificate(shown)
    assert found is not None and found.until_seconds == 1_795_780_800
