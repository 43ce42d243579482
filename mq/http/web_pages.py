"""Detects requests that a web page of another site makes through a user's browser (cross-site request forgery).

A broker would otherwise trust such a request as much as one of the user: it comes from the user's own machine.
"""

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
Headers = Iterable[tuple[bytes, bytes]]


def this_machine(*urls: str | None) -> Sequence[str]:
    """The names by which a browser on this machine may address this broker: the host name and those in these URLs."""
    named = (urlsplit(url).hostname for url in urls if url is not None)
    return [socket.gethostname().lower(), *(name for name in named if name is not None)]


def why_foreign(headers: Headers, names: Sequence[str] | None) -> str | None:
    """Describe the foreign web page that made a request; None if no page made it, or a page of this broker.

    Browsers name the page's site in `Sec-Fetch-Site` or `Origin`. A page cannot change these headers, and other clients
    do not send them. With `names`, a page must also have addressed the broker by one of these names, by an IP address
    or as localhost. An attacker may have made any other name resolve to this broker (DNS rebinding).
    """
    said = {name: value for name, value in headers if name in (b"host", b"origin", b"sec-fetch-site")}
    origin, site, host = (said.get(name, b"").decode("latin-1") for name in (b"origin", b"sec-fetch-site", b"host"))
    if not origin and not site:
        return None
    if site not in ("same-origin", "none", "") or (not site and origin.partition("://")[2] != host.lower()):
        return f"a web page of {origin or 'another site'}"
    if names is not None and not _is_local(host, names):
        return f"a web page that addresses this broker as {host!r:.80}, which is not one of its names"
    return None


def _is_local(host: str, names: Sequence[str]) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name == "localhost" or name.endswith(".localhost") or name in names:
            return True
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
