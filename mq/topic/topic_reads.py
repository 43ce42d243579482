"""What readers need from a running topic: its newest messages, the ends of its segments, and their indexes."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import pyarrow as pa

from filer.clock import Clock
from filer.errors import UnreadableObject
from filer.segment.next_file import Accepted, join
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.topic.topic_state import Segment, TopicState
from mq.base.errors import OwnerSilent
from mq.forwarding.remote_segments import RemoteSegments
from mq.limits.front_store import Tail
from mq.metrics.metrics import Metrics
from mq.metrics.topic_families import BYTES_READ, MESSAGES_READ
from mq.peers.answer_forms import TailPage
from mq.topic.owned_segments import OwnedSegments
from mq.topic.segment_indexes import SegmentIndexes
from mq.topic.wakeup import Wakeup
from mq.traffic.topic_traffic import TopicTraffic

REMOTE_INDEX_SECONDS = 2.0
"""How old the index of a segment that another broker writes may be."""
_NEWEST = 2**62


class TopicReads:
    """Reads of one topic: from this broker's own segments, from their owners, and from the indexes.

    All methods belong to the event loop's thread.
    """

    def __init__(
        self,
        state: TopicState,
        *,
        clock: Clock,
        clustered: bool,
        ref: Callable[[int], SegmentRef],
        owned: OwnedSegments,
        remote: RemoteSegments,
        indexes: SegmentIndexes,
        traffic: TopicTraffic,
        news: Wakeup,
        metrics: Metrics,
    ) -> None:
        self._state, self._clustered, self._ref = state, clustered, ref
        self._owned, self._remote, self._indexes = owned, remote, indexes
        self._traffic, self._news = traffic, news
        self._series = metrics.topics.of(state.topic)
        self._took = metrics.requests.read
        self.now_seconds = clock.monotonic_seconds

    def apply(self, state: TopicState) -> None:
        """Answer by that state from now on."""
        self._state = state

    def tail(self, segment_id: int) -> Tail | None:
        """Return the newest messages of a segment that this broker owns or owned, or whose owner it follows."""
        return self._owned.tails.get(segment_id) or self._remote.tail(segment_id)

    def read_unstored(self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int) -> pa.Table | None:
        """Return an own segment's messages from `offset` on, at least one, that all followers hold and the store lacks.

        None if the message at `offset` is stored, or is not held by all followers yet. Unlike the tail, this does not
        drop any messages.
        """
        tail, writer = self._owned.tails.get(segment_id), self._owned.writers.get(segment_id)
        if tail is None or writer is None or not writer.index.end <= offset < tail.end:
            return None
        chosen: list[Accepted] = []
        size_bytes = 0
        for each in writer.unstored(offset, tail.end):
            if chosen and (size_bytes >= max_bytes or each.base >= offset + max_rows):
                break
            chosen.append(each)
            size_bytes += each.size_bytes
        if not chosen:
            return None
        return join(self._ref(segment_id), chosen, chosen[0].base).slice(offset - chosen[0].base, max_rows)

    def follow(self, positions: Mapping[int, int]) -> None:
        """Wake `news` for messages at these positions (offsets by segment id), whichever broker owns the segments."""
        for segment_id, offset in positions.items():
            segment = self._remote_open(segment_id)
            if segment is not None:
                self._remote.follow(self._ref(segment_id), segment, offset)

    async def ask_owner(self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int) -> TailPage | None:
        """Return another broker's messages of its open segment; None if the segment is sealed or this broker's own.

        Raises as `RemoteSegments.ask`.
        """
        segment = self._remote_open(segment_id)
        if segment is None:
            return None
        return await self._remote.ask(self._ref(segment_id), segment, offset, max_rows=max_rows, max_bytes=max_bytes)

    def ends_behind(self, segment_id: int, offset: int) -> bool:
        """Whether the segment is sealed and has messages from `offset` on."""
        segment = self._state.segment(segment_id)
        return segment is not None and segment.end_offset is not None and segment.end_offset > offset

    def may_have_successors(self, segment_id: int) -> bool:
        """Whether an own segment that counts as open here may have been sealed and may have successors."""
        segment, writer = self._state.segment(segment_id), self._owned.writers.get(segment_id)
        if segment is None or segment.state != "open" or writer is None or not self._clustered:
            return False
        return not writer.is_open or not self._owned.lease.is_valid()

    def may_hold_more(self, segment_id: int) -> bool:
        """Whether another broker may hold messages of a segment that are acknowledged and not on the store yet."""
        segment = self._remote_open(segment_id)
        return segment is not None and len(segment.brokers) > 1

    def count_read(self, segment_id: int, messages: int, size_bytes: int) -> None:
        """Count an answer to a reader of this broker."""
        self._series.count(MESSAGES_READ, messages)
        self._series.count(BYTES_READ, size_bytes)
        self._traffic.count_read(segment_id, messages, size_bytes)

    def observe_page(self, began_seconds: float) -> None:
        """Note that messages were found for a page, whose search began at that time by `now_seconds`."""
        self._took.observe(self.now_seconds() - began_seconds)

    async def end_of(self, segment_id: int, *, at_least: int | None = None) -> int:
        """Return the offset after the newest readable message. Does not ask the owner if `at_least` is reached.

        A file may be on the store, and be read there, a moment before its owner hears that it is. So before this
        reports that `at_least` is not reached, it looks at the store, or waits for the puts of an own segment.
        """
        tail, known = self.tail(segment_id), self._indexes.known.get(segment_id)
        end = max(known.end if known is not None else 0, tail.end if tail is not None else 0)
        if at_least is not None and end >= at_least:
            return end
        try:
            page = await self.ask_owner(segment_id, _NEWEST, max_rows=1, max_bytes=1)
        except (OwnerSilent, UnreadableObject):
            # It may have given readers messages that the store does not have yet.
            return max(end, (await self.index(segment_id, fresh=True)).end, at_least or 0)
        if page is not None and page.end >= (at_least or 0):
            return max(end, page.end)
        writer = self._owned.writers.get(segment_id)
        if at_least is not None and writer is not None and end < at_least <= writer.accepted_end:
            await writer.flush()
        return max(end, (await self.index(segment_id, fresh=True)).end)

    async def carried(self, segment_id: int) -> tuple[int, int | None]:
        """Return how many messages an open segment has had, and the bytes of its files as they were stored.

        The bytes are None if the owner does not report them. If the owner does not answer, the stored messages count.
        """
        writer = self._owned.writers.get(segment_id)
        if writer is not None:
            return await self.end_of(segment_id), writer.index.stored_bytes
        with contextlib.suppress(OwnerSilent, UnreadableObject):
            page = await self.ask_owner(segment_id, _NEWEST, max_rows=1, max_bytes=1)
            if page is not None:
                return page.end, page.stored_bytes
        index = await self.index(segment_id, fresh=True)
        return index.end, index.stored_bytes

    async def index(
        self, segment_id: int, *, fresh: bool = False, longest_seconds: float = REMOTE_INDEX_SECONDS
    ) -> SegmentIndex:
        """Return the segment's index, recovered from the store the first time.

        The index of a segment that is not written here may be `longest_seconds` old, unless it must be fresh.
        """
        segment = self._state.segment(segment_id)
        index = self._indexes.known.get(segment_id)
        if segment is None:
            return index or SegmentIndex()
        writer = self._owned.writers.get(segment_id)
        if index is not None and writer is not None and not writer.has_stopped:
            await self._indexes.look_again(segment_id, index)
            return index
        return await self._indexes.get(segment, longest_seconds=0.0 if fresh else longest_seconds)

    async def pass_by(self, segment_id: int, offset: int, max_rows: int) -> tuple[int, int]:
        """Return the offset from which to read, and how many rows: behind a given-up range there, and up to the next.

        Given-up messages are never returned, even if this broker or the owner has them in memory.
        """
        segment = self._state.segment(segment_id)
        if segment is None or not segment.given_up:
            return offset, max_rows
        offset = await self._behind_given_up(segment, offset)
        following = segment.given_up_ranges.next_start(offset)
        return offset, max_rows if following is None else min(max_rows, following - offset)

    async def _behind_given_up(self, segment: Segment, offset: int) -> int:
        given_up = segment.given_up_ranges
        if all(each.end is not None for each in given_up.ranges):
            return given_up.behind(offset)
        # Only the index shows where the log goes on after a damaged last file.
        index = await self.index(segment.id)
        while (hole := index.hole_at(offset)) is not None and hole.given_up:
            offset = hole.end
        return offset

    async def index_for_listing(self, segment_id: int, *, maintained: bool, longest_seconds: float) -> SegmentIndex:
        """As a fresh `index`. The snapshot of a sealed segment may be `longest_seconds` old, and so may sizes of files.

        The broker that maintains a sealed segment rolls it up, and deletes what the roll-ups replace, without notice;
        `maintained` says that it is this broker.
        """
        segment = self._state.segment(segment_id)
        if segment is not None and segment.state == "sealed" and not maintained:
            self._indexes.forget_older(segment_id, longest_seconds)
        index = await self.index(segment_id, fresh=True)
        await self._indexes.compare(segment_id, index, longest_seconds=longest_seconds)
        return index

    async def lose_gone(self, segment_id: int, index: SegmentIndex) -> bool:
        """As `SegmentIndexes.lose_gone`."""
        return await self._indexes.lose_gone(segment_id, index, self._read_from_store(segment_id))

    async def lose_named(self, segment_id: int, index: SegmentIndex, key: str) -> bool:
        """Make a hole in the place of the damaged file of that key; returns whether it was in the index."""
        for facts in index.files:
            if self._ref(segment_id).key(facts.name) == key:
                await self._indexes.lose(segment_id, index, facts, damaged=True)
                return True
        return False

    async def rebuild(self, segment_id: int, offset: int) -> bool:
        """As `SegmentIndexes.rebuild`; False for a segment that is written here."""
        segment = self._read_from_store(segment_id)
        return segment is not None and await self._indexes.rebuild(segment, offset)

    def _read_from_store(self, segment_id: int) -> Segment | None:
        """Return the segment, unless it is written here: then its index was not read from the store."""
        writer = self._owned.writers.get(segment_id)
        done = writer is None or writer.has_stopped or writer.is_sealed
        return self._state.segment(segment_id) if done else None

    async def lose(self, segment_id: int, index: SegmentIndex, offset: int, *, damaged: bool) -> None:
        """Make a hole in the index in the place of the file that holds `offset`: it is missing or damaged."""
        files = index.readable(offset)
        if files:
            await self._indexes.lose(segment_id, index, files[0], damaged=damaged)

    def invalidate_index(self, segment_id: int) -> None:
        """Recover the index of a segment at its next use: a file that it names is missing.

        The index of a segment that is still written here stays. Once the segment is sealed, another process may have
        rolled it up.
        """
        writer, segment = self._owned.writers.get(segment_id), self._state.segment(segment_id)
        done = writer is None or writer.has_stopped or writer.is_sealed
        if done or (segment is not None and segment.state == "sealed"):
            self._indexes.forget(segment_id)

    def news(self) -> asyncio.Future[None]:
        """Return a future for the next stored message or newer state. Take it before you read, then wait for it."""
        return self._news.next()

    def _remote_open(self, segment_id: int) -> Segment | None:
        """Return the segment if it is open and another broker owns it."""
        segment = self._state.segment(segment_id)
        if segment is None or segment.state != "open" or segment_id in self._owned.writers or not self._clustered:
            return None
        return segment
