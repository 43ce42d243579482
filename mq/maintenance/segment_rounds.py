"""Roll-ups, snapshots and deletions, segment by segment."""

import math
from collections.abc import Iterator

import pyarrow as pa

from filer.errors import CorruptFile, ObjectNotFound, SegmentMoved
from filer.event_log import EventLog
from filer.segment.segment_index import SegmentIndex
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import Segment
from filer.upkeep.segment_upkeep import SegmentUpkeep, UpkeepContext
from leader.membership.coordinator import Coordinator
from leader.policy.placement import maintainer
from mq.metrics.metrics import Metrics
from mq.metrics.topic_families import ROLLUPS, TOPIC_BYTES
from mq.topic.topic_reads import REMOTE_INDEX_SECONDS
from mq.topic.topic_registry import TopicRegistry
from mq.topic.topic_runtime import TopicRuntime

FIRST_INDEXES_PER_ROUND = 16

_log = EventLog(__name__)


class SegmentRounds:
    """The upkeep of each segment that this broker maintains: its own open segments, and sealed ones of its topics.

    In a broker without a cluster an open segment may have no owner: it is sealed when its topic is used, which may be
    never. It is kept up like a sealed one, by what the store showed of it; so is a segment that this broker cannot go
    on with. That is safe although its owner may be alive: an owner does not acknowledge by a superseded name
    (`OwnedSegments`).
    """

    def __init__(
        self, context: UpkeepContext, catalogue: Catalogue, coordinator: Coordinator, metrics: Metrics
    ) -> None:
        self._context, self._catalogue, self._coordinator, self._metrics = context, catalogue, coordinator, metrics
        self._upkeeps: dict[tuple[str, int], SegmentUpkeep] = {}
        self._first_indexes_left = 0
        # Segments whose index named missing files, and was read again.
        self._stale: set[tuple[str, int]] = set()
        # Segments of an earlier process of this incarnation that this one could not go on with.
        self._left: set[tuple[str, int]] = set()

    def begin_round(self) -> None:
        """Allow reading a few more indexes of segments that earlier runs of this broker left behind."""
        self._first_indexes_left = FIRST_INDEXES_PER_ROUND

    def is_maintainer(self, runtime: TopicRuntime) -> bool:
        """Whether this broker maintains the unowned segments of a topic.

        Two brokers may both think so. Then they do the same work twice, without harm: each step is a conditional put,
        or deletes objects without references.
        """
        return maintainer(self._coordinator.brokers(), runtime.topic) == self._context.broker

    def maintained(self, runtime: TopicRuntime) -> Iterator[Segment]:
        """Yield our own open segments, and if we maintain the topic, sealed ones and open ones without a writer."""
        maintains, alone = self.is_maintainer(runtime), self._coordinator.session_timeout_seconds <= 0
        for segment in runtime.state.segments:
            writer = runtime.writers.get(segment.id)
            if segment.state == "open" and writer is not None:
                if not writer.has_stopped:
                    yield segment
            elif maintains and (segment.state == "sealed" or (alone and self._is_left(runtime, segment))):
                yield segment

    def left_open(self, runtime: TopicRuntime) -> list[Segment]:
        """Return the open segments without a writer until their topic is used: only without a cluster are there any."""
        return [each for each in self.maintained(runtime) if each.state == "open" and each.id not in runtime.writers]

    def _is_left(self, runtime: TopicRuntime, segment: Segment) -> bool:
        """Whether an open segment has no writer until its topic is used."""
        return segment.owner != self._context.broker or (runtime.topic, segment.id) in self._left

    def invalidate(self, topic: str) -> int:
        """Make the next round read what other programs have written. Returns how many segments are maintained here."""
        upkeeps = [upkeep for (name, _), upkeep in self._upkeeps.items() if name == topic]
        for upkeep in upkeeps:
            upkeep.invalidate()
        _log.info("compaction_announced", topic=topic, segments=len(upkeeps))
        return len(upkeeps)

    async def go_on(self, runtime: TopicRuntime) -> None:
        """Go on with segments of an earlier process of this incarnation, a few a round: then they are maintained.

        If that fails for one, it is not tried again here, but when its topic is used.
        """
        for segment in runtime.dormant():
            key = (runtime.topic, segment.id)
            if key not in self._left and self._first_indexes_left:
                self._first_indexes_left -= 1
                if not await runtime.go_on(segment):
                    self._left.add(key)

    def all_read(self, runtime: TopicRuntime) -> bool:
        """Whether retention can judge a topic without reading more than a round allows.

        In a broker without a cluster, the indexes of all open segments are at hand once this many rounds have passed.
        """
        if self._coordinator.session_timeout_seconds > 0:
            return True
        return all(
            segment.id in runtime.writers or (runtime.topic, segment.id) in self._upkeeps
            for segment in runtime.state.open_segments
        )

    async def prepare(self, runtime: TopicRuntime, segment: Segment) -> None:
        """Make a segment's index available. A round reads only a few indexes of segments from earlier runs."""
        key = (runtime.topic, segment.id)
        writer = runtime.writers.get(segment.id)
        is_ours = writer is not None and not writer.has_stopped
        if key not in self._upkeeps and not is_ours:
            if not self._first_indexes_left:
                return
            self._first_indexes_left -= 1
        known = self._upkeeps.get(key)
        index = await runtime.reads.index(segment.id, longest_seconds=self._longest_seconds(segment, known))
        if known is None or known.index is not index or known.ref != runtime.ref(segment.id):
            born_here = writer is not None and not writer.has_stopped and writer.index is index
            born_here = born_here and not runtime.went_on(segment.id)
            self._upkeeps[key] = self._upkeep(runtime, segment.id, index, born_here=born_here)

    def _longest_seconds(self, segment: Segment, known: SegmentUpkeep | None) -> float:
        """How old the index may be. Without a cluster, that of an open segment without an owner is read once.

        No broker may ever write it again. But a damaged last file may be put back at any time.
        """
        alone, is_whole = self._coordinator.session_timeout_seconds <= 0, known is None or known.index.blocked is None
        return math.inf if alone and segment.state == "open" and is_whole else REMOTE_INDEX_SECONDS

    async def maintain(self, runtime: TopicRuntime, segment: Segment) -> None:
        """Roll up, write a snapshot, and delete replaced files, as far as any is due."""
        upkeep = self._upkeeps.get((runtime.topic, segment.id))
        if upkeep is None or not upkeep.has_work(segment.start_offset):
            return
        try:
            done = await upkeep.run(rollup_bytes=runtime.state.config.rollup_bytes, start_offset=segment.start_offset)
            self._stale.discard((runtime.topic, segment.id))
        except (ObjectNotFound, SegmentMoved) as error:
            if await self._goes_on(runtime, segment, upkeep.index, error):
                return
            raise
        except CorruptFile as error:
            # The next round goes on around it.
            await runtime.reads.lose_named(segment.id, upkeep.index, error.key or "")
            raise
        runtime.series.count(ROLLUPS, done.rollups)
        self._metrics.upkeep.deleted.inc(done.deleted)
        if done.deleted:
            _log.debug("files_deleted", topic=runtime.topic, segment=segment.id, files=done.deleted)

    async def _goes_on(
        self, runtime: TopicRuntime, segment: Segment, index: SegmentIndex, error: ObjectNotFound | SegmentMoved
    ) -> bool:
        """Handle files of our index that are gone, or others that reach beyond it; returns whether to go on.

        Another process may have rolled them up, and deleted them a grace period later, as after each hand-over: then
        nothing has failed. So the index of a segment that is not written here is read again first. A file of that
        index, which is a round old, is lost if it is missing, unless the topic's record has a newer start. The next
        round goes on around it.
        """
        key, writer = (runtime.topic, segment.id), runtime.writers.get(segment.id)
        is_ours = writer is not None and writer.is_open and writer.index is index
        if not is_ours and key not in self._stale:
            self._stale.add(key)
            runtime.reads.invalidate_index(segment.id)
            _log.debug("index_outdated", topic=runtime.topic, segment=segment.id, error=error)
            return True
        self._stale.discard(key)
        if isinstance(error, SegmentMoved):
            return False
        await runtime.refresh()
        now = runtime.state.segment(segment.id)
        if now is None or now.start_offset != segment.start_offset:
            return True
        return await runtime.reads.lose_gone(segment.id, index)

    def waits(self, runtime: TopicRuntime) -> bool:
        """Whether this round did not come to the segments of an earlier run of this broker."""
        dormant = any((runtime.topic, each.id) not in self._left for each in runtime.dormant())
        return dormant or (
            not self._first_indexes_left
            and any((runtime.topic, each.id) not in self._upkeeps for each in self.maintained(runtime))
        )

    def rest_seconds(self, runtime: TopicRuntime) -> float:
        """How long nothing is to be done in the segments that are maintained here."""
        rest_seconds = math.inf
        for segment in self.maintained(runtime):
            upkeep = self._upkeeps.get((runtime.topic, segment.id))
            if upkeep is None or upkeep.has_work(segment.start_offset):
                return 0.0
            rest_seconds = min(rest_seconds, upkeep.rest_seconds())
        return rest_seconds

    def indexes(self, runtime: TopicRuntime) -> dict[int, SegmentIndex]:
        """Return the indexes at hand of a topic's segments, by segment."""
        upkeeps = ((s.id, self._upkeeps.get((runtime.topic, s.id))) for s in runtime.state.segments)
        return {segment_id: upkeep.index for segment_id, upkeep in upkeeps if upkeep is not None}

    def show_size(self, runtime: TopicRuntime) -> None:
        """Report the size of the maintained segments to Prometheus; of those not read yet, the recorded size."""
        indexes = self.indexes(runtime)
        sizes = (
            index.size_bytes if (index := indexes.get(segment.id)) is not None else segment.stored_bytes or 0
            for segment in self.maintained(runtime)
        )
        runtime.series.set(TOPIC_BYTES, sum(sizes))

    def forget_removed(self, topics: TopicRegistry) -> None:
        """Drop the upkeep of segments that no topic has any more."""
        present = {(name, segment.id) for name, runtime in topics.items() for segment in runtime.state.segments}
        for key in [key for key in self._upkeeps if key not in present]:
            del self._upkeeps[key]
        self._stale &= present
        self._left &= present

    def _upkeep(self, runtime: TopicRuntime, segment_id: int, index: SegmentIndex, *, born_here: bool) -> SegmentUpkeep:
        ref = runtime.ref(segment_id)

        async def exists() -> bool:
            record = await self._catalogue.read(runtime.topic)
            return record is not None and record.state.segment(segment_id) is not None

        async def is_current() -> bool:
            await runtime.refresh()
            return runtime.ref(segment_id) == ref

        def recent(start: int, end: int) -> pa.Table | None:
            tail = runtime.reads.tail(segment_id)
            return None if tail is None else tail.between(start, end)

        return SegmentUpkeep(
            self._context,
            ref,
            index,
            exists=exists,
            is_current=is_current,
            born_here=born_here,
            recent=recent,
        )
