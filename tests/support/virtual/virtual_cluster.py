"""A cluster of whole brokers in one process and in virtual time (`tests/support/virtual/virtual_time.py`).

    async def main() -> None:
        async with VirtualCluster(seed=7) as cluster:
            await cluster.start("a", "b", "c")
            cluster.refuse("b", "a", "c")
            ...
    run_in_virtual_time(main())

Only the store, the lines and ZooKeeper are stand-ins. A broker that is killed stands still for ever, at whatever call
of the store or of another broker it is; its session ends later.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

import httpx

from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, Fetched, MakeData, ObjectInfo
from mq.base.settings import BrokerSettings
from mq.broker import Broker
from mq.http.app import create_asgi
from tests.support.cluster.http_cluster import HeldStore
from tests.support.cluster.shared_coordinator import Membership, SharedCoordinator
from tests.support.virtual.virtual_network import Host, VirtualClients, VirtualNetwork, VirtualPeers
from tests.support.virtual.virtual_time import LoopClock

SESSION_SECONDS = 10.0
SETTLE_SECONDS = 60.0
CALL_SECONDS = 15.0


class MortalStore(HeldStore):
    """The store as one process sees it. What was on its way when the process ended may still land."""

    def __init__(self, inner: MemoryStore, host: Host) -> None:
        super().__init__(inner)
        self._host = host

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        """As `Store.create`."""
        await self._host.step()
        try:
            await super().create(key, data, metadata=metadata)
        finally:
            await self._host.step()

    async def replace(self, key: str, data: Data, *, etag: str) -> str:
        """As `Store.replace`."""
        await self._host.step()
        try:
            return await super().replace(key, data, etag=etag)
        finally:
            await self._host.step()

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        """As `Store.get`."""
        await self._host.step()
        return await super().get(key, start=start, stop=stop)

    async def head(self, key: str) -> ObjectInfo:
        """As `Store.head`."""
        await self._host.step()
        return await super().head(key)

    async def _listed(self, prefix: str, after: str | None, limit: int | None) -> AsyncIterator[ObjectInfo]:
        await self._host.step()
        async for info in super().list(prefix, after=after, limit=limit):
            yield info

    def list(self, prefix: str, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[ObjectInfo]:
        """As `Store.list`."""
        return self._listed(prefix, after, limit)

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """As `Store.list_folders`."""
        await self._host.step()
        return await super().list_folders(prefix)

    async def delete(self, keys: Iterable[str]) -> None:
        """As `Store.delete`."""
        await self._host.step()
        await super().delete(keys)


class VirtualCluster:
    """Brokers by name. `urls` are those that live, `http://<name>`: hand it to a `Workload` as it is."""

    def __init__(self, *, seed: int = 0) -> None:
        self.clock = LoopClock(seed=seed)
        self.memory = MemoryStore(clock=self.clock)
        self.membership = Membership()
        self.membership.session_seconds = SESSION_SECONDS
        self.network = VirtualNetwork(random.Random(f"network {seed}"))
        self.transport = VirtualClients(self.network)
        self.brokers: dict[str, Broker] = {}
        self.stores: dict[str, MortalStore] = {}
        self.urls: list[str] = []
        self.client = httpx.AsyncClient(transport=self.transport, timeout=CALL_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.client.aclose()

    # -- brokers -------------------------------------------------------------------------------------------

    async def start(self, *names: str, **settings: Any) -> None:
        """Start brokers of these names, which no broker had before."""
        for name in names:
            host = self.network.hosts[name] = Host(name, on_end=partial(self.urls.remove, f"http://{name}"))
            store = self.stores[name] = MortalStore(self.memory, host)
            broker = self.brokers[name] = Broker(
                store,
                self.clock,
                SharedCoordinator(self.membership),
                BrokerSettings(broker=name, authorizer="any", **settings),
                peers=VirtualPeers(self.network, host),
            )
            await broker.start(f"http://{name}")
            host.app = create_asgi(broker)
            self.urls.append(f"http://{name}")

    def kill(self, name: str) -> None:
        """End a process; its session goes on until `expire`."""
        self.network.hosts[name].end()

    def expire(self, name: str) -> None:
        """End a broker's session."""
        self.membership.expel(self.brokers[name].id)

    @property
    def living(self) -> list[str]:
        """The names of the brokers that live."""
        return [name for name, host in self.network.hosts.items() if host.lives]

    # -- lines ---------------------------------------------------------------------------------------------

    def refuse(self, name: str, *viewers: str) -> None:
        """Have its address refuse these brokers as well."""
        self.network.hosts[name].refuses.update(viewers)

    def answer(self, name: str) -> None:
        """Have its address answer everybody again, and its calls say who calls."""
        self.network.hosts[name].refuses.clear()
        self.network.hosts[name].nameless = False

    def mute(self, name: str) -> None:
        """Have its calls not say who calls: nobody hears that it lives."""
        self.network.hosts[name].nameless = True

    # -- topics --------------------------------------------------------------------------------------------

    async def create(self, topic: str, **config: Any) -> None:
        """Create a topic."""
        (await self.client.put(f"{self.urls[0]}/v1/topics/{topic}", json=config)).raise_for_status()

    async def brokers_of(self, topic: str) -> list[list[str]]:
        """Owner and followers, by name, of each open segment."""
        described = await self._ask(f"/v1/topics/{topic}")
        return [
            [broker.partition(".")[0] for broker in segment["brokers"]]
            for segment in described["segments"]
            if segment["state"] == "open"
        ]

    async def _ask(self, path: str) -> Any:
        """The answer of a broker, or of another one if that broker ends meanwhile."""
        while True:
            with contextlib.suppress(httpx.TransportError):
                return (await self.client.get(f"{self.urls[0]}{path}")).raise_for_status().json()
            await self.clock.sleep(0.1)

    async def settled(self, *topics: str) -> None:
        """Wait until all open segments are with brokers that live. Raises `TimeoutError`."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while not all([set().union(*await self.brokers_of(each)) <= set(self.living) for each in topics]):
                await self.clock.sleep(0.2)
