"""Whether a broker listens where others than people of its own machine could harm it."""

import ipaddress

EVERYWHERE = ("0.0.0.0", "::")


def is_this_machine(host: str) -> bool:
    """Whether only this machine reaches a listener at that address. What a name leads to is not asked."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def why_exposed(host: str, authorizer: str, *, has_tls: bool, knows_clients: bool) -> str | None:
    """What anybody on the network could do to a broker with these settings; None where that is nothing.

    `knows_clients`: every client has to show a certificate. By `--authorizer user` or `loopback` nobody else is served.
    """
    if is_this_machine(host) or authorizer in ("user", "loopback") or (has_tls and knows_clients):
        return None
    if authorizer == "any":
        return "everybody who can connect may do everything"
    return None if has_tls else "everybody on the way can read what is sent, and use it"
