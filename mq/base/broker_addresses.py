"""The addresses of the cluster's brokers."""

from collections.abc import Callable

from leader.membership.coordinator import BrokerInfo, Coordinator

MOST_LAST_URLS = 1000
"""How many addresses of gone brokers are remembered.

A restarted broker has a new id, so the longest gone are forgotten.
"""


class BrokerAddresses:
    """The addresses of live brokers, and the last known ones of brokers that are gone.

    `address_of` returns the address at which this broker calls another one; None if it cannot.
    """

    def __init__(
        self, coordinator: Coordinator, address_of: Callable[[BrokerInfo], str | None] = lambda info: info.url
    ) -> None:
        self._coordinator, self._address_of = coordinator, address_of
        self._last_urls: dict[str, str] = {}

    def record(self) -> None:
        """Remember the addresses of the live brokers.

        A broker that counts as gone may still answer, and may hold messages that the store lacks.
        """
        found = {info.id: self._address_of(info) for info in self._coordinator.brokers()}
        live = {broker: url for broker, url in found.items() if url is not None}
        for broker, url in live.items():
            self._last_urls.pop(broker, None)
            self._last_urls[broker] = url
        while len(self._last_urls) > max(MOST_LAST_URLS, len(live)):
            del self._last_urls[next(iter(self._last_urls))]

    def url_of(self, broker: str) -> str | None:
        """Return the address of a live broker; None if the broker is not known to be alive."""
        return next((self._address_of(info) for info in self._coordinator.brokers() if info.id == broker), None)

    def last_url_of(self, broker: str) -> str | None:
        """Return the current or last known address of a broker; None if none was ever known here."""
        self.record()
        return self._last_urls.get(broker)
