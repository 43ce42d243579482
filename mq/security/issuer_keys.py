"""The keys of an OpenID issuer: fetched, kept, and fetched again when they may have been rotated.

The issuer's discovery document (OpenID Connect Discovery 1.0 §4) has the address of its keys. A stopped issuer stops no
broker: its last keys count until it answers again, for any length of time, because it could not have rotated them
without answering.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeAlias
from urllib.parse import urlsplit

import orjson

from filer.clock import Clock
from filer.errors import BraidError
from mq.security.key_ring import Key, parse_key_set

REFRESH_SECONDS = 300.0
AGAIN_SECONDS = 10.0
"""The pause between fetches for tokens with unknown keys: so a client that sends many causes no flood of fetches."""
DISCOVERY = "/.well-known/openid-configuration"
Fetch: TypeAlias = Callable[[str], Awaitable[bytes]]
"""Gets the content at an address, at most some 256 KB of it. Raises `IssuerFailed`. Follows no redirect."""


class IssuerFailed(BraidError):
    """An issuer did not answer, or not as it should."""


class IssuerKeys:
    """The keys of one issuer."""

    def __init__(self, issuer: str, fetch: Fetch, clock: Clock) -> None:
        self.issuer = issuer
        self._fetch, self._clock = fetch, clock
        self._tried_seconds = -inf
        self._is_asked = True

    def ask(self) -> None:
        """Note that a token has an unknown key."""
        self._is_asked = True

    @property
    def is_due(self) -> bool:
        """Whether to fetch them now."""
        silent_seconds = self._clock.monotonic_seconds() - self._tried_seconds
        return silent_seconds >= (AGAIN_SECONDS if self._is_asked else REFRESH_SECONDS)

    async def fetch(self) -> list[Key]:
        """The current keys of the issuer. Raises `IssuerFailed`."""
        self._tried_seconds, self._is_asked = self._clock.monotonic_seconds(), False
        try:
            found = await self._discovered()
            return parse_key_set(await self._fetch(found), self.issuer, strict=False)
        except IssuerFailed:
            self._is_asked = True
            raise
        except Exception as error:
            # Whatever the issuer sends, and whatever a library raises for it: the broker goes on, and asks again.
            self._is_asked = True
            raise IssuerFailed(f"{self.issuer}: {str(error) or type(error).__name__}") from error

    async def _discovered(self) -> str:
        """The address of its keys."""
        try:
            document = orjson.loads(await self._fetch(f"{self.issuer.rstrip('/')}{DISCOVERY}"))
        except orjson.JSONDecodeError as error:
            raise IssuerFailed(f"{self.issuer}: its discovery document is no JSON") from error
        if not isinstance(document, dict) or document.get("issuer") != self.issuer:
            raise IssuerFailed(f"{self.issuer}: its discovery document is that of another issuer")
        address = document.get("jwks_uri")
        why = why_not_fetched(address) if isinstance(address, str) else "it is no text"
        if why is not None:
            raise IssuerFailed(f"{self.issuer}: its jwks_uri cannot be used: {why}")
        return str(address)


def why_not_fetched(url: str) -> str | None:
    """Why keys are not fetched from there. None if they may be: by https, or by http on this machine."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "it is no address"
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username or port == 0:
        return "it has to be https://host/path"
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        return "keys that come without TLS could be anybody's: it has to be https"
    return None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
