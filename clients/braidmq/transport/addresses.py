"""The brokers that a client may ask: those it was given, and those it has learned."""

from collections.abc import Collection, Iterable, Sequence
from ipaddress import ip_address

import httpx

from braidmq.errors import InvalidArgument

_MAX_LEARNED = 256
_LAST_PORT = 65535


class Addresses:
    """A ring of brokers' addresses, the given ones first. `current` is the one that calls try first.

    An address that the cluster reports is used only if it can be valid for this client too. A loopback address names
    the machine that it is used on, so it is valid only if a given address is loopback too. An address without TLS
    must not get the headers of a client that was given only addresses with TLS. `has_failed` says whether an address
    has failed since the last `learn`.
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
        """All addresses, in the order in which they are tried."""
        return self._ring

    def learn(self, urls: Iterable[str]) -> None:
        """Replace the learned addresses by these. The given ones stay."""
        learned = dict.fromkeys(url.rstrip("/") for url in urls if self.admits(url))
        self.has_failed = False
        self._ring = (*self.given, *[url for url in learned if url not in self.given][:_MAX_LEARNED])
        if self.current not in self._ring:
            self.current = self.given[0]

    def admits(self, url: str) -> bool:
        """Whether this client may use an address that a broker reported."""
        return (self._plain or url.startswith("https://")) and (self._loopback or not _is_loopback(url))

    def is_given(self, address: str) -> bool:
        """Whether the user gave it. From this machine, a learned address may lead to something else."""
        return address in self.given

    def next(self, tried: Collection[str]) -> str | None:
        """Return the first address, from the current one on, that is not among the `tried`; None if all are."""
        index = self._ring.index(self.current)
        return next((each for each in (*self._ring[index:], *self._ring[:index]) if each not in tried), None)

    def failed(self, address: str) -> None:
        """Make later calls start with the next address."""
        self.has_failed = True
        if address == self.current:
            index = self._ring.index(address)
            self.current = self._ring[(index + 1) % len(self._ring)]


def shown(url: str) -> str:
    """The address for users and logs: without its name and password."""
    before, separator, rest = url.partition("://")
    server, slash, path = rest.partition("/")
    return f"{before}{separator}{server.rpartition('@')[2]}{slash}{path}"


def put_target(url: str, own_path: str) -> str:
    """Where to put an object for which a broker has returned that URL: the broker's own path, or its store's address.

    A broker names itself as the request has named it; behind a proxy that need not be an address for clients.
    """
    return own_path if url.endswith(own_path) else url


def parse_addresses(url: object) -> tuple[str, ...]:
    """Return the addresses of a list, or of text that separates them by commas. Raises `InvalidArgument`."""
    urls = url.split(",") if isinstance(url, str) else list(url) if isinstance(url, Iterable) else [url]
    if not urls:
        raise InvalidArgument("give the address of at least one broker")
    if isinstance(url, str) and len(urls) > 1 and (empty := [n for n, each in enumerate(urls, 1) if not each.strip()]):
        raise InvalidArgument(
            f"address {empty[0]} of {len(urls)} is empty: put one comma between two addresses, as in "
            "http://host:port,http://host:port"
        )
    return tuple(dict.fromkeys(_checked(each) for each in urls))


def _checked(url: object) -> str:
    if not isinstance(url, str):
        raise InvalidArgument(f"{url!r} is not a broker's address: give it as http://host:port or https://host")
    url = url.strip()
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as failure:
        raise InvalidArgument(f"{url!r} is not a broker's address: {failure}") from failure
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidArgument(f"{url!r} is not a broker's address: give it as http://host:port or https://host")
    if parsed.port is not None and not 0 < parsed.port <= _LAST_PORT:
        raise InvalidArgument(f"{url!r} is not a broker's address: a port is a number from 1 to {_LAST_PORT}")
    return url.rstrip("/")


def _is_loopback(url: str) -> bool:
    try:
        host = httpx.URL(url).host
        return host == "localhost" or ip_address(host).is_loopback
    except (httpx.InvalidURL, ValueError):  # a host name, which only the resolver can interpret
        return False
