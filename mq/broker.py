"""The broker: puts together all components that accept, store and serve messages, starts and closes them."""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import takewhile

from filer import keys, request_ids
from filer.clock import Clock
from filer.errors import BraidError, InvalidConfig
from filer.event_log import EventLog
from filer.segment.read_room import ReadRoom
from filer.segment.segment_reader import SegmentReader
from filer.segment.writer.segment_writer import WriterContext
from filer.segment.writer.write_limiter import WriteLimiter
from filer.segment.writer.writer_settings import WriterSettings
from filer.stores.decorators.store_health import StoreHealth
from filer.stores.fence_check import check_fencing
from filer.stores.store import Store, StoreTraits, StreamingStore
from filer.topic.catalogue import Catalogue
from filer.topic.cluster_record import ClusterRecord, open_cluster
from filer.topic.incarnation import Ends, Incarnation
from filer.topic.topic_state import TopicState
from filer.uploads import Uploads
from leader.leader_loop import LeaderLoop
from leader.membership.coordinator import BrokerInfo, Coordinator
from leader.membership.refusing_brokers import RefusingBrokers
from leader.refusal_watch import RefusalWatch
from leader.scaling_controller import ScalingController
from leader.traffic.traffic_table import TrafficTable
from leader.traffic_reports import TrafficReports
from mq.administration.memberships import Memberships
from mq.administration.segment_counts import SegmentCounts
from mq.administration.topic_administration import TopicAdministration
from mq.administration.topic_groups import TopicGroups
from mq.audit.audit_topic import AuditTopic
from mq.audit.trail import AuditTrail
from mq.base.broker_addresses import BrokerAddresses
from mq.base.readiness import Readiness, readiness
from mq.base.settings import BrokerSettings
from mq.base.version import VERSION
from mq.bulk_load.bulk_loads import BulkLoads
from mq.bulk_load.load_checker import LoadChecker
from mq.drain import Drainer
from mq.groups.groups import Groups
from mq.groups.lag_watch import LagWatch
from mq.groups.redriver import Redriver
from mq.limits.arrivals import Arrivals
from mq.limits.budget import Budget
from mq.limits.front_store import FrontStore
from mq.limits.quotas import Quotas
from mq.limits.read_budget import ReadBudget
from mq.limits.reads import Reads, Streams
from mq.limits.room import Room
from mq.limits.storage_watch import StorageWatch
from mq.limits.turns import Turns
from mq.limits.upload_streams import UploadStreams
from mq.maintenance.maintenance import Maintenance
from mq.maintenance.scrubber import Scrubber
from mq.maintenance.topic_loading import TopicLoading
from mq.maintenance.verifications import Verifications
from mq.metrics.metrics import Metrics
from mq.peer_keys.incoming import Incoming
from mq.peer_keys.kept_keys import KeptKeys
from mq.peer_keys.outgoing import Outgoing
from mq.peers.broker_sights import BrokerSights
from mq.peers.call_addresses import CallAddresses
from mq.peers.http_peers import POLLS_PER_BROKER, HttpPeers
from mq.peers.introduction import introduce
from mq.peers.last_heard import LastHeard
from mq.peers.peers import Peers
from mq.peers.proven_sender import ProvenSender
from mq.peers.refusal_teller import RefusalTeller
from mq.peers.same_store import SameStore
from mq.peers.transport import PeerTransport
from mq.replication.replica_buffers import ReplicaBuffers
from mq.security.access import access_of
from mq.security.grants import Pattern
from mq.topic.publish_deadlines import PublishDeadlines
from mq.topic.segment_observer import SegmentObserver
from mq.topic.stored_bytes import stored_bytes
from mq.topic.topic_faults import TopicFaults
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime
from mq.topic.topic_services import TopicServices
from mq.topic.topic_view import TopicView
from mq.tracing.tracer import NO_TRACER, Tracer
from mq.traffic.owner_traffic import OwnerTraffic
from mq.traffic.traffic_reporter import TrafficReporter
from mq.traffic.traffic_view import TrafficView
from mq.transitions.early_flush import EarlyFlush
from mq.transitions.local_topics import LocalTopics
from mq.transitions.patience import Patience
from mq.transitions.segment_placement import SegmentPlacement
from mq.transitions.segment_sealer import SegmentSealer
from mq.transitions.state_broadcast import StateBroadcast
from mq.transitions.topic_repair import TopicRepair
from mq.transitions.transition_executor import TransitionExecutor

