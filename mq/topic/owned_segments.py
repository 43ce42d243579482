"""The segments of one topic that this broker owns: their writers, and their newest messages in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from filer.event_log import EventLog
from filer.keys import FileName
from filer.segment.inheritance import handed_over
from filer.segment.later_table import table_of
from filer.segment.next_file import Accepted, join
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, has_no_other_name
from filer.segment.writer.ownership_proof import TopicRecordChecks
from filer.segment.writer.replicated_acks import Replication
from filer.segment.writer.segment_writer import SegmentWriter, StoredFile
from filer.stores.store_time import Moment, age_seconds, moment
from filer.topic.topic_state import Segment, TopicState
from mq.limits.front_store import Tail
from mq.metrics.topic_families import BYTES_STORED, FILES_STORED, MESSAGES_STORED, SEGMENTS_LOST
from mq.replication.followers import Followers
from mq.replication.replication_lease import ReplicationLease
from mq.topic.segment_indexes import SegmentIndexes
from mq.topic.segment_observer import ObservedSegments
from mq.topic.topic_services import TopicServices
from mq.topic.wakeup import Wakeup
from mq.traffic.topic_traffic import TopicTraffic

_log = EventLog(__name__)


class OwnedSegments:
    """Writers and tails by segment id. All methods belong to the event loop's thread.

    `news` wakes when messages become readable. `refresh` reads the topic's record. `inherit` returns the producer
    windows that a segment has from its predecessors. `on_lost` is called when a writer has stopped before its segment
    was sealed. `created`: this process has just created the topic, as of that moment (`Catalogue.create`).
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
        created: Moment | None = None,
    ) -> None:
        self.writers: dict[int, SegmentWriter] = {}
        self.tails: dict[int, Tail] = {}
        self.lease = ReplicationLease(services.coordinator, refresh, on_valid=self._answer_held)
        self._services, self._state, self._ref, self._indexes = services, state, ref, indexes
        self._refresh = refresh
        self._traffic, self._news, self._inherit, self._on_lost = traffic, news, inherit, on_lost
        self._series = services.metrics.topics.of(state.topic)
        self._closing = False
        observer = services.observers.get(state.topic)
        self._observed = None if observer is None else ObservedSegments(state.topic, observer, services.clock)
        # An earlier process may have written segments below this one as the same incarnation.
        resumed = services.incarnation.resumed and created is None
        self._first_of_this_process = state.next_segment if resumed else 0
        self._created, self._first_of_others = created, state.next_segment
        self._going_on: dict[int, asyncio.Task[bool]] = {}
        self._went_on: set[int] = set()

    def apply(self, state: TopicState) -> None:
        """Apply a newer state, before writers are opened by it: end the segments that others have sealed."""
        self._state = state
        for segment in state.segments:
            if segment.state == "sealed":
                self._note_sealed(segment)

    def open_writers(self) -> None:
        """Open a writer for each open segment that was opened in this process's life, from offset 0 on.

        This process is the only one that has written such a segment (the broker's id carries the incarnation, and only
        one process at a time has it). So there is no file yet, and nothing to ask the store for. A segment of an
        earlier process of the same incarnation waits for `go_on`.

        If this process created the topic, that is a proof for its first segments, as of then. The record named them as
        open and ours from its creation on. Nothing of the topic was there, so none of their names can have been
        superseded before. The proof is in memory alone: another process that finds the topic looks by itself.
        """
        for segment in self.without_writer():
            if segment.id >= self._first_of_this_process:
                self._open_writer(segment, proven=self._created if segment.id < self._first_of_others else None)

    def without_writer(self) -> list[Segment]:
        """Return this broker's open segments that have no writer yet, and which no transition seals."""
        under_way = self._state.transition
        sealing = () if under_way is None else under_way.seal
        return [
            segment
            for segment in self._state.open_segments
            if segment.owner == self._services.broker and segment.id not in self.writers and segment.id not in sealing
        ]

    def went_on(self, segment_id: int) -> bool:
        """Whether an earlier process has written files of the segment."""
        return segment_id in self._went_on

    async def go_on(self, segment: Segment) -> bool:
        """Go on with a segment of an earlier process, as the same incarnation; returns whether that is possible.

        It is not if the segment was sealed, or if its last file is damaged. Concurrent callers share one look. Raises
        `BraidError`.
        """
        task = self._going_on.get(segment.id)
        if task is None:
            task = asyncio.create_task(self._go_on(segment), name=f"go on with {self._state.topic}/{segment.id}")
            self._going_on[segment.id] = task
            task.add_done_callback(partial(self._has_gone_on, segment.id))
        return await asyncio.shield(task)

    async def _go_on(self, segment: Segment) -> bool:
        """Look at the record and at the end of the log, then open the writer.

        Stopped anywhere, nothing has happened to the segment. It is safe even if another process writes it: the second
        process to put a file of that name stores nothing, and stops.
        """
        services, store = self._services, self._services.store
        await store.tell_time()
        looked = moment(store.time, services.clock)
        newest = await self._recorded(segment.id)
        if newest is None or newest.state != "open" or newest.owner != services.broker:
            await self._refresh()
            return False
        index = await self._indexes.read_anew(newest, services.incarnation.end_of(self._state.topic, segment.id))
        if index.sealed or index.blocked is not None:
            return False
        if self._closing or segment.id not in {each.id for each in self.without_writer()}:
            return segment.id in self.writers
        # Nothing is awaited from here on.
        is_fresh = age_seconds(store.time, services.clock, looked) <= services.writer_context.settings.grace_seconds / 2
        self._went_on.add(segment.id)
        self._open_writer(newest, index, proven=looked if is_fresh else None)
        return True

    def _has_gone_on(self, segment_id: int, task: "asyncio.Task[bool]") -> None:
        self._going_on.pop(segment_id, None)
        if not task.cancelled():
            task.exception()  # the callers have got it

    def is_at_rest(self) -> bool:
        """Whether nothing of this broker's writers of open segments is on its way to the store."""
        return self._state.transition is None and all(writer.is_at_rest for writer in self._writers_of_open_segments())

    def has_stored_all(self) -> bool:
        """Whether everything accepted for open segments is stored; after `close`, that nothing of it comes later."""
        return all(writer.has_stored_all for writer in self._writers_of_open_segments())

    def _writers_of_open_segments(self) -> list[SegmentWriter]:
        opened = {segment.id for segment in self._state.open_segments}
        return [writer for segment_id, writer in self.writers.items() if segment_id in opened]

    def forget(self, segment_id: int) -> None:
        """Forget a segment that the topic has no longer."""
        self.tails.pop(segment_id, None)
        self.writers.pop(segment_id, None)
        if self._observed is not None:
            self._observed.forget(segment_id)

    def pending_bytes(self, segment_id: int) -> int:
        """The bytes of a segment that wait here to be stored."""
        writer = self.writers.get(segment_id)
        return 0 if writer is None else writer.pending_bytes

    def last_word(self, segment_id: int) -> Awaitable[None] | None:
        """As `TopicRuntime.last_word`."""
        writer = self.writers.get(segment_id)
        if self._observed is None or writer is None or not writer.is_open:
            return None
        return self._observed.last_word(segment_id)

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
        going_on = list(self._going_on.values())
        for task in going_on:
            task.cancel()
        await asyncio.gather(*going_on, return_exceptions=True)
        if self._observed is not None:
            await self._observed.close()
        await asyncio.gather(self.lease.close(), *(writer.close() for writer in self.writers.values()))

    async def _recorded(self, segment_id: int) -> Segment | None:
        record = await self._services.catalogue.read(self._state.topic)
        return None if record is None else record.state.segment(segment_id)

    def _open_writer(
        self, segment: Segment, index: SegmentIndex | None = None, *, proven: Moment | None = None
    ) -> None:
        services = self._services
        index = SegmentIndex() if index is None else index
        if not index.inherited and (windows := handed_over(self._state, segment, self._indexes.known)) is not None:
            index.inherit(windows)
        self._indexes.put(segment.id, index)
        self.tails[segment.id] = Tail(index.end)

        async def exists() -> bool:
            return await self._recorded(segment.id) is not None

        async def is_open_and_ours() -> bool:
            newest = await self._recorded(segment.id)
            ours = newest is not None and newest.state == "open" and newest.owner == services.broker
            # Without a cluster, the record alone does not show that no other process has rolled the segment up: another
            # process may have taken this one for dead, or may be the same incarnation by an older record. The first
            # file is not deleted before a roll-up or a later file stands beside it, so no other name shows it.
            first, ref = FileName(0), self._ref(segment.id)
            return ours and (services.clustered or await has_no_other_name(services.store, ref, first))

        writer = self.writers[segment.id] = SegmentWriter(
            services.writer_context_of(self._state.topic),
            self._ref(segment.id),
            index,
            checks=TopicRecordChecks(exists, is_open_and_ours),
            on_stored=self._stored,
            on_stopped=self._lost,
            inherit=partial(self._inherit, segment),
            replication=self._replication(segment),
            awaited=bool(segment.predecessors) and segment.id not in self._went_on,
            proven=proven,
            on_unstored=services.front_store.grow,
        )
        if self._observed is not None:
            self._observed.opened(segment.id, writer)

    def _replication(self, segment: Segment) -> Replication | None:
        """Return how a segment of this broker is replicated; None if it has no followers."""
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
        """Make these messages readable before they are stored, since all followers hold them."""
        tail = self.tails.get(segment_id)
        if tail is not None and held[0].base == tail.end:
            table = join(self._ref(segment_id), held, tail.end)
            self._services.front_store.keep(tail, table, sum(each.size_bytes for each in held))
            self._news.wake()

    def _note_sealed(self, segment: Segment) -> None:
        """Drop and hide messages: all of the segment are on the store, and nothing beyond may be read."""
        if (writer := self.writers.get(segment.id)) is not None:
            writer.note_sealed()
        tail = self.tails.get(segment.id)
        if tail is not None and segment.end_offset is not None and tail.end > segment.end_offset:
            self.tails[segment.id] = Tail(segment.end_offset)

    def _stored(self, stored: StoredFile) -> None:
        tail = self.tails[stored.segment]
        rows, count = stored.rows, stored.rows.num_rows
        if (known := tail.end - stored.facts.base) < count:
            new = table_of(rows).slice(known) if known else rows
            self._services.front_store.keep(tail, new, stored.pending_bytes)
        self._traffic.count(stored.segment, rows, stored.pending_bytes)
        self._series.count(MESSAGES_STORED, count)
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
