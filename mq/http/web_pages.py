"""Requests that web pages have a browser make: it would act in the name of whoever sits before it."""

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
Headers = Iterable[tuple[bytes, bytes]]


def this_machine(*urls: str | None) -> Sequence[str]:
    """Names by which a browser here may rightly call a broker here: the machine's, and those in these URLs."""
    named = (urlsplit(url).hostname for url in urls if url is not None)
    return [socket.gethostname().lower(), *(name for name in named if name is not None)]


def why_foreign(headers: Headers, names: Sequence[str] | None) -> str | None:
    """Why a request comes from a page of another site; None where it comes from no page, or from one of this broker.

    Browsers say so in `Sec-Fetch-Site` or `Origin`, which a page cannot change and other clients do not send. Where
    `names` are given the broker must have been called by one of them, by an address, or as localhost: any other name
    may be a stranger's that was made to lead here (DNS rebinding).
    """
    said = {name: value for name, value in headers if name in (b"host", b"origin", b"sec-fetch-site")}
    origin, site, host = (said.get(name, b"").decode("latin-1") for name in (b"origin", b"sec-fetch-site", b"host"))
    if not origin and not site:
        return None
    if site not in ("same-origin", "none", "") or (not site and origin.partition("://")[2] != host.lower()):
        return f"a web page of {origin or 'another site'}"
    if names is not None and not _is_local(host, names):
        return f"a web page that calls this broker {host!r:.80}, which is none of its names"
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
