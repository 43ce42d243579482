"""The addresses of the cluster's brokers."""

from leader.membership.coordinator import Coordinator

MOST_LAST_URLS = 1000
"""How many addresses of gone brokers are remembered.

A restarted broker has a new id, so the longest gone are forgotten.
"""


class BrokerAddresses:
    """The addresses of live brokers, and the last known ones of brokers that are gone."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._last_urls: dict[str, str] = {}

    def record(self) -> None:
        """Remember the addresses of the live brokers.

        A broker that counts as gone may still answer, and may hold messages that the store lacks.
        """
        live = {info.id: info.url for info in self._coordinator.brokers()}
        for broker, url in live.items():
            self._last_urls.pop(broker, None)
            self._last_urls[broker] = url
        while len(self._last_urls) > max(MOST_LAST_URLS, len(live)):
            del self._last_urls[next(iter(self._last_urls))]

    def url_of(self, broker: str) -> str | None:
        """The address of a live broker; None if the broker is not known to be alive."""
        return next((info.url for info in self._coordinator.brokers() if info.id == broker), None)

    def last_url_of(self, broker: str) -> str | None:
        """The current or last known address of a broker; None if none was ever known here."""
        self.record()
        return self._last_urls.get(broker)
