"""What a broker is put together from: passed in, never imported as globals, so that tests can own it."""

from concurrent.futures import Executor
from dataclasses import dataclass, field

from filer.catalogue import Catalogue
from filer.clock import Clock
from filer.segment_reader import SegmentReader
from filer.segment_writer import WriterSettings
from filer.store import Store
from filer.turns import Turns
from leader.coordinator import Coordinator
from mq.copies import Copies
from mq.front_store import FrontStore
from mq.metrics import Metrics
from mq.peers import Peers
from mq.settings import BrokerSettings

# Addresses of brokers that have been seen, the longest gone forgotten first: a restarted one is another broker.
MOST_LAST_URLS = 1000


@dataclass(frozen=True, slots=True)
class Parts:
    """The components that every topic of a broker shares. `broker` is its id, incarnation included."""

    broker: str
    store: Store
    clock: Clock
    catalogue: Catalogue
    reader: SegmentReader
    decoder: Executor
    upkeep: Executor
    front_store: FrontStore
    metrics: Metrics
    settings: BrokerSettings
    writing: WriterSettings
    turns: Turns
    coordinator: Coordinator
    peers: Peers
    copies: Copies
    last_urls: dict[str, str] = field(default_factory=dict)

    @property
    def clustered(self) -> bool:
        """Whether there may be other brokers."""
        return self.coordinator.session_timeout_seconds > 0

    def note_addresses(self) -> None:
        """Remember where the live brokers are: one that the others call gone may be asked for what it holds yet."""
        live = {info.id: info.url for info in self.coordinator.brokers()}
        for each, url in live.items():
            self.last_urls.pop(each, None)
            self.last_urls[each] = url
        while len(self.last_urls) > max(MOST_LAST_URLS, len(live)):
            del self.last_urls[next(iter(self.last_urls))]

    def url_of(self, broker: str) -> str | None:
        """The address of a live broker; None where it is not known to live."""
        return next((info.url for info in self.coordinator.brokers() if info.id == broker), None)

    def last_url_of(self, broker: str) -> str | None:
        """Where a broker is or was last seen: one that is not announced may be alive all the same."""
        self.note_addresses()
        return self.last_urls.get(broker)
