"""Whether a broker listens at an address from which other machines' users could harm it."""

import ipaddress

EVERYWHERE = ("0.0.0.0", "::")


def is_this_machine(host: str) -> bool:
    """Whether only this machine reaches a listener at that address. Names are not resolved."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def why_exposed(host: str, authorizer: str, *, has_tls: bool, knows_clients: bool) -> str | None:
    """Return what any client on the network could do to a broker with these settings; None if that is nothing.

    `knows_clients`: every client has to show a certificate. `--authorizer user` and `loopback` serve no other machine.
    """
    if is_this_machine(host) or authorizer in ("user", "loopback") or (has_tls and knows_clients):
        return None
    if authorizer == "any":
        return "everybody who can connect may do everything"
    return None if has_tls else "everybody on the way can read what is sent, and use it"
