"""A transition executor with real collaborators, for tests that play its broker themselves."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from filer.clock import Clock
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import TopicState
from leader.membership.coordinator import Coordinator
from leader.membership.refusing_brokers import RefusingBrokers
from leader.traffic.traffic_table import TrafficTable
from mq.metrics.metrics import Metrics
from mq.peers.peers import Peers
from mq.replication.replica_buffers import ReplicaBuffers
from mq.topic.topic_registry import TopicRegistry
from mq.traffic.owner_traffic import OwnerTraffic
from mq.transitions.segment_placement import SegmentPlacement
from mq.transitions.segment_sealer import SegmentSealer
from mq.transitions.state_broadcast import StateBroadcast
from mq.transitions.transition_executor import TransitionExecutor


class FakeRegistry(dict[str, Any]):
    """Running topics that a test makes: `apply` hands a newer state to the test."""

    def __init__(self, apply: Callable[[TopicState], None], **topics: object) -> None:
        super().__init__(topics)
        self.apply = apply

    def traffic_of(self, name: str) -> Any:
        """As `TopicRegistry.traffic_of`."""
        return self[name].traffic if name in self else None


def executor_of(
    broker: str,
    *,
    store: Store,
    clock: Clock,
    coordinator: object,
    topics: FakeRegistry,
    peers: object = None,
    metrics: Metrics | None = None,
    table: TrafficTable | None = None,
    draining: asyncio.Event | None = None,
    on_unfinished: Callable[[str], None] = lambda topic: None,
) -> tuple[TransitionExecutor, SegmentPlacement]:
    """The executor of `broker` and its placement; nothing is replicated, and no averages are handed over."""
    cluster, others = cast(Coordinator, coordinator), cast(Peers, peers)
    running = cast(TopicRegistry, topics)
    table = table or TrafficTable()
    placement = SegmentPlacement(cluster, table, running, RefusingBrokers(1.0))
    executor = TransitionExecutor(
        clock=clock,
        catalogue=Catalogue(store, clock),
        coordinator=cluster,
        metrics=metrics or Metrics(),
        topics=running,
        draining=draining or asyncio.Event(),
        table=table,
        placement=placement,
        sealer=SegmentSealer(
            broker=broker,
            store=store,
            clock=clock,
            coordinator=cluster,
            peers=others,
            replicas=cast(ReplicaBuffers, None),
            topics=running,
            last_url_of=lambda each: None,
            recorded_end=lambda topic, segment: 0,
            grace_seconds=60.0,
        ),
        broadcast=StateBroadcast(broker=broker, coordinator=cluster, peers=others),
        owner_traffic=OwnerTraffic(
            broker=broker, peers=others, url_of=lambda each: f"http://{each}", traffic_of=running.traffic_of
        ),
        on_unfinished=on_unfinished,
    )
    return executor, placement
