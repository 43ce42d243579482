"""The address at which this broker calls another one: its listener for brokers, or the one for clients."""

from leader.membership.coordinator import BrokerInfo

MOST_ADDRESSES = 2000


class CallAddresses:
    """Brokers with a listener for brokers call each other there.

    A broker without one calls no broker there, like an older version: it has no certificate for that. A broker with one
    calls others at their listeners for clients only while its own `is_optional`. Otherwise it never calls an address
    without such a listener: no broker that could have joined has announced it.
    """

    def __init__(self, *, has_listener: bool = False, is_optional: bool = False) -> None:
        self._has_listener, self._is_optional = has_listener, is_optional
        self._peer_urls: dict[str, None] = {}

    def of(self, info: BrokerInfo) -> str | None:
        """Return the URL at which to call that broker; None if it cannot be called."""
        if not self._has_listener:
            return info.url
        if not info.peer_url:
            return info.url if self._is_optional else None
        self._remember(info.peer_url)
        return info.peer_url

    def are_peer_only(self, url: str) -> bool:
        """Whether that URL is of a listener for brokers, among those that `of` has returned."""
        return self._has_listener and (not self._is_optional or url.rstrip("/") in self._peer_urls)

    def _remember(self, url: str) -> None:
        """A restarted broker may have another address, so the longest not asked for are forgotten."""
        url = url.rstrip("/")
        if self._is_optional:
            self._peer_urls.pop(url, None)
            self._peer_urls[url] = None
            if len(self._peer_urls) > MOST_ADDRESSES:
                del self._peer_urls[next(iter(self._peer_urls))]
