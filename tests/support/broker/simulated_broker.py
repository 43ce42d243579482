"""A broker without HTTP and threads: the real topics, transitions, bulk loads and upkeep on any store and clock.

Several of them know of each other by a shared list of who is alive, and of a topic's changes only by reading its
record: so each may be as stale as it likes. None asks another one to seal what it owns: the store decides between them.
"""

import asyncio
from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import cast

from filer.bulk_load.load_check import check_load_file
from filer.bulk_load.row_group_lots import Ranges
from filer.clock import Clock
from filer.errors import LoadRefused
from filer.segment.segment_reader import SegmentReader
from filer.segment.writer.segment_writer import WriterContext
from filer.segment.writer.write_limiter import WriteLimiter
from filer.segment.writer.writer_settings import WriterSettings
from filer.stores.decorators.store_health import StoreHealth
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue
from filer.topic.incarnation import Incarnation
from filer.topic.topic_state import Segment
from leader.membership.coordinator import BrokerInfo, InProcessCoordinator
from leader.membership.refusing_brokers import RefusingBrokers
from leader.traffic.traffic_table import TrafficTable
from mq.administration.memberships import Memberships
from mq.administration.topic_administration import TopicAdministration
from mq.administration.topic_groups import TopicGroups
from mq.base.broker_addresses import BrokerAddresses
from mq.base.errors import PeerUnreachable
from mq.bulk_load.bulk_loads import BulkLoads
from mq.bulk_load.load_checker import LoadChecker, PinnedFile
from mq.limits.front_store import FrontStore
from mq.maintenance.maintenance import Maintenance
from mq.metrics.metrics import Metrics
from mq.peers.peers import Peers
from mq.peers.transport import PeerAnswer
from mq.replication.replica_buffers import ReplicaBuffers
from mq.topic.publish_deadlines import PublishDeadlines
from mq.topic.topic_faults import TopicFaults
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.topic_services import TopicServices
from mq.traffic.owner_traffic import OwnerTraffic
from mq.transitions.segment_placement import SegmentPlacement
from mq.transitions.segment_sealer import SegmentSealer
from mq.transitions.state_broadcast import StateBroadcast
from mq.transitions.transition_executor import TransitionExecutor
from tests.support.inline_executor import InlineExecutor

GRACE_SECONDS = 60.0
# Of the event loop's time, which is real, while that of the simulation is not.
PATIENT_SECONDS = 3600.0
SEGMENTS_PER_REQUEST = 100
METRICS = Metrics()


class SharedList(InProcessCoordinator):
    """The live brokers, which everybody knows at once."""

    def __init__(self, alive: dict[str, BrokerInfo]) -> None:
        super().__init__()
        self._alive = alive

    def brokers(self) -> Sequence[BrokerInfo]:
        return tuple(self._alive[name] for name in sorted(self._alive))

    def leads(self) -> bool:
        return False


class NoPeers:
    """A transport through which no broker reaches another."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        raise PeerUnreachable(url)

    async def close(self) -> None:
        return


class InlineChecker:
    """Checks the files of bulk loads in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self, files: Sequence[PinnedFile], asker: str = "") -> None:
        for file in files:
            fetched = await self._store.get(file.key)
            if fetched.info.etag != file.etag:
                raise LoadRefused(f"{file.key}: it has changed while it was checked")
            check_load_file(partial(_bytes_of, fetched.data), file.claim, file.segment)


def _bytes_of(data: bytes, ranges: Ranges) -> list[bytes]:
    return [data[start:stop] for start, stop in ranges]


async def _nobody_takes_over(topic: str, left: Set[int]) -> None:
    """The brokers are a cluster."""


