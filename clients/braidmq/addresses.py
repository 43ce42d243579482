"""The brokers that a client may ask: those it was given, and those it has learned of."""

from collections.abc import Collection, Iterable, Sequence
from ipaddress import ip_address

import httpx

from braidmq.errors import InvalidArgument

_MAX_LEARNED = 256


class Addresses:
    """A ring of brokers' addresses, the given ones first; `current` is the one that last did its duty.

    What the cluster tells of its brokers is believed only where it can hold for this client too: an address of
    a loopback interface names this very machine, whichever it is, and one without TLS is no place for the
    headers of a client that was given one with it. `has_failed` tells that one has failed since they were learned.
    """

    def __init__(self, given: Sequence[str]) -> None:
        self.given = tuple(given)
        self.current = given[0]
        self.has_failed = False
        self._ring = self.given
        self._loopback = any(_is_loopback(each) for each in given)
        self._plain = any(each.startswith("http://") for each in given)

    @property
    def all(self) -> tuple[str, ...]:
        """Every address, in the order in which they are tried."""
        return self._ring

    def learn(self, urls: Iterable[str]) -> None:
        """Remember these brokers, and forget those learned before; what was given stays."""
        learned = dict.fromkeys(url.rstrip("/") for url in urls if self.admits(url))
        self.has_failed = False
        self._ring = (*self.given, *[url for url in learned if url not in self.given][:_MAX_LEARNED])
        if self.current not in self._ring:
            self.current = self.given[0]

    def admits(self, url: str) -> bool:
        """Whether an address that a broker gave can be meant for this client."""
        return (self._plain or url.startswith("https://")) and (self._loopback or not _is_loopback(url))

    def is_given(self, address: str) -> bool:
        """Whether the user named it. One that was learned may lead to something else from here."""
        return address in self.given

    def next(self, tried: Collection[str]) -> str | None:
        """The current address, or the first after it that is not among the `tried`; None when all are."""
        at = self._ring.index(self.current)
        return next((each for each in (*self._ring[at:], *self._ring[:at]) if each not in tried), None)

    def failed(self, address: str) -> None:
        """Let later calls begin with the next address."""
        self.has_failed = True
        if address == self.current:
            at = self._ring.index(address)
            self.current = self._ring[(at + 1) % len(self._ring)]


def parse_addresses(url: str | Sequence[str]) -> tuple[str, ...]:
    """The addresses of a list, or of text that separates them by commas; raises `InvalidArgument`."""
    words = url.split(",") if isinstance(url, str) else list(url)
    if not words:
        raise InvalidArgument("give the address of at least one broker")
    return tuple(dict.fromkeys(_checked(word.strip()) for word in words))


def _checked(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as failure:
        raise InvalidArgument(f"{url!r} is no broker's address: {failure}") from failure
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidArgument(f"{url!r} is no broker's address: give it as http://host:port or https://host")
    return url.rstrip("/")


def _is_loopback(url: str) -> bool:
    try:
        host = httpx.URL(url).host
        return host == "localhost" or ip_address(host).is_loopback
    except (httpx.InvalidURL, ValueError):  # a name: whose it is only its resolver knows
        return False
