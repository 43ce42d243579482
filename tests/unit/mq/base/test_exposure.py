"""When a broker is open to a network, and so has to be told that this is meant."""

import pytest

from mq.base.exposure import is_this_machine, why_exposed

EVERYTHING = "everybody who can connect may do everything"


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("broker-1.example.org", False),
    ],
)
def test_addresses_of_this_machine(host: str, is_own: bool) -> None:
    assert is_this_machine(host) is is_own


@pytest.mark.parametrize(
    ("host", "authorizer", "has_tls", "knows_clients", "why"),
    [
        ("127.0.0.1", "any", False, False, None),
        ("0.0.0.0", "loopback", False, False, None),
        ("0.0.0.0", "user", False, False, None),
        ("0.0.0.0", "any", False, False, EVERYTHING),
        ("0.0.0.0", "any", True, False, EVERYTHING),
        ("0.0.0.0", "any", True, True, None),
        ("0.0.0.0", "tokens", False, False, "everybody on the way can read what is sent, and use it"),
        ("0.0.0.0", "tokens", True, False, None),
    ],
)
def test_who_could_do_what(host: str, authorizer: str, has_tls: bool, knows_clients: bool, why: str | None) -> None:
    assert why_exposed(host, authorizer, has_tls=has_tls, knows_clients=knows_clients) == why