class SimulatedBroker:
    """One life of a broker: `alive` has it from now on. `close` it at the end."""

    def __init__(self, broker: str, store: Store, clock: Clock, alive: dict[str, BrokerInfo]) -> None:
        self.id, self._store, self._clock, self._alive = broker, store, clock, alive
        self.draining = asyncio.Event()
        self.catalogue, self._coordinator, self._peers = Catalogue(store, clock), SharedList(alive), Peers(NoPeers())
        self._addresses, self._front_store = BrokerAddresses(self._coordinator), FrontStore(1 << 24)
        self._replica_buffers = ReplicaBuffers(self._front_store)
        self.segment_reader = SegmentReader(store, InlineExecutor(), cache_bytes=1 << 20)
        self._make_topics()
        self._make_transitions()
        self._make_administration()
        self._make_bulk_loads()
        self._make_maintenance()
        alive[broker] = BrokerInfo(broker, f"http://{broker}", "", "1")

    def _make_topics(self) -> None:
        writer_settings = WriterSettings(flush_bytes=200, grace_seconds=GRACE_SECONDS)
        services = TopicServices(
            broker=self.id,
            incarnation=Incarnation(None, self._clock, self.id),
            store=self._store,
            clock=self._clock,
            catalogue=self.catalogue,
            coordinator=self._coordinator,
            peers=self._peers,
            url_of=self._addresses.url_of,
            last_url_of=self._addresses.last_url_of,
            front_store=self._front_store,
            replica_buffers=self._replica_buffers,
            metrics=METRICS,
            deadlines=PublishDeadlines(PATIENT_SECONDS, StoreHealth(self._clock), on_expired=lambda: None),
            faults=TopicFaults(self._clock, METRICS),
            writer_context=WriterContext(self._store, self._clock, self.id, writer_settings, WriteLimiter(1)),
        )
        self.topics = TopicRegistry(
            self.catalogue,
            self._clock,
            self._coordinator,
            open_topic=partial(TopicRuntime, services, on_lost=lambda topic: None, take_over=_nobody_takes_over),
            on_applied=lambda state: None,
            draining=self.draining,
        )

    def _make_transitions(self) -> None:
        table = TrafficTable()
        self.broadcast = StateBroadcast(broker=self.id, coordinator=self._coordinator, peers=self._peers)
        sealer = SegmentSealer(
            broker=self.id,
            store=self._store,
            clock=self._clock,
            coordinator=self._coordinator,
            peers=self._peers,
            replicas=self._replica_buffers,
            topics=self.topics,
            last_url_of=self._addresses.last_url_of,
            recorded_end=lambda topic, segment: 0,
            grace_seconds=GRACE_SECONDS,
        )
        owner_traffic = OwnerTraffic(
            broker=self.id, peers=self._peers, url_of=self._addresses.url_of, traffic_of=self.topics.traffic_of
        )
        self._placement = SegmentPlacement(self._coordinator, table, self.topics, RefusingBrokers(1.0))
        self.executor = TransitionExecutor(
            clock=self._clock,
            catalogue=self.catalogue,
            coordinator=self._coordinator,
            metrics=METRICS,
            topics=self.topics,
            draining=self.draining,
            table=table,
            placement=self._placement,
            sealer=sealer,
            broadcast=self.broadcast,
            owner_traffic=owner_traffic,
            on_unfinished=lambda topic: None,
        )

    def _make_administration(self) -> None:
        memberships = Memberships(self.catalogue, self._clock, self.topics, self.broadcast)
        self.administration = TopicAdministration(
            catalogue=self.catalogue,
            clock=self._clock,
            coordinator=self._coordinator,
            topics=self.topics,
            executor=self.executor,
            placement=self._placement,
            broadcast=self.broadcast,
            memberships=memberships,
            segments_per_request=SEGMENTS_PER_REQUEST,
            turn=_at_once,
        )
        self.topic_groups = TopicGroups(
            self.catalogue, self.topics, self.executor, self.administration, memberships, self.broadcast
        )

    def _make_bulk_loads(self) -> None:
        self.loads = BulkLoads(
            store=self._store,
            clock=self._clock,
            catalogue=self.catalogue,
            topics=self.topics,
            executor=self.executor,
            checker=cast(LoadChecker, InlineChecker(self._store)),
            pool=InlineExecutor(),
            grace_seconds=GRACE_SECONDS,
        )

    def _make_maintenance(self) -> None:
        self.maintenance = Maintenance(
            broker=self.id,
            store=self._store,
            clock=self._clock,
            catalogue=self.catalogue,
            coordinator=self._coordinator,
            metrics=METRICS,
            topics=self.topics,
            executor=self.executor,
            pool=InlineExecutor(),
            draining=self.draining,
            floors={},
            interval_seconds=1.0,
            grace_seconds=GRACE_SECONDS,
            rollup_age_seconds=10.0,
            turn=_at_once,
            take_over=_nobody_takes_over,
        )

    async def repair(self, name: str) -> None:
        """Finish the transition in progress, and replace segments that no live broker owns."""
        runtime = await self.topics.topic(name)

        def is_orphan(segment: Segment) -> bool:
            writer = runtime.writers.get(segment.id)
            stopped = writer is not None and writer.has_stopped
            return segment.owner not in self._alive or (segment.owner == self.id and stopped)

        await self.executor.repair(name, is_orphan, "failover")

    async def close(self) -> None:
        """End the broker. What it has not stored fails."""
        self._alive.pop(self.id, None)
        await asyncio.gather(self.topics.close(), self.broadcast.close())


async def _at_once() -> None:
    """A turn where nobody else asks for one."""
