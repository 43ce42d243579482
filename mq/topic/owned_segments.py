"""The segments of one topic that this broker owns: their writers, and their newest messages in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from filer.event_log import EventLog
from filer.segment.inheritance import handed_over
from filer.segment.next_file import Accepted, join
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.segment.writer.ownership_proof import TopicRecordChecks
from filer.segment.writer.replicated_acks import Replication
from filer.segment.writer.segment_writer import SegmentWriter, StoredFile
from filer.topic.topic_state import Segment, TopicState
from mq.limits.front_store import Tail
from mq.metrics.topic_families import BYTES_STORED, FILES_STORED, MESSAGES_STORED, SEGMENTS_LOST
from mq.replication.followers import Followers
from mq.replication.replication_lease import ReplicationLease
from mq.topic.segment_indexes import SegmentIndexes
from mq.topic.topic_services import TopicServices
from mq.topic.wakeup import Wakeup
from mq.traffic.topic_traffic import TopicTraffic

_log = EventLog(__name__)


class OwnedSegments:
    """Writers and tails by segment id. All methods belong to the event loop's thread.

    `news` wakes when messages become readable. `refresh` reads the topic's record. `inherit` gives the producer windows
    that a segment has from its predecessors. `on_lost` is called when a writer has stopped before its segment was
    sealed.
    """

    def __init__(
        self,
        services: TopicServices,
        state: TopicState,
        *,
        ref: Callable[[int], SegmentRef],
        indexes: SegmentIndexes,
        traffic: TopicTraffic,
        news: Wakeup,
        refresh: Callable[[], Awaitable[None]],
        inherit: Callable[[Segment], Awaitable[ProducerWindows]],
        on_lost: Callable[[], None],
    ) -> None:
        self.writers: dict[int, SegmentWriter] = {}
        self.tails: dict[int, Tail] = {}
        self.lease = ReplicationLease(services.coordinator, refresh, on_valid=self._answer_held)
        self._services, self._state, self._ref, self._indexes = services, state, ref, indexes
        self._traffic, self._news, self._inherit, self._on_lost = traffic, news, inherit, on_lost
        self._series = services.metrics.topics.of(state.topic)
        self._closing = False

    def apply(self, state: TopicState) -> None:
        """Take over a newer state, before writers are opened by it: end what others have sealed."""
        self._state = state
        for segment in state.segments:
            if segment.state == "sealed":
                self._note_sealed(segment)

    def open_writers(self) -> None:
        """Open a writer for each open segment of this broker that has none, from offset 0 on.

        This process is the only one that ever writes a segment it owns (the broker's id carries the incarnation). So a
        segment without a writer here has no file yet: there is nothing to ask the store for.
        """
        for segment in self._state.open_segments:
            if segment.owner == self._services.broker and segment.id not in self.writers:
                self._open_writer(segment)

    def forget(self, segment_id: int) -> None:
        """The topic has no such segment any more."""
        self.tails.pop(segment_id, None)
        self.writers.pop(segment_id, None)

    def pending_bytes(self, segment_id: int) -> int:
        """The bytes of a segment that wait here to be stored."""
        writer = self.writers.get(segment_id)
        return 0 if writer is None else writer.pending_bytes

    def count_abandoned(self) -> None:
        """As `TopicRuntime.count_abandoned`."""
        for writer in self.writers.values():
            writer.count_abandoned()

    async def flush(self) -> None:
        """Wait until everything accepted so far is stored or has failed."""
        await asyncio.gather(*(writer.flush() for writer in self.writers.values()))

    async def close(self) -> None:
        """Stop all writers. Messages that they have not stored fail."""
        self._closing = True
        await asyncio.gather(self.lease.close(), *(writer.close() for writer in self.writers.values()))

    def _open_writer(self, segment: Segment) -> None:
        services = self._services
        index = SegmentIndex()
        if (windows := handed_over(self._state, segment, self._indexes.known)) is not None:
            index.inherit(windows)
        self._indexes.put(segment.id, index)
        self.tails[segment.id] = Tail(0)

        async def recorded() -> Segment | None:
            record = await services.catalogue.read(self._state.topic)
            return None if record is None else record.state.segment(segment.id)

        async def exists() -> bool:
            return await recorded() is not None

        async def is_open_and_ours() -> bool:
            newest = await recorded()
            return newest is not None and newest.state == "open" and newest.owner == services.broker

        self.writers[segment.id] = SegmentWriter(
            services.writer_context,
            self._ref(segment.id),
            index,
            checks=TopicRecordChecks(exists, is_open_and_ours),
            on_stored=self._stored,
            on_stopped=self._lost,
            inherit=partial(self._inherit, segment),
            replication=self._replication(segment),
            awaited=bool(segment.predecessors),
            on_unstored=services.front_store.grow,
        )

    def _replication(self, segment: Segment) -> Replication | None:
        """How a segment of this broker is replicated; None if it has no followers."""
        services, followers = self._services, segment.brokers[1:]
        if not followers:
            return None
        return Replication(
            Followers(
                self._ref(segment.id),
                followers,
                self._state.version,
                clock=services.clock,
                peers=services.peers,
                last_url_of=services.last_url_of,
            ),
            partial(self._may_acknowledge_replicated, segment.id),
            self._replicated,
            services.front_store.grow,
        )

    def _may_acknowledge_replicated(self, segment_id: int) -> bool:
        """Whether messages of a segment that all its followers hold are as safe as stored ones."""
        segment, under_way = self._state.segment(segment_id), self._state.transition
        if segment is None or segment.state != "open" or (under_way is not None and segment_id in under_way.seal):
            return False
        return self.lease.is_valid()

    def _answer_held(self) -> None:
        for writer in self.writers.values():
            writer.answer_held()

    def _replicated(self, segment_id: int, held: Sequence[Accepted]) -> None:
        """All followers hold these messages: readers get them before they are stored."""
        tail = self.tails.get(segment_id)
        if tail is not None and held[0].base == tail.end:
            table = join(self._ref(segment_id), held, tail.end)
            self._services.front_store.keep(tail, table, sum(each.size_bytes for each in held))
            self._news.wake()

    def _note_sealed(self, segment: Segment) -> None:
        """All messages of the segment are on the store: nothing held here is needed, and nothing beyond may be read."""
        if (writer := self.writers.get(segment.id)) is not None:
            writer.note_sealed()
        tail = self.tails.get(segment.id)
        if tail is not None and segment.end_offset is not None and tail.end > segment.end_offset:
            self.tails[segment.id] = Tail(segment.end_offset)

    def _stored(self, stored: StoredFile) -> None:
        tail = self.tails[stored.segment]
        if (known := tail.end - stored.facts.base) < stored.table.num_rows:
            self._services.front_store.keep(tail, stored.table.slice(known), stored.pending_bytes)
        self._traffic.count(stored.segment, stored.table, stored.pending_bytes)
        self._series.count(MESSAGES_STORED, stored.table.num_rows)
        self._series.count(FILES_STORED)
        self._series.count(BYTES_STORED, stored.facts.size_bytes)
        self._services.metrics.upkeep.file_bytes.observe(stored.facts.size_bytes)
        self._news.wake()

    def _lost(self, segment_id: int, why: Exception) -> None:
        if not self._closing:
            _log.warning("segment_lost", topic=self._state.topic, segment=segment_id, error=why)
            self._series.count(SEGMENTS_LOST)
        self._news.wake()
        self._on_lost()
