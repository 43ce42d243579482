"""A cluster of brokers in this process, over real HTTP, whose puts of segment files can be held back one by one."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from typing import Any

import orjson

from filer.clock import Clock, SystemClock
from filer.errors import OutcomeUnknown
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.decorators.instrumented_store import InstrumentedStore
from filer.stores.decorators.store_health import StoreHealth
from filer.stores.decorators.store_metrics import StoreMetrics
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, Fetched, MakeData, ObjectInfo
from leader.membership.coordinator import BrokerInfo
from mq.base.errors import PeerRefused, PeerUnreachable
from mq.peers.calls import BROKER_HEADER
from mq.peers.http_peers import HttpPeers
from mq.peers.transport import PeerAnswer
from mq.tracing.tracer import NO_TRACER, Tracer
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.cluster.shared_coordinator import Membership, SharedCoordinator

PATIENCE_SECONDS = 20.0
# Where a test has left nobody to take anything over, a drain waits for nothing.
DRAIN_SECONDS = 2.0
SEGMENT_FILES = "/segments/"
NDJSON = {"content-type": "application/x-ndjson"}


class HeldStore(ForwardingStore):
    """The store as one broker sees it: while `hold` is in force what it writes under such keys waits; topics may not be
    listed, and nothing read. `reads` counts the objects that were asked for.
    """

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.lists_topics = True
        self.can_be_read = True
        self.reads: Counter[str] = Counter()
        self._held: set[str] = set()
        self._answers_held: set[str] = set()
        self._changed = asyncio.Event()

    def hold(self, part_of_key: str = SEGMENT_FILES) -> None:
        """Hold writes whose key contains `part`."""
        self._held.add(part_of_key)

    def hold_answers(self, part_of_key: str) -> None:
        """Have objects whose key contains `part` be created, and nobody told so."""
        self._answers_held.add(part_of_key)

    def release(self, part_of_key: str | None = None) -> None:
        """Release held writes and answers, of all keys or of those that contain `part`."""
        for held in (self._held, self._answers_held):
            held -= held.copy() if part_of_key is None else {part_of_key}
        self._changed.set()
        self._changed = asyncio.Event()

    async def _pass(self, key: str, held: Set[str]) -> None:
        while any(part in key for part in held):
            await self._changed.wait()

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """As `Store.create`, later."""
        await self._pass(key, self._held)
        await self.inner.create(key, data, metadata=metadata)
        await self._pass(key, self._answers_held)

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """As `Store.replace`, later."""
        await self._pass(key, self._held)
        return await self.inner.replace(key, data, etag=etag)

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`, unless nothing can be read."""
        self._check_read()
        self.reads[key] += 1
        return await self.inner.get(key, start=start, stop=stop)

    async def head(self, key: str) -> ObjectInfo:
        """As `Store.head`, unless nothing can be read."""
        self._check_read()
        return await self.inner.head(key)

    def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        """As `Store.list`, unless nothing can be read."""
        self._check_read()
        return self.inner.list(prefix, after=after, limit=limit)

    def _check_read(self) -> None:
        if not self.can_be_read:
            raise OutcomeUnknown("the store is away")

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`, unless that is to fail."""
        if not self.lists_topics:
            raise OutcomeUnknown("the store is away")
        return await self.inner.list_folders(prefix)


class PartedPeers(HttpPeers):
    """The transport of one broker to the others, except those `parted`. `calls` counts by last part of the path.

    It is refused by those that are `refusing`. While it is `nameless` it does not say who calls, as older brokers do
    not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parted: set[str] = set()
        self.refusing: set[str] = set()
        self.nameless = False
        self.calls: Counter[str] = Counter()

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        """As `PeerTransport.send`."""
        self.calls[url.partition("?")[0].rpartition("/")[2]] += 1
        if any(url.startswith(f"{each}/") for each in self.parted):
            raise PeerUnreachable(url)
        if any(url.startswith(f"{each}/") for each in self.refusing):
            raise PeerRefused(url)
        sent = {name: value for name, value in headers.items() if not (self.nameless and name == BROKER_HEADER)}
        return await super().send(method, url, sent, body, timeout_seconds=timeout_seconds)


class HttpCluster:
    """The cluster: brokers by name, each of which may be removed at any time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.store = MemoryStore(clock=self.clock)
        self.membership = Membership()
        self.up: dict[str, HttpBroker] = {}
        self.stores: dict[str, HeldStore] = {}
        self.asked: dict[str, StoreMetrics] = {}
        self.peers: dict[str, PartedPeers] = {}
        self._exits: dict[str, contextlib.AsyncExitStack] = {}

    async def start(
        self, *names: str, tracer_of: Callable[[str], Tracer] = lambda name: NO_TRACER, **settings: Any
    ) -> None:
        """Start brokers of these names."""
        for name in names:
            stack = self._exits[name] = contextlib.AsyncExitStack()
            store = self.stores[name] = HeldStore(self.store)
            asked = self.asked[name] = StoreMetrics()
            peers = self.peers[name] = PartedPeers()
            health = StoreHealth(self.clock)
            made = http_broker(
                InstrumentedStore(store, clock=self.clock, metrics=asked, health=health),
                clock=self.clock,
                payloads=self.store,
                coordinator=SharedCoordinator(self.membership),
                peers=peers,
                store_health=health,
                tracer=tracer_of(name),
                broker=name,
                **{"drain_timeout": DRAIN_SECONDS, **settings},
            )
            self.up[name] = await stack.enter_async_context(made)

    async def stop(self, name: str) -> None:
        """Drain it and end it."""
        await self._exits.pop(name).aclose()
        del self.up[name]

    async def stop_all(self) -> None:
        """Drain and end all of them."""
        for store in self.stores.values():
            store.release()
        # Nothing is handed over where nobody leads.
        self.membership.leaders = None
        # Who is out of touch stays so.
        self.membership.session_seconds = 0.0
        for name in list(self.up):
            await self.stop(name)

    def expel(self, name: str) -> None:
        """End its session; it keeps running."""
        self.membership.expel(self.up[name].broker.id)

    def cut_off(self, name: str) -> BrokerInfo:
        """End its session, and make it unreachable for other brokers, until `join_again`."""
        broker = self.up[name].broker
        member = self.membership.members[broker.id]
        self.expel(name)
        for other in self.peers:
            if other != name:
                self.peers[other].parted.add(member.url)
        return member

    def refuse(self, name: str, *viewers: str) -> None:
        """Have its address refuse these brokers, until `answer`. It lives and calls others; clients reach it."""
        for viewer in viewers:
            self.peers[viewer].refusing.add(self.up[name].url)

    def answer(self, name: str) -> None:
        """Have its address answer everybody again."""
        for peers in self.peers.values():
            peers.refusing.discard(self.up[name].url)

    def join_again(self, member: BrokerInfo) -> None:
        """Bring it back, unchanged."""
        for peers in self.peers.values():
            peers.parted.discard(member.url)
        self.membership.enter(member)

    async def get(self, name: str, path: str, **params: Any) -> Any:
        """The answer of a broker."""
        return (await self.up[name].client.get(path, params=params)).raise_for_status().json()

    async def create(self, name: str, topic: str, **config: Any) -> None:
        """Create a topic there."""
        (await self.up[name].client.put(f"/v1/topics/{topic}", json=config)).raise_for_status()

    async def publish(self, name: str, topic: str, *messages: tuple[str, str]) -> list[dict[str, int]]:
        """Publish keys and values in one request through a broker. Returns the positions."""
        lines = b"\n".join(orjson.dumps({"key": key, "value": value}) for key, value in messages)
        answer = await self.up[name].client.post(f"/v1/topics/{topic}/messages", content=lines, headers=NDJSON)
        positions: list[dict[str, int]] = answer.raise_for_status().json()["positions"]
        return positions

    async def values(self, name: str, topic: str) -> list[str]:
        """All values of the topic, read there."""
        page = await self.get(name, f"/v1/topics/{topic}/messages", limit=10_000)
        return [message["value"] for message in page["messages"]]

    async def owners(self, name: str, topic: str) -> Counter[str]:
        """How many open segments each broker (by name) owns, as `name` sees it."""
        return Counter(brokers[0] for brokers in await self.brokers_of(name, topic))

    async def brokers_of(self, name: str, topic: str) -> list[list[str]]:
        """Owner and followers (by name) of each open segment, as `name` sees them."""
        segments = (await self.get(name, f"/v1/topics/{topic}"))["segments"]
        return [
            [broker.partition(".")[0] for broker in segment["brokers"]]
            for segment in segments
            if segment["state"] == "open"
        ]

    def store_calls(self, name: str) -> Counter[str]:
        """How many requests a broker has sent to the store, by operation."""
        calls: Counter[str] = Counter()
        for each in self.asked[name].snapshot():
            calls[each.operation] += each.calls
        return calls

    async def stored_messages(self, name: str, topic: str) -> int:
        """How many messages the files of a topic hold."""
        files = (await self.get(name, f"/v1/topics/{topic}/files", limit=10_000))["files"]
        return sum(file["count"] for file in files)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the coroutine function returns true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.01)
