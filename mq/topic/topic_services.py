"""The components of a broker that its running topics share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from filer.clock import Clock
from filer.keys import is_internal
from filer.segment.writer.segment_writer import WriterContext
from filer.stores.store import Store
from filer.topic.catalogue import Catalogue
from filer.topic.incarnation import Incarnation
from leader.membership.coordinator import Coordinator
from mq.limits.front_store import FrontStore
from mq.metrics.metrics import Metrics
from mq.peers.peers import Peers
from mq.replication.replica_buffers import ReplicaBuffers
from mq.topic.publish_deadlines import PublishDeadlines
from mq.topic.segment_observer import SegmentObserver
from mq.topic.topic_faults import TopicFaults

INTERNAL_TRICKLE = 2.8
"""The brokers' own topics write small files this many times less often than others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicServices:
    """What the topics of one broker share. `broker` is its id, incarnation included.

    `url_of` returns the address of a live broker, `last_url_of` also the last one of a broker that is gone; both return
    None if no address is known. `observers` has the observers of topics' segments, by the topic's name.
    """

    broker: str
    incarnation: Incarnation
    store: Store
    clock: Clock
    catalogue: Catalogue
    coordinator: Coordinator
    peers: Peers
    url_of: Callable[[str], str | None]
    last_url_of: Callable[[str], str | None]
    front_store: FrontStore
    replica_buffers: ReplicaBuffers
    metrics: Metrics
    faults: TopicFaults
    writer_context: WriterContext
    deadlines: PublishDeadlines
    observers: Mapping[str, SegmentObserver] = field(default_factory=dict)

    def writer_context_of(self, topic: str) -> WriterContext:
        """Return what the writers of a topic share.

        The records of groups are a trickle day and night. They would cause four puts a second where puts cost money.
        """
        if not is_internal(topic):
            return self.writer_context
        settings = self.writer_context.settings
        factor = settings.trickle_factor * INTERNAL_TRICKLE
        return replace(self.writer_context, settings=replace(settings, trickle_factor=factor))

    @property
    def clustered(self) -> bool:
        """Whether there may be other brokers."""
        return self.coordinator.session_timeout_seconds > 0
