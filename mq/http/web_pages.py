"""Detects requests that only seem to come from this machine: those of web pages of other sites, and those of proxies.

A broker that trusts addresses would otherwise trust such a request as much as one of the user. It comes from the user's
own machine, through the browser (cross-site request forgery, DNS rebinding) or through a proxy for any client.
"""

import ipaddress
import socket
from collections.abc import Container, Iterable
from functools import lru_cache
from urllib.parse import urlsplit

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
Headers = Iterable[tuple[bytes, bytes]]
_HOST, _ORIGIN, _SITE, _MODE = b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode"
_OF_PAGES = frozenset({_HOST, _ORIGIN, _SITE, _MODE})
_OF_PROXIES = frozenset({b"forwarded", b"via", b"x-real-ip"})
_OF_PROXIES_PREFIX = b"x-forwarded-"
_OWN_SITES = frozenset({b"same-origin", b"none"})
_LONGEST_HOST = 300
"""Longer than any host name with its port. Longer ones are refused unread, and kept in no cache."""


def this_machine(*urls: str | None, hosts: Iterable[str] = ()) -> tuple[str, ...]:
    """The names that clients may use for this broker: of its machine, in these URLs, and these host names."""
    named = (urlsplit(url).hostname for url in urls if url is not None)
    given = (host.strip().strip("[]").lower() for host in hosts)
    return tuple(dict.fromkeys([socket.gethostname().lower(), *(n for n in named if n), *(n for n in given if n)]))


def why_forwarded(headers: Headers) -> str | None:
    """The header by which a proxy says that it has forwarded the request; None if there is none."""
    for name, _ in headers:
        if name in _OF_PROXIES or name.startswith(_OF_PROXIES_PREFIX):
            return name.decode("latin-1")
    return None


def why_foreign(
    headers: Headers, names: tuple[str, ...] | None, *, safe: bool = False, origins: Container[str] = ()
) -> str | None:
    """Describe why a request comes from a foreign web page; None if it does not.

    Browsers name the page's site in `Origin` or `Sec-Fetch-Site`. A page cannot change these headers, and other clients
    do not send them. A page of another site may only lead its reader here (`safe`, and a navigation).

    With `names`, every request must have addressed the broker as localhost, by a loopback address or by one of these
    names. An attacker may have made any other name resolve to this broker (DNS rebinding), and then the browser takes
    the page for one of the same site. Without `names`, only requests that are not `safe` are examined. Pages of
    `origins` count as our own.
    """
    if names is None and safe:
        return None
    said: dict[bytes, bytes] = {}
    for name, value in headers:
        # Two headers of the same name are together no host, no origin and no site of ours.
        if name in _OF_PAGES:
            said[name] = b"%b, %b" % (said[name], value) if name in said else value
    host, origin, site = said.get(_HOST, b""), said.get(_ORIGIN), said.get(_SITE)
    is_allowed = origin is not None and origin.decode("latin-1") in origins
    if not is_allowed and (
        (origin is not None and not _is_own(origin, host, site))
        or (site is not None and site not in _OWN_SITES and not (safe and said.get(_MODE) == b"navigate"))
    ):
        page = (origin or b"another site").decode("latin-1")
        return f"a web page of {page:.80} (--cors-origin names the origins of pages that are allowed)"
    if names is not None and not is_local(host, names):
        return _not_ours(host, names)
    return None


def _not_ours(host: bytes, names: tuple[str, ...]) -> str:
    known = ", ".join(dict.fromkeys(["localhost", "127.0.0.1", "[::1]", *names]))
    return (
        f"clients that address this broker as {host.decode('latin-1')!r:.80}, which is not one of its names "
        f"({known}); --allowed-hosts adds more"
    )


def _is_own(origin: bytes, host: bytes, site: bytes | None) -> bool:
    # A browser that sends the header knows best, also where a proxy has changed the host.
    return site in _OWN_SITES if site is not None else origin.partition(b"://")[2] == host.lower()


def is_local(host: bytes, names: tuple[str, ...]) -> bool:
    """Whether the value of a `Host` header is localhost, a loopback address or one of the names; any port."""
    return len(host) <= _LONGEST_HOST and _is_local(host, names)


@lru_cache(maxsize=256)
def _is_local(host: bytes, names: tuple[str, ...]) -> bool:
    try:
        name = urlsplit(f"//{host.decode('ascii')}").hostname or ""
        if name == "localhost" or name.endswith(".localhost") or name in names:
            return True
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