# If puts are billed, the messages of an interval of this length share a file.
BILLED_FLUSH_INTERVAL_SECONDS = 0.1
# Forwarded requests are answered after this share of the time limit, so that the answer arrives in time.
FORWARDED_SHARE = 0.9
# Answers with messages hold so much of `read_bytes` before the cache of files gives its room to them.
FREE_OF_CACHE_SHARE = 4
# How long the end of a broker waits for the store to record it.
ASKED_BYTES, DECIDED_BYTES = 48 * 1024 * 1024, 24 * 1024 * 1024
"""Bodies of requests that name many messages, segments or files take at most so much, and those about groups, once
parsed, so much more: the largest takes 16 MiB."""
STOP_NOTE_SECONDS = 5.0

_log = EventLog(__name__)


class Broker:
    """A broker and its topics. Call `start` before use, and `drain` then `close` at the end.

    This is the composition root: it makes the components and passes each what it uses. HTTP endpoints take them from
    here. `observers` and `floors`, by topic, are those of components that keep their state in a topic, set before the
    start. `payloads` receives uploads chunk by chunk, if clients have no presigned URLs. `store_health` gets the calls
    to the store from the maker of the store. `tracer` begins the spans of requests; its maker closes it. With an
    `incarnation` that was found on the store, this broker goes on where the one before has stopped; without it, it is a
    new one, and leaves no trace of its end. `peer_tls` is for calls to other brokers, `peer_listener_tls` for those to
    their listeners for brokers; without it, the system's CAs count. `peer_keys` prove the identity of brokers to each
    other.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        coordinator: Coordinator,
        settings: BrokerSettings,
        *,
        payloads: StreamingStore | None = None,
        peers: PeerTransport | None = None,
        store_health: StoreHealth | None = None,
        tracer: Tracer = NO_TRACER,
        incarnation: Incarnation | None = None,
        peer_tls: ssl.SSLContext | None = None,
        peer_listener_tls: ssl.SSLContext | None = None,
        peer_keys: KeptKeys | None = None,
    ) -> None:
        self.settings, self.store, self.clock, self.coordinator = settings, store, clock, coordinator
        self.payloads, self.store_health = payloads, store_health or StoreHealth(clock)
        self.tracer = tracer
        self.incarnation = incarnation or Incarnation(None, clock, settings.broker)
        self.id = self.incarnation.broker
        self.peer_keys = peer_keys
        self.incoming = None if peer_keys is None else Incoming(peer_keys, clock, self.id)
        proven = (
            None
            if peer_keys is None
            else ProvenSender(Outgoing(peer_keys, clock, self.id), is_optional=settings.peer_keys_optional)
        )
        addresses = CallAddresses(has_listener=settings.has_peer_listener, is_optional=settings.peer_port_optional)
        tls_of = partial(_tls_of, addresses, peer_tls, peer_listener_tls)
        self.peers = Peers(
            peers or HttpPeers(tls_of=tls_of), peers or HttpPeers(POLLS_PER_BROKER, tls_of=tls_of), proven, addresses
        )
        self.new_request_id = request_ids.maker(clock)
        self.last_heard = LastHeard(clock)
        self.sights = BrokerSights(self.peers, self.last_heard)
        self._refusing = RefusingBrokers(settings.refused_timeout)
        self.metrics = Metrics(settings.metrics_topics)
        self.access = access_of(settings, clock, store, self.metrics.cluster.policy_failures.inc)
        in_force = self.access.policy
        self.quotas = Quotas(
            lambda: None if in_force is None else in_force.policy, clock.monotonic_seconds, self._stored_bytes
        )
        self.front_store = FrontStore(settings.front_store_bytes, clock.monotonic_seconds)
        self.arrivals = Arrivals(settings.arriving_bytes)
        # Long bodies about groups and loads, as received, and their parsed parts that are not answered yet.
        self.asked, self.asked_arrivals = Room(ASKED_BYTES, clock.monotonic_seconds), Arrivals(ASKED_BYTES // 4)
        self.decisions = Budget(DECIDED_BYTES)
        self.draining = asyncio.Event()
        # If puts mostly wait for the network, no work stands back for them.
        puts_compute = store.traits.puts_at_once == 1
        self._write_limiter = WriteLimiter(store.traits.puts_at_once, on_free=lambda: self.turns.stored())
        self.turns = Turns(clock.monotonic_seconds, lambda: puts_compute and self._write_limiter.is_storing)
        self.reads = Reads()
        self.read_budget = ReadBudget(settings.read_bytes, self.turns.pages, self._share_with_cache)
        self.upload_streams = UploadStreams(store.traits.streams_at_once)
        self.streams = Streams(settings.max_streams, settings.streams_per_address, self.metrics)
        self.decode_pool = ThreadPoolExecutor(2, thread_name_prefix="braidmq-decode")
        self._read_pool = ThreadPoolExecutor(2, thread_name_prefix="braidmq-read")
        self._upkeep_pool = ThreadPoolExecutor(1, thread_name_prefix="braidmq-upkeep")
        self.faults = TopicFaults(clock, self.metrics)
        self.catalogue = Catalogue(store, clock, on_read=self.faults.record_read)
        self.observers: dict[str, SegmentObserver] = {}
        self.floors: dict[str, Callable[[], Mapping[int, int]]] = {}
        self.segment_reader = SegmentReader(store, self._read_pool, cache_bytes=settings.file_cache_bytes)
        self.addresses = BrokerAddresses(coordinator, self.peers.url_of)
        self.replica_buffers = ReplicaBuffers(self.front_store)
        self._clustered = coordinator.session_timeout_seconds > 0
        self.deadlines, self.forwarded_deadlines = (
            PublishDeadlines(settings.publish_timeout * share, self.store_health, on_expired=self._count_abandoned)
            for share in (1.0, FORWARDED_SHARE)
        )
        table = TrafficTable()
        self.patience = Patience(clock, self.store_health, settings.publish_timeout)
        self._make_topics()
        self._make_transitions(table)
        self._make_groups()
        audit_topic = AuditTopic(self.topics, self.administration, self.id)
        self.audit = (
            AuditTrail(clock, audit_topic.store, self.metrics.requests.audit_failures.inc)
            if settings.is_audited
            else None
        )
        self._make_leader_side(table)
        self._make_bulk_loads()
        self._make_upkeep()
        self._make_drain()
        self._started = self._drained = False
        self._loops: list[asyncio.Task[None]] = []
        self.cluster: ClusterRecord | None = None

    def _make_topics(self) -> None:
        traits = self.store.traits
        writer_settings = _writer_settings(self.settings, traits)
        services = TopicServices(
            broker=self.id,
            incarnation=self.incarnation,
            store=self.store,
            clock=self.clock,
            catalogue=self.catalogue,
            coordinator=self.coordinator,
            peers=self.peers,
            url_of=self.addresses.url_of,
            last_url_of=self.addresses.last_url_of,
            front_store=self.front_store,
            replica_buffers=self.replica_buffers,
            metrics=self.metrics,
            deadlines=self.deadlines,
            observers=self.observers,
            faults=self.faults,
            writer_context=WriterContext(self.store, self.clock, self.id, writer_settings, self._write_limiter),
        )
        self.topics = TopicRegistry(
            self.catalogue,
            self.clock,
            self.coordinator,
            open_topic=partial(
                TopicRuntime,
                services,
                on_lost=self._request_repair,
                on_read=self._record_read,
                take_over=self._take_over_topic,
            ),
            on_applied=self._topic_applied,
            draining=self.draining,
        )

    def _make_transitions(self, table: TrafficTable) -> None:
        self.placement = SegmentPlacement(self.coordinator, table, self.topics, self._refusing)
        self.broadcast = StateBroadcast(broker=self.id, coordinator=self.coordinator, peers=self.peers)
        self.sealer = SegmentSealer(
            broker=self.id,
            store=self.store,
            clock=self.clock,
            coordinator=self.coordinator,
            peers=self.peers,
            replicas=self.replica_buffers,
            topics=self.topics,
            last_url_of=self.addresses.last_url_of,
            recorded_end=self.incarnation.end_of,
            grace_seconds=self.settings.grace,
        )
        self.executor = TransitionExecutor(
            clock=self.clock,
            catalogue=self.catalogue,
            coordinator=self.coordinator,
            metrics=self.metrics,
            topics=self.topics,
            draining=self.draining,
            table=table,
            placement=self.placement,
            sealer=self.sealer,
            broadcast=self.broadcast,
            owner_traffic=OwnerTraffic(
                broker=self.id, peers=self.peers, url_of=self.addresses.url_of, traffic_of=self.topics.traffic_of
            ),
            on_unfinished=self._request_repair,
        )
        self.repair = TopicRepair(
            self.clock,
            self.catalogue,
            self.topics,
            self.executor,
            self.faults,
            incarnation=self.incarnation,
            draining=self.draining,
        )
        memberships = Memberships(self.catalogue, self.clock, self.topics, self.broadcast)
        self.administration = TopicAdministration(
            catalogue=self.catalogue,
            clock=self.clock,
            coordinator=self.coordinator,
            topics=self.topics,
            executor=self.executor,
            placement=self.placement,
            broadcast=self.broadcast,
            memberships=memberships,
            segments_per_request=self.settings.segments_per_request,
            turn=self.turns.others.wait,
        )
        self.topic_groups = TopicGroups(
            self.catalogue, self.topics, self.executor, self.administration, memberships, self.broadcast
        )
        self.segment_counts = SegmentCounts(self.catalogue, self.clock, self.topics, clustered=self._clustered)

    def _make_groups(self) -> None:
        self.groups = Groups(
            clock=self.clock,
            topics=self.topics,
            administration=self.administration,
            make_reader=self.reader_of,
            url_of=self.addresses.url_of,
            redriver=Redriver(self.topics, self.reader_of, store=self.store, uploads=lambda: self.uploads),
            secret=self._cluster_secret,
            rates=self._rates_of,
            clustered=self._clustered,
        )
        self.observers[keys.GROUPS_TOPIC] = self.groups
        self.floors[keys.GROUPS_TOPIC] = self.groups.floors

    async def _rates_of(self, runtime: TopicRuntime) -> dict[int, float]:
        shown = await self.traffic_view.of(runtime.state, runtime.traffic)
        return {segment: each.recent.bytes_per_second for segment, each in shown.items() if each.recent is not None}

    def _cluster_secret(self) -> bytes:
        assert self.cluster is not None
        return self.cluster.secret

    def _make_leader_side(self, table: TrafficTable) -> None:
        """Make the components for leading the cluster, and those that report to the leader and ask it."""
        self.leader_loop = LeaderLoop(
            self.coordinator,
            self.catalogue,
            self.clock,
            self.executor,
            table,
            self._refusing,
            on_settled=lambda topic: self.scaling_controller.topic_changed(topic),
        )
        self.refusal_watch = RefusalWatch(
            self.coordinator,
            self.clock,
            self.sights,
            self._refusing,
            broker=self.id,
            on_change=self.leader_loop.wake,
        )
        self._refusal_teller = RefusalTeller(
            self.peers, self.coordinator, self.clock, self.refusal_watch.told, broker=self.id
        )
        led_topics = self.leader_loop if self._clustered else LocalTopics(self.topics, self.draining)
        self.traffic_reports = TrafficReports(
            self.coordinator,
            self.clock,
            led_topics,
            table,
            interval_seconds=self.settings.report_interval,
            segments_per_broker=self.settings.segments_per_broker,
        )
        self.scaling_controller = ScalingController(
            self.coordinator,
            self.clock,
            led_topics,
            self.executor,
            table,
            self.traffic_reports,
            interval_seconds=self.settings.report_interval,
        )
        self.traffic_reporter = TrafficReporter(
            broker=self.id,
            clock=self.clock,
            interval_seconds=self.settings.report_interval,
            traffic=lambda: (runtime.traffic for runtime in self.topics.values()),
            front_store=self.front_store,
            coordinator=self.coordinator,
            peers=self.peers,
            url_of=self.addresses.url_of,
            reports=self.traffic_reports,
            turn=self.turns.others.wait,
        )
        self.traffic_view = TrafficView(
            broker=self.id,
            coordinator=self.coordinator,
            peers=self.peers,
            url_of=self.addresses.url_of,
            reports=self.traffic_reports,
        )

    def _make_bulk_loads(self) -> None:
        self.loads = BulkLoads(
            store=self.store,
            clock=self.clock,
            catalogue=self.catalogue,
            topics=self.topics,
            executor=self.executor,
            checker=LoadChecker(self.store),
            pool=self._upkeep_pool,
            grace_seconds=self.settings.grace,
            on_failed=lambda reason: self.metrics.requests.loads_failed.labels(reason).inc(),
        )

    def _make_upkeep(self) -> None:
        """Make the components for the upkeep and the checks of stored files."""
        self.maintenance = Maintenance(
            broker=self.id,
            store=self.store,
            clock=self.clock,
            catalogue=self.catalogue,
            coordinator=self.coordinator,
            metrics=self.metrics,
            topics=self.topics,
            executor=self.executor,
            pool=self._upkeep_pool,
            draining=self.draining,
            floors=self.floors,
            interval_seconds=self.settings.maintenance_interval,
            grace_seconds=self.settings.grace,
            rollup_age_seconds=self.settings.rollup_age,
            turn=self.turns.others.wait,
            take_over=self._take_over_topic,
        )
        self.loading = TopicLoading(self.clock, self.catalogue, self.topics, at_once=self.store.traits.puts_at_once)
        self.scrubber = Scrubber(
            broker=self.id,
            store=self.store,
            clock=self.clock,
            catalogue=self.catalogue,
            coordinator=self.coordinator,
            metrics=self.metrics,
            pool=self._upkeep_pool,
            draining=self.draining,
            period_days=self.settings.scrub_days,
            most_bytes_per_second=self.settings.scrub_bytes_per_second,
        )
        self.verifications = Verifications(
            store=self.store,
            clock=self.clock,
            catalogue=self.catalogue,
            pool=self._upkeep_pool,
            bytes_per_second=self.settings.verify_bytes_per_second,
        )

    def _make_drain(self) -> None:
        """Make the drain, and its first part: storing early what is at risk."""
        self.early_flush = EarlyFlush(
            clock=self.clock,
            coordinator=self.coordinator,
            replica_buffers=self.replica_buffers,
            topics=self.topics,
            take_over=self.sealer.take_over,
        )
        self.drainer = Drainer(
            self.clock,
            self.coordinator,
            self.topics,
            self.reads,
            self.early_flush,
            self.draining,
            broker=self.id,
            cluster=self.settings.cluster,
            clustered=self._clustered,
            timeout_seconds=self.settings.drain_timeout,
        )

    async def start(self, url: str, peer_url: str = "") -> None:
        """Check the store and join the cluster, as a broker that listens at `url`, and for brokers at `peer_url`.

        It takes as long with any number of topics. Without a cluster they are read in the background, and segments that
        an earlier run left open wait until they are used. No topic, whatever its state, keeps this from succeeding.

        Raises `StoreCannotFence` for a store on which two writers could both succeed, `InvalidConfig` if the brokers of
        this cluster use another store, `StoreTaken`, and as `open_cluster`.
        """
        began_seconds = self.clock.monotonic_seconds()
        # First of all: if a store does not answer, everything below does not end.
        self._loops.append(asyncio.create_task(self.store_health.watch(), name="store health"))
        await self.access.open()
        self._loops.append(asyncio.create_task(self.access.watch(), name="credentials"))
        if self.peer_keys is not None:
            self._loops.append(asyncio.create_task(self.peer_keys.watch(), name="peer keys"))
        lags = LagWatch(self.groups.known, self.groups.source, self.metrics.groups, self.clock)
        self._loops.append(asyncio.create_task(lags.run(), name="lags of groups"))
        await check_fencing(self.store, self.clock)
        self.cluster = await open_cluster(
            self.store, self.clock, self.settings.cluster, grace_seconds=self.settings.grace
        )
        await self.incarnation.take()
        if (before := self.incarnation.left_running) is not None:
            _log.warning("broker_before_not_stopped", broker=before, store=self.store.uri(keys.INCARNATION))
        self.uploads = Uploads(self.store, self.clock, self.cluster.secret)
        self.peers.open(self.cluster.secret, self.id)
        if self.incoming is not None:
            self.incoming.announced_at(*self._called_at(url, peer_url))
        if self._clustered:
            await introduce(self.peers, await self._look(self.cluster.id))
        await self.access.issuer_asked()
        info = BrokerInfo(self.id, url, self.settings.zone, VERSION, store=self.cluster.id, peer_url=peer_url)
        await self._join(info)
        if self._clustered:
            self.addresses.record()
            self.coordinator.on_change(self.addresses.record)
            self.coordinator.on_change(self.leader_loop.wake)
            self.coordinator.on_change(self.early_flush.wake)
            self.coordinator.on_change(lambda: self.metrics.cluster.see_touch(self.coordinator.in_touch()))
            self.coordinator.on_topic_change(self._record_changed)
            self._loops.append(asyncio.create_task(self.leader_loop.run(), name="leader loop"))
            self._loops.append(asyncio.create_task(self.early_flush.run(), name="early flush"))
            self.peers.when_refused(self._refusal_teller.refused)
            self._loops.append(asyncio.create_task(self.refusal_watch.run(), name="refusal watch"))
        else:
            self._loops.append(asyncio.create_task(self.loading.run(), name="load topics"))
        for run, name in (
            (self.maintenance, "maintenance"),
            (self.scrubber, "scrub"),
            (self.traffic_reporter, "reports"),
            (self.scaling_controller, "scaling"),
            (StorageWatch(self.quotas, self.clock, self.coordinator.leads), "storage of quotas"),
        ):
            self._loops.append(asyncio.create_task(run.run(), name=name))
        self._loops.append(asyncio.create_task(self.faults.recheck(self.topics.refresh), name="recheck records"))
        self._started = True
        duration_seconds = round(self.clock.monotonic_seconds() - began_seconds, 3)
        _log.info(
            "broker_started",
            broker=self.id,
            url=url,
            peer_url=peer_url or None,
            version=VERSION,
            duration_seconds=duration_seconds,
        )

    async def _join(self, info: BrokerInfo) -> None:
        """Join the cluster, if this broker has its store.

        That is proven twice before anything is served. Before this broker is announced, so that it gets nothing that it
        could not find. And once it is announced, to those that came before it: the earlier ones may have died
        meanwhile, and others have come. Stopped at any line, it has acknowledged nothing.
        """
        if not self._clustered:
            await self.drainer.join(info)
            return
        proof = SameStore(
            self.store, self.clock, self.peers, session_timeout_seconds=self.coordinator.session_timeout_seconds
        )
        await proof.prove(partial(self._look, info.store))
        await self.drainer.join(replace(info, starting=True))
        self._check_store(info.store)
        await proof.prove(partial(self._elders, info.store))
        await self.drainer.join(info)

    async def _look(self, store: str) -> Sequence[BrokerInfo]:
        """Return the live brokers that may have that store, as a broker that has not joined sees them."""
        return [each for each in await self.coordinator.look() if each.store in ("", store)]

    async def _elders(self, store: str) -> Sequence[BrokerInfo]:
        """Return those that were announced before this one, once it has joined, and have not left since."""
        before = takewhile(lambda each: each.id != self.id, self.coordinator.by_age())
        return [each for each in before if each.store in ("", store)]

    def _called_at(self, url: str, peer_url: str) -> list[str]:
        """Return where other brokers may call this one: its answers count at no other address."""
        return ([url] if self.settings.serves_brokers_in_public else []) + ([peer_url] if peer_url else [])

    def _check_store(self, store: str) -> None:
        """Raise `InvalidConfig` if the cluster uses another store: others could not find segments given to us.

        The broker that joined first decides. So if several start at once with different stores, the first one goes on,
        and those with the same store. A broker with a wrong store cannot keep the others from starting.
        """
        eldest = next((broker for broker in self.coordinator.by_age() if broker.store), None)
        if eldest is not None and eldest.store != store:
            raise InvalidConfig(
                f"{eldest.id} of cluster {self.settings.cluster!r} at this ZooKeeper has another store than "
                f"{self.settings.store_url}: give all its brokers the same --store, or this one another --cluster"
            )

    @property
    def is_clustered(self) -> bool:
        """Whether there may be other brokers."""
        return self._clustered

    @property
    def readiness(self) -> Readiness:
        """Return whether requests are welcome, and what does not work."""
        return readiness(
            started=self._started,
            draining=self.draining.is_set(),
            stalls=self.store_health.stalls(),
            own_store=not self._clustered and self.store.uri(keys.CLUSTER).startswith("file:"),
            zookeeper=self.zookeeper_lost,
            clock=self.maintenance.deletions.problem,
        )

    @property
    def zookeeper_lost(self) -> str | None:
        """Return what it means to be out of touch with ZooKeeper; None if this broker is in touch, or needs none."""
        if not self._clustered or self.coordinator.in_touch():
            return None
        silent_seconds = self.clock.monotonic_seconds() - self.coordinator.seen_seconds
        return (
            f"ZooKeeper has not answered {self.id} for {max(silent_seconds, 0):.0f} s: no leader is known, so nothing "
            "is failed over, moved or split. Brokers go on with what they own, and acknowledge what is stored"
        )

    def _record_changed(self, name: str) -> None:
        """Read a topic's record that another broker has changed."""
        self.leader_loop.request_read(name)
        self.topics.record_changed(name)

    def _topic_applied(self, state: TopicState) -> None:
        self._wake_leader(state)
        self.groups.topic_changed(self.topics[state.topic].state)

    def _wake_leader(self, state: TopicState) -> None:
        """Pass a newer state to the leader's loop: a topic that it does not follow yet announces no changes."""
        if not self._clustered:
            self.scaling_controller.topic_changed(state.topic)
            self._record_read(self.topics[state.topic].state)
        elif (known := self.leader_loop.states.get(state.topic)) is None or known.version < state.version:
            self.leader_loop.request_read(state.topic)

    def _record_read(self, state: TopicState) -> None:
        """Without a cluster, finish what other brokers have begun."""
        if not self._clustered:
            self.repair.read(state)

    def _count_abandoned(self) -> None:
        for runtime in self.topics.values():
            runtime.count_abandoned()

    def _request_repair(self, name: str) -> None:
        self.repair.request(name)

    async def _take_over_topic(self, name: str, left: Set[int]) -> None:
        await self.repair.take_over(name, left)

    async def drain(self) -> None:
        """Hand over, accept nothing new, store what was accepted; see `Drainer.drain`."""
        await self.drainer.drain()
        self._drained = True

    def end_publishes(self) -> None:
        """Answer publishes that still wait, here and at other brokers: their outcomes are not known any more."""
        self.deadlines.end()
        self.forwarded_deadlines.end()

    async def close(self) -> None:
        """Stop everything, and release threads and connections.

        If it was drained, and nothing is on its way to the store, the store records that it has stopped.
        """
        self.draining.set()
        await self.repair.close()
        await self.patience.close()
        self.quotas.close()
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if self.audit is not None:
            await self.audit.close()
        await self.segment_counts.close()
        await self.groups.close()
        at_rest = self._drained and all(runtime.is_at_rest() for runtime in self.topics.values())
        ends = self._known_ends() if at_rest else {}
        await asyncio.gather(self.topics.close(), self.broadcast.close(), self._refusal_teller.close())
        # A request may have come in between: its messages on their way then may still reach the store.
        if at_rest and all(runtime.has_stored_all() for runtime in self.topics.values()):
            await self._note_stop(ends)
        await self.coordinator.leave()
        await self.peers.close()
        self.decode_pool.shutdown(wait=True)
        self._read_pool.shutdown(wait=True)
        self._upkeep_pool.shutdown(wait=True)
        await self.store.close()
        # A broker that could not start ends with one line, which has the reason.
        if self._started:
            _log.info("broker_stopped", broker=self.id)

    def _known_ends(self) -> Ends:
        """Return the known ends of open segments' logs; for topics that were not read, those of earlier stops."""
        unread = {name: dict(self.incarnation.ends_of(name)) for name in self.incarnation.topics - self.topics.keys()}
        running = {name: ends for name, runtime in self.topics.items() if (ends := runtime.known_ends())}
        return unread | running

    async def _note_stop(self, ends: Ends) -> None:
        """Record the stop. If that fails, the next start has to seal each topic that is used, and no more.

        Nor does it cost more if the store records it late, after this has given up waiting. Everything else of this
        process had ended before, so it is true at any time. It replaces the record only in the version that this
        process wrote at its start: once another process has started, it has no effect any more.
        """
        try:
            await asyncio.wait_for(self.incarnation.stopped(ends), STOP_NOTE_SECONDS)
        except (BraidError, TimeoutError) as error:
            _log.warning("stop_not_noted", broker=self.id, error=error)

    async def _stored_bytes(self, topics: Pattern) -> int:
        return await stored_bytes([runtime for runtime in self.topics.values() if topics.matches(runtime.topic)])

    def _share_with_cache(self, held_bytes: int) -> None:
        """Make the cache of files give its room to answers, above the share that they need all the time."""
        free_bytes = self.settings.read_bytes // FREE_OF_CACHE_SHARE
        self.segment_reader.limit_cache(self.settings.file_cache_bytes + free_bytes - held_bytes)

    async def reader(self, name: str, *, streaming: bool = False, room: ReadRoom | None = None) -> TopicReader:
        """Return a reader of that topic, or of that member of a topic group. Raises as `TopicRegistry.view`."""
        return self.reader_of(await self.topics.view(name), streaming=streaming, room=room)

    def reader_of(self, view: TopicView, *, streaming: bool = False, room: ReadRoom | None = None) -> TopicReader:
        """Return a reader of that view."""
        return TopicReader(view.runtime, self.segment_reader, streaming=streaming, room=room, member=view.member)


def _writer_settings(settings: BrokerSettings, traits: StoreTraits) -> WriterSettings:
    """Return how writers batch. If puts are billed, messages of an interval share a file; otherwise none waits."""
    interval = settings.flush_interval
    if interval is None:
        interval = BILLED_FLUSH_INTERVAL_SECONDS if traits.puts_are_billed else 0.0
    return WriterSettings(
        flush_bytes=settings.flush_bytes, flush_interval_seconds=interval, grace_seconds=settings.grace
    )


def _tls_of(
    addresses: CallAddresses, of_clients: ssl.SSLContext | None, of_brokers: ssl.SSLContext | None, url: str
) -> ssl.SSLContext | None:
    """Return the TLS context for calls to that URL."""
    return of_brokers if addresses.are_peer_only(url) else of_clients
