"""One topic as a broker runs it: its state, and its parts for publishing, reading and writing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set

from filer import keys
from filer.event_log import EventLog
from filer.segment.inheritance import handed_over, read_inherited
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, check_end
from filer.segment.writer.segment_writer import SegmentWriter
from filer.stores.store_time import Moment
from filer.topic.topic_schema import schema_of
from filer.topic.topic_state import Segment, TopicState
from mq.base.single_flight import SingleFlight
from mq.forwarding.remote_segments import RemoteSegments
from mq.metrics.topic_families import OPEN_SEGMENTS, SNAPSHOTS_REBUILT
from mq.topic.lost_objects import LostObjects
from mq.topic.owned_segments import OwnedSegments
from mq.topic.routing import NO_OWNER, Appender
from mq.topic.segment_indexes import SegmentIndexes
from mq.topic.topic_publisher import TopicPublisher
from mq.topic.topic_reads import TopicReads
from mq.topic.topic_services import TopicServices
from mq.topic.topic_state_watch import TopicStateWatch
from mq.topic.wakeup import Wakeup
from mq.traffic.topic_traffic import TopicTraffic

_log = EventLog(__name__)


class TopicRuntime:
    """A topic's running state in this process. All methods belong to the event loop's thread.

    `publisher` stores messages, `reads` answers readers, `traffic` counts both, `series` reports to Prometheus. `lost`
    has what cannot be read. `on_lost` is called with the topic's name when a writer has stopped before its segment was
    sealed. `on_read` is called with the state whenever the record was read again. `take_over` makes this broker take
    over a topic's segments that have no owner, and those that it gets. `created`: this process has just created the
    topic (`Catalogue.create`).
    """

    def __init__(
        self,
        services: TopicServices,
        state: TopicState,
        created: Moment | None = None,
        *,
        on_lost: Callable[[str], None],
        on_read: Callable[[TopicState], None] = lambda state: None,
        take_over: Callable[[str, Set[int]], Awaitable[None]],
    ) -> None:
        self.state, self.schema = state, schema_of(state)
        self._services, self._take_over, self._on_read = services, take_over, on_read
        self._news = Wakeup()
        self._refresh = SingleFlight(self._read_record, services.clock, name=f"read the record of {state.topic}")
        self._watch = TopicStateWatch(services.clock, self.refresh)
        self.series = services.metrics.topics.of(state.topic)
        self.lost = LostObjects(state.topic, self.ref, self.series)
        self._indexes = SegmentIndexes(
            services.store,
            services.clock,
            self.ref,
            self.lost.note,
            on_rebuilt=self._snapshot_rebuilt,
            refresh=self.refresh,
        )
        self._remote = RemoteSegments(
            clock=services.clock,
            peers=services.peers,
            url_of=services.url_of,
            front_store=services.front_store,
            on_moved=self._reroute,
            on_news=self._news.wake,
            on_forwarded=services.metrics.requests.forward.observe,
        )
        self.traffic = TopicTraffic(services.clock, services.broker, self._pending_bytes)
        self._make_owned(on_lost, created)
        self._make_reads()
        self._make_publisher()
        self._open_writers()

    def _make_owned(self, on_lost: Callable[[str], None], created: Moment | None) -> None:
        self._owned = OwnedSegments(
            self._services,
            self.state,
            ref=self.ref,
            indexes=self._indexes,
            traffic=self.traffic,
            news=self._news,
            refresh=self.refresh,
            inherit=self.inherited,
            on_lost=lambda: on_lost(self.topic),
            created=created,
        )

    def _make_reads(self) -> None:
        self.reads = TopicReads(
            self.state,
            clock=self._services.clock,
            clustered=self._services.clustered,
            ref=self.ref,
            owned=self._owned,
            remote=self._remote,
            indexes=self._indexes,
            traffic=self.traffic,
            news=self._news,
            metrics=self._services.metrics,
        )

    def _make_publisher(self) -> None:
        services = self._services
        self.publisher = TopicPublisher(
            self.state,
            broker=services.broker,
            clock=services.clock,
            clustered=services.clustered,
            appender_of=self._appender_of,
            watch=self._watch,
            deadlines=services.deadlines,
            fault_of=services.faults.fault_of,
            check_end=self._check_end,
            take_up=self.take_up,
        )

    @property
    def topic(self) -> str:
        """Its name."""
        return self.state.topic

    @property
    def writers(self) -> Mapping[int, SegmentWriter]:
        """The writers of segments that this broker owns or owned, by segment id."""
        return self._owned.writers

    @property
    def changes(self) -> tuple[int, int]:
        """A value that changes with each event in the topic: its record has changed, or files were stored here."""
        return self.state.version, self.traffic.files

    def ref(self, segment_id: int) -> SegmentRef:
        """Return the filer's name of a segment."""
        segment = self.state.segment(segment_id)
        if segment is not None:
            return SegmentRef.of(self.state, segment)
        return SegmentRef(self.topic, segment_id, self.schema)

    def apply(self, state: TopicState) -> None:
        """Apply a newer state: open writers for new segments of this broker, and wake all waiting tasks."""
        if state.version <= self.state.version:
            return
        before, self.state, self.schema = self.state, state, schema_of(state)
        self.reads.apply(state)
        self._give_up(before)
        present = {segment.id for segment in state.segments}
        for segment_id in [i for i in self._indexes.known if i not in present]:
            self._indexes.forget(segment_id)
            self._owned.forget(segment_id)
            self._remote.forget(segment_id)
            self.lost.forget(segment_id)
        for segment in state.segments:
            if segment.state == "sealed":
                self._remote.forget(segment.id)
        self._owned.apply(state)
        self._services.replica_buffers.keep_only(self.topic, {segment.id for segment in state.open_segments})
        self._open_writers()
        self._watch.broadcast()
        self._news.wake()

    def _give_up(self, before: TopicState) -> None:
        """Apply what was given up since that state (`mq topic repair`)."""
        for segment in self.state.segments:
            known = before.segment(segment.id)
            if segment.given_up and (known is None or known.given_up != segment.given_up):
                writer = self.writers.get(segment.id)
                is_written_here = writer is not None and not writer.has_stopped
                self._indexes.give_up(segment.id, is_written_here=is_written_here)

    async def refresh(self) -> None:
        """Read topic.json again: another process may have changed it. Concurrent callers share one read."""
        await self._refresh()

    async def inherited(self, segment: Segment) -> ProducerWindows:
        """Return the producer windows that a segment has from its predecessors. Raises as `read_inherited`."""
        windows = handed_over(self.state, segment, self._indexes.known)
        if windows is not None:
            return windows
        return await read_inherited(self._services.store, self._services.catalogue, self.topic, segment, self.state)

    async def history_from(self, segment_id: int) -> list[Segment]:
        """Return that segment, which has left topic.json, and perhaps some later ones, as they were then.

        Raises `StoreError`, and `UnreadableObject` for a part of the history that is damaged.
        """
        return await self._services.catalogue.read_history(self.topic, after=segment_id - 1, limit=1)

    async def take_up(self, segment_ids: Sequence[int]) -> bool:
        """Write these open segments here, in a broker without a cluster; returns whether there is anything new now.

        This broker goes on with its own. Segments without an owner, and those that it cannot go on with, are sealed and
        get successors. Raises `BraidError`.
        """
        wanted, version = [i for i in segment_ids if i not in self.writers], self.state.version
        own = {segment.id: segment for segment in self.dormant()}
        went_on = await asyncio.gather(*(self._owned.go_on(own[i]) for i in wanted if i in own))
        if left := [i for i in wanted if i not in self.writers]:
            await self._take_over(self.topic, set(left) & own.keys())
        self.publisher.reroute()
        # Segments of another live broker are not taken over: the caller must not try that again and again.
        return bool(wanted) and (any(went_on) or self.state.version != version)

    async def go_on(self, segment: Segment) -> bool:
        """Go on with a segment of an earlier process; returns whether that is possible. Raises `BraidError`."""
        goes_on = await self._owned.go_on(segment)
        if goes_on:
            self.publisher.reroute()
        return goes_on

    def dormant(self) -> list[Segment]:
        """Return open segments of this broker that it has not gone on with since its start."""
        return self._owned.without_writer()

    def went_on(self, segment_id: int) -> bool:
        """Whether an earlier process has written files of a segment that is written here."""
        return self._owned.went_on(segment_id)

    def is_at_rest(self) -> bool:
        """Whether no transition is under way, and nothing that this broker writes is on its way to the store."""
        return self._owned.is_at_rest()

    def has_stored_all(self) -> bool:
        """After `close`: whether nothing that was accepted may still reach the store."""
        return self._owned.has_stored_all()

    def known_ends(self) -> dict[int, int]:
        """Return the offsets that open segments are known to have reached, as far as that is more than 0."""
        before, known = self._services.incarnation.ends_of(self.topic), self._indexes.known
        ends = {
            segment.id: max(before.get(segment.id, 0), known[segment.id].end if segment.id in known else 0)
            for segment in self.state.open_segments
        }
        return {segment_id: end for segment_id, end in ends.items() if end}

    def last_word(self, segment_id: int) -> Awaitable[None] | None:
        """Return what must be awaited before an open segment of this broker is sealed; None if there is nothing.

        It never fails, and takes `LAST_WORD_SECONDS` at most (see `SegmentObserver.before_seal`).
        """
        return self._owned.last_word(segment_id)

    def last_words(self) -> list[Awaitable[None]]:
        """Return the same for all segments that are open here, before this broker ends."""
        return [word for i in self.writers if (word := self.last_word(i)) is not None]

    def adopt_index(self, segment_id: int, index: SegmentIndex) -> None:
        """Use an index that another component of this process has recovered or sealed."""
        self._indexes.put(segment_id, index)

    def count_abandoned(self) -> None:
        """Count the bytes of messages that wait to be stored, and whose publishers wait no longer."""
        self._owned.count_abandoned()
        self._remote.count_abandoned()

    async def flush(self) -> None:
        """Wait until everything accepted so far is stored or has failed."""
        await self._owned.flush()
        self._news.wake()

    async def close(self) -> None:
        """Stop all writers. Messages that they have not stored fail."""
        await asyncio.gather(
            self._owned.close(), self._watch.close(), self._remote.close(), self._indexes.close(), self._refresh.close()
        )
        self._news.wake()

    async def _read_record(self) -> None:
        record = await self._services.catalogue.read(self.topic)
        if record is not None:
            self.apply(record.state)
            self._on_read(self.state)

    def _open_writers(self) -> None:
        """Write, measure and route by the current state."""
        self.traffic.apply(self.state)
        self._owned.open_writers()
        for segment in self.state.segments:
            # Successors in this broker have its producer windows by now; those at other brokers read the seal.
            if segment.state == "sealed" and (index := self._indexes.known.get(segment.id)) is not None:
                index.forget_windows()
        self.publisher.apply(self.state)
        self._show()

    def _show(self) -> None:
        """Keep series for Prometheus as long as the topic exists."""
        if self.state.deleted:
            self.series.close()
        else:
            self.series.open()
            owned = sum(segment.owner == self._services.broker for segment in self.state.open_segments)
            self.series.set(OPEN_SEGMENTS, owned)

    def _snapshot_rebuilt(self, segment_id: int) -> None:
        key = keys.index_snapshot(self.topic, segment_id)
        _log.warning("snapshot_rebuilt", topic=self.topic, segment=segment_id, key=key)
        self.series.count(SNAPSHOTS_REBUILT)

    def _reroute(self) -> None:
        self.publisher.reroute()

    def _appender_of(self, segment: Segment) -> Appender:
        writer = self._owned.writers.get(segment.id)
        if writer is None and not self._services.clustered:
            return NO_OWNER  # until a request publishes to it: see `take_up`
        return writer or self._remote.forward(self.ref(segment.id), segment, self.state.version)

    async def _check_end(self, segment_id: int) -> None:
        """Raise `CorruptFile` if the segment cannot be sealed, and so has no owner: its last file is damaged."""
        check_end(self.ref(segment_id), await self.reads.index(segment_id))

    def _pending_bytes(self, segment_id: int) -> int:
        return self._owned.pending_bytes(segment_id)
