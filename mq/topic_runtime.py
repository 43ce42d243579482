"""One topic as a broker runs it: writers for the segments it owns, indexes and tails to read from, waiters."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import pyarrow as pa

from filer.errors import SegmentMoved, SequenceExpired
from filer.inheritance import handed_over, read_inherited
from filer.next_file import Accepted, Single, join
from filer.producer_windows import ProducerWindows
from filer.requests import Position, RequestId
from filer.segment_index import SegmentIndex
from filer.segment_log import SegmentRef
from filer.segment_writer import Replication, SegmentWriter, StoredFile, WriterState
from filer.slots import SLOTS, slot_of
from filer.topic_state import Segment, TopicState
from mq.coalesced import Coalesced
from mq.errors import OwnerSilent, PublishIncomplete
from mq.followers import Followers
from mq.foreign_segments import ForeignSegments
from mq.front_store import Tail
from mq.parts import Parts
from mq.peers import TailPage
from mq.routing import Appender, Route
from mq.segment_indexes import SegmentIndexes
from mq.shape_news import ShapeNews
from mq.standing import Standing
from mq.topic_loads import TopicLoads

# One request is sent anew so often, and more often while it has been looked for owners for less time than that: news of
# other segments cut the waits between short.
RESENDS = 10
SEARCH_SECONDS = 5.0
# How long news of an owner are waited for before a look for them.
LOOK_FIRST_SECONDS, LOOK_LONGEST_SECONDS = 0.02, 1.0
FOREIGN_INDEX_SECONDS = 2.0
_NEWEST = 2**62

_log = logging.getLogger(__name__)


class TopicRuntime:
    """A topic's running state in this process. All methods belong to the event loop's thread.

    `on_lost` is called with the topic's name when a writer has stopped before its segment was sealed.
    """

    def __init__(self, parts: Parts, state: TopicState, *, on_lost: Callable[[str], None]) -> None:
        self.state = state
        self._on_lost = on_lost
        self.writers: dict[int, SegmentWriter] = {}
        self._parts = parts
        self.loads = TopicLoads(parts.clock, parts.broker, self._pending_bytes)
        self._indexes = SegmentIndexes(parts.store, parts.clock, self.ref)
        self._tails: dict[int, Tail] = {}
        self._foreign = ForeignSegments(parts, on_moved=self._reroute, on_news=lambda: _wake(self._news))
        self._refresh = Coalesced(self._read_record, parts.clock, name=f"read the record of {state.topic}")
        self._standing = Standing(parts.coordinator, self.refresh, on_proven=self._answer_held)
        self._route = Route([])
        self._news: asyncio.Future[None] | None = None
        self._shape_news = ShapeNews(parts.clock, self.refresh)
        self._turn = 0
        self._closing = False
        self._counted = parts.metrics.messages.labels(state.topic)
        self._files = parts.metrics.files.labels(state.topic)
        self._read = parts.metrics.messages_read.labels(state.topic)
        self._read_bytes = parts.metrics.bytes_read.labels(state.topic)
        self._open_writers()

    @property
    def topic(self) -> str:
        """Its name."""
        return self.state.topic

    def ref(self, segment_id: int) -> SegmentRef:
        """Names a segment to the filer."""
        config = self.state.config
        return SegmentRef(self.topic, segment_id, config.key_type, config.value_type)

    # -- shape ---------------------------------------------------------------------------------------------

    def apply(self, state: TopicState) -> None:
        """Take over a newer state: open writers for segments newly ours, and wake whoever waits for a change."""
        if state.version <= self.state.version:
            return
        self.state = state
        kept = {segment.id for segment in state.segments}
        for segment_id in [i for i in self._indexes.known if i not in kept]:
            self._forget(segment_id)
        for segment in state.segments:
            if segment.state == "sealed":
                self._sealed(segment)
        self._parts.copies.keep_only(self.topic, {segment.id for segment in state.open_segments})
        self._open_writers()
        self._shape_news.tell()
        _wake(self._news)

    async def refresh(self) -> None:
        """Read topic.json again, once for all who ask at a time: another process may have changed it."""
        await self._refresh()

    async def _read_record(self) -> None:
        record = await self._parts.catalogue.read(self.topic)
        if record is not None:
            self.apply(record.state)

    def _open_writers(self) -> None:
        """A writer for each open segment of ours, from offset 0 on.

        This process is the only one that ever writes a segment it owns (the broker id carries the incarnation), so
        a segment without a writer here has no file yet: there is nothing to ask the store for.
        """
        self.loads.apply(self.state)
        for segment in self.state.open_segments:
            if segment.owner == self._parts.broker and segment.id not in self.writers:
                self._open_writer(segment)
        for segment in self.state.segments:
            # Their heirs here have it by now; those at other brokers read the seals.
            if segment.state == "sealed" and (index := self._indexes.known.get(segment.id)) is not None:
                index.forget_windows()
        self._reroute()

    def _reroute(self) -> None:
        """Look anew where messages go: to our writers, and on the way to other owners."""
        self._route = Route([(s.id, s.start_slot, self._appender(s)) for s in self.state.open_segments])

    def _appender(self, segment: Segment) -> Appender:
        writer = self.writers.get(segment.id)
        return writer or self._foreign.forward(self.ref(segment.id), segment, self.state.version)

    def _open_writer(self, segment: Segment) -> None:
        parts = self._parts
        index = SegmentIndex()
        if (windows := handed_over(self.state, segment, self._indexes.known)) is not None:
            index.inherit(windows)
        self._indexes.put(segment.id, index)
        self._tails[segment.id] = Tail(0)

        async def found() -> Segment | None:
            record = await parts.catalogue.read(self.topic)
            return None if record is None else record.state.segment(segment.id)

        async def still_there() -> bool:
            return await found() is not None

        async def is_open() -> bool:
            newest = await found()
            return newest is not None and newest.state == "open" and newest.owner == parts.broker

        self.writers[segment.id] = SegmentWriter(
            parts.store,
            parts.clock,
            self.ref(segment.id),
            index,
            broker=parts.broker,
            settings=parts.writing,
            turns=parts.turns,
            look=still_there,
            is_open=is_open,
            on_stored=self._stored,
            on_stopped=self._lost,
            inherit=partial(self.inherited, segment),
            replication=self._replication(segment),
            awaited=bool(segment.predecessors),
        )

    def _replication(self, segment: Segment) -> Replication | None:
        """How our segment is replicated; None where it has no followers."""
        parts, followers = self._parts, segment.brokers[1:]
        if not followers:
            return None
        return Replication(
            Followers(parts, self.ref(segment.id), followers, self.state.version),
            partial(self._may_answer_for, segment.id),
            self._held,
            parts.front_store.grow,
        )

    def _may_answer_for(self, segment_id: int) -> bool:
        """Whether what all followers of a segment of ours hold is as good as stored."""
        segment, under_way = self.state.segment(segment_id), self.state.transition
        if segment is None or segment.state != "open" or (under_way is not None and segment_id in under_way.seal):
            return False
        return self._standing.proven()

    def _answer_held(self) -> None:
        for writer in self.writers.values():
            writer.answer_held()

    def _held(self, segment_id: int, held: Sequence[Accepted]) -> None:
        """All followers hold these messages of ours: readers get them before they are stored."""
        tail = self._tails.get(segment_id)
        if tail is not None and held[0].base == tail.end:
            table = join(self.ref(segment_id), held, tail.end)
            self._parts.front_store.keep(tail, table, sum(each.size_bytes for each in held))
            _wake(self._news)

    async def inherited(self, segment: Segment) -> ProducerWindows:
        """The producer windows that a segment has from its predecessors; raises as `read_inherited`."""
        windows = handed_over(self.state, segment, self._indexes.known)
        if windows is not None:
            return windows
        return await read_inherited(self._parts.store, self._parts.catalogue, self.topic, segment, self.state)

    def _sealed(self, segment: Segment) -> None:
        """All of it is on the store: nothing that we held of it is needed, nor may any more than that be read."""
        self._foreign.forget(segment.id)
        if (writer := self.writers.get(segment.id)) is not None:
            writer.note_sealed()
        tail = self._tails.get(segment.id)
        if tail is not None and segment.end_offset is not None and tail.end > segment.end_offset:
            self._tails[segment.id] = Tail(segment.end_offset)

    def _forget(self, segment_id: int) -> None:
        self._indexes.forget(segment_id)
        self._tails.pop(segment_id, None)
        self._foreign.forget(segment_id)
        self.writers.pop(segment_id, None)

    def adopt_index(self, segment_id: int, index: SegmentIndex) -> None:
        """Use an index that somebody else in this process has recovered or sealed."""
        self._indexes.put(segment_id, index)

    def _stored(self, stored: StoredFile) -> None:
        tail = self._tails[stored.segment]
        if (known := tail.end - stored.facts.base) < stored.table.num_rows:
            self._parts.front_store.keep(tail, stored.table.slice(known), stored.pending_bytes)
        self.loads.count(stored.segment, stored.table, stored.pending_bytes)
        self._counted.inc(stored.table.num_rows)
        self._files.inc()
        self._parts.metrics.file_bytes.observe(stored.facts.size_bytes)
        _wake(self._news)

    def _lost(self, segment_id: int, why: Exception) -> None:
        if not self._closing:
            reason = f"{type(why).__name__}: {why}"
            _log.warning("segment %d of topic %r is lost to this broker: %s", segment_id, self.topic, reason)
            self._parts.metrics.lost_segments.labels(self.topic).inc()
        _wake(self._news)
        self._on_lost(self.topic)

    def _pending_bytes(self, segment_id: int) -> int:
        """What waits to be stored of a segment of ours."""
        writer = self.writers.get(segment_id)
        return 0 if writer is None else writer.pending_bytes

    async def flush(self) -> None:
        """Wait until everything accepted so far is stored or has failed."""
        await asyncio.gather(*(writer.flush() for writer in self.writers.values()))
        _wake(self._news)

    async def close(self) -> None:
        """Stop all writers; what they had not stored fails."""
        self._closing = True
        await asyncio.gather(
            self._standing.close(),
            self._shape_news.close(),
            self._foreign.close(),
            self._indexes.close(),
            self._refresh.close(),
            *(writer.close() for writer in self.writers.values()),
        )
        _wake(self._news)

    # -- publishing ----------------------------------------------------------------------------------------
    # Callers reserve room in the front store before they read a body, and give it back when they have an answer.

    async def publish_single(
        self, single: Single, size_bytes: int, request: RequestId | None = None, *, replicated: bool = False
    ) -> Position:
        """Store one message, or find it stored already by its request's id.

        Raises `SegmentMoved` where this broker cannot store it; then it is not in the log. `SequenceExpired`.
        """
        slot = self._null_slot(request) if single.key is None else slot_of(single.key)
        for attempt in self._attempts():
            route, version = self._route, self.state.version
            place = route.place_of_slot(slot)
            writer = route.writers[place] if place >= 0 else None
            if writer is None or writer.state is not WriterState.OPEN:
                await self._await_owner([writer], attempt, version)
                continue
            if request is not None and not writer.inheritance.complete:
                await writer.inheritance.wait()
                continue
            try:
                return (await writer.append(single, size_bytes, request, replicated=replicated))[0]
            except SegmentMoved:
                await self._after_move(attempt, version)
        raise SegmentMoved(f"topic {self.topic!r}: its segments keep moving; try again")

    async def publish_rows(
        self, rows: pa.RecordBatch, size_bytes: int, request: RequestId | None = None, *, replicated: bool = False
    ) -> list[Position]:
        """Store the rows of one request, in their order within each segment; a position per segment touched.

        Of a request with an id that is repeated, only what is not stored yet. Raises `SegmentMoved` where nothing of
        the request was stored, `PublishIncomplete` (with the positions that were) where only a part was,
        `SequenceExpired`.
        """
        null_slot = self._null_slot(request)
        done: list[Position] = []
        waiting = _Share(-1, None, rows, size_bytes)
        for attempt in self._attempts():
            route, version = self._route, self.state.version
            shares = self._cut(waiting, null_slot)
            open_writers = [s.writer for s in shares if s.writer and s.writer.state is WriterState.OPEN]
            if len(open_writers) < len(shares):
                await self._await_owner([share.writer for share in shares], attempt, version, done)
                continue
            if request is not None and await self._must_look_again(open_writers, shares, request, done):
                continue
            # Nothing is awaited between the look at the writers and here: all take their share, or none did.
            futures = [
                writer.append(share.rows, share.size_bytes, request, replicated=replicated)
                for writer, share in zip(open_writers, shares, strict=True)
            ]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            moved = _sort_out(shares, outcomes, done)
            if not moved:
                # Shares that were cut anew after a split may have been stored as one before.
                return sorted(done if request is None else set(done))
            # A segment takes all that a request with an id has for it at once: where a merge brings two shares together
            # they must come as one, so all of it is sent again. What is stored already is found so.
            if request is None:
                waiting = _rest(waiting, route, moved, null_slot)
            await self._after_move(attempt, version)
        _give_up(done, SegmentMoved(f"topic {self.topic!r}: its segments keep moving; try again"))

    def _attempts(self) -> Iterator[int]:
        """Numbers of attempts, until a request has had enough of them and enough time as well."""
        until_seconds = self._parts.clock.monotonic_seconds() + SEARCH_SECONDS
        attempt = 0
        while attempt < RESENDS or self._parts.clock.monotonic_seconds() < until_seconds:
            yield min(attempt, RESENDS)
            attempt += 1

    async def _must_look_again(
        self, writers: Sequence[Appender], shares: "Sequence[_Share]", request: RequestId, done: Sequence[Position]
    ) -> bool:
        """Have the windows of all writers complete; whether that took time. Raises where the request is too old.

        It is refused before any segment takes its share.
        """
        if not all(writer.inheritance.complete for writer in writers):
            await asyncio.gather(*(writer.inheritance.wait() for writer in writers))
            return True
        if len(shares) > 1 or done:
            try:
                for writer, share in zip(writers, shares, strict=True):
                    writer.check_sequence(share.rows, request)
            except SequenceExpired as error:
                _give_up(done, error)
        return False

    def _cut(self, whole: "_Share", null_slot: int) -> "list[_Share]":
        """The shares of the open segments in rows that are to be stored yet."""
        route, rows = self._route, whole.rows
        if not route.ids:
            return [whole]
        return [
            _Share(
                route.ids[place],
                route.writers[place],
                part,
                whole.size_bytes if part is rows else whole.size_bytes * part.num_rows // rows.num_rows,
            )
            for place, part in route.cut(rows, null_slot=null_slot)
        ]

    async def _await_owner(
        self, writers: Sequence[Appender | None], attempt: int, version: int, done: Sequence[Position] = ()
    ) -> None:
        """Wait a while for a transition that is under way, or in a cluster for an owner; raises where none can help.

        `version` is that of the state by which these were chosen.
        """
        sealing = any(w is not None and w.state in (WriterState.SEALING, WriterState.SEALED) for w in writers)
        moving = sealing or self.state.transition is not None or self._parts.clustered
        if not self.state.deleted and moving:
            await self._look_for_owner(attempt, version)
            return
        owners = {s.owner for s in self.state.open_segments if s.owner != self._parts.broker}
        taken = f"now owned by broker {', '.join(sorted(owners))}" if owners else "no longer owned by this broker"
        _give_up(done, SegmentMoved(f"topic {self.topic!r}: the segment for these messages is {taken}"))

    async def _after_move(self, attempt: int, version: int) -> None:
        """A segment of ours has successors here in a moment; another broker's owner may be gone for a while."""
        if self._parts.clustered:
            await self._look_for_owner(attempt, version)

    async def _look_for_owner(self, attempt: int, version: int) -> None:
        """Give the leader, or a new owner, the time; news of the topic may be on their way or lost.

        What has come since `version` is to be tried first: a segment's end is heard of before its last messages are.
        """
        if self.state.version == version:
            await self._shape_news.wait(min(LOOK_FIRST_SECONDS * 2**attempt, LOOK_LONGEST_SECONDS))
        if self.state.version == version:
            self._reroute()

    def _null_slot(self, request: RequestId | None) -> int:
        """The slot of a request's messages without a key; a repetition must find the segment that has them."""
        return self._next_slot() if request is None else request.null_slot

    def _next_slot(self) -> int:
        """A slot for messages without a key: each request takes the next of widely spread ones."""
        self._turn = (self._turn + 40_503) % SLOTS  # 2^16 / golden ratio: consecutive slots lie far apart
        return self._turn

    # -- reading -------------------------------------------------------------------------------------------

    def tail(self, segment_id: int) -> Tail | None:
        """The newest messages of a segment this broker owns or owned, or follows at its owner."""
        return self._tails.get(segment_id) or self._foreign.tail(segment_id)

    def read_unstored(self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int) -> pa.Table | None:
        """Messages of ours from `offset` on that all followers hold and the store does not, at least one.

        None where that one is stored, or is not held yet. Unlike the tail this lets go of none.
        """
        tail, writer = self._tails.get(segment_id), self.writers.get(segment_id)
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
        return join(self.ref(segment_id), chosen, chosen[0].base).slice(offset - chosen[0].base, max_rows)

    def follow(self, positions: Mapping[int, int]) -> None:
        """Have what comes next at these positions make `news`, whoever owns the segments."""
        for segment_id, offset in positions.items():
            segment = self._foreign_open(segment_id)
            if segment is not None:
                self._foreign.follow(self.ref(segment_id), segment, offset)

    async def ask_owner(self, segment_id: int, offset: int, *, max_rows: int, max_bytes: int) -> TailPage | None:
        """What another broker has of its open segment; None where it is ours or sealed. Raises `OwnerSilent`."""
        segment = self._foreign_open(segment_id)
        if segment is None:
            return None
        ref = self.ref(segment_id)
        return await self._foreign.ask(ref, segment, offset, max_rows=max_rows, max_bytes=max_bytes)

    def ends_behind(self, segment_id: int, offset: int) -> bool:
        """Whether the segment is sealed, with messages from `offset` on."""
        segment = self.state.segment(segment_id)
        return segment is not None and segment.end_offset is not None and segment.end_offset > offset

    def may_have_successors(self, segment_id: int) -> bool:
        """Whether a segment of ours, open as far as we have heard, may have been sealed, and others go on for it."""
        segment, writer = self.state.segment(segment_id), self.writers.get(segment_id)
        if segment is None or segment.state != "open" or writer is None or not self._parts.clustered:
            return False
        return writer.state is not WriterState.OPEN or not self._standing.proven()

    def may_hold_more(self, segment_id: int) -> bool:
        """Whether another broker may hold messages of a segment that are acknowledged and not on the store yet."""
        segment = self._foreign_open(segment_id)
        return segment is not None and len(segment.brokers) > 1

    def _foreign_open(self, segment_id: int) -> Segment | None:
        segment = self.state.segment(segment_id)
        if segment is None or segment.state != "open" or segment_id in self.writers or not self._parts.clustered:
            return None
        return segment

    def count_read(self, segment_id: int, messages: int, size_bytes: int) -> None:
        """A reader of this broker is given so many messages of a segment, in so much of an answer."""
        self._read.inc(messages)
        self._read_bytes.inc(size_bytes)
        self.loads.count_read(segment_id, messages, size_bytes)

    async def end_of(self, segment_id: int, *, at_least: int | None = None) -> int:
        """The offset after the newest message that can be read; nobody is asked once that is `at_least`."""
        tail, known = self.tail(segment_id), self._indexes.known.get(segment_id)
        end = max(known.end if known is not None else 0, tail.end if tail is not None else 0)
        if at_least is not None and end >= at_least:
            return end
        try:
            page = await self.ask_owner(segment_id, _NEWEST, max_rows=1, max_bytes=1)
        except OwnerSilent:
            # It may have given out what the store does not show yet.
            return max(end, (await self.index(segment_id, fresh=True)).end, at_least or 0)
        if page is not None:
            return max(end, page.end)
        return max(end, (await self.index(segment_id, fresh=True)).end)

    async def carried(self, segment_id: int) -> tuple[int, int | None]:
        """How many messages an open segment has had, and the bytes of its files as they were stored.

        None for the bytes where its owner does not tell them; of a silent owner's what the store shows counts.
        """
        writer = self.writers.get(segment_id)
        if writer is not None:
            return await self.end_of(segment_id), writer.index.stored_bytes
        with contextlib.suppress(OwnerSilent):
            page = await self.ask_owner(segment_id, _NEWEST, max_rows=1, max_bytes=1)
            if page is not None:
                return page.end, page.stored_bytes
        index = await self.index(segment_id, fresh=True)
        return index.end, index.stored_bytes

    async def index(self, segment_id: int, *, fresh: bool = False) -> SegmentIndex:
        """The segment's index, recovered from the store the first time.

        Of a segment that another broker writes it may lag behind by `FOREIGN_INDEX_SECONDS`, unless it is to be fresh.
        """
        segment = self.state.segment(segment_id)
        index = self._indexes.known.get(segment_id)
        if segment is None:
            return index or SegmentIndex()
        writer = self.writers.get(segment_id)
        if index is not None and writer is not None and writer.state is not WriterState.STOPPED:
            return index
        return await self._indexes.get(segment, longest_seconds=0.0 if fresh else FOREIGN_INDEX_SECONDS)

    async def index_for_listing(self, segment_id: int, *, longest_seconds: float) -> SegmentIndex:
        """As `index`, fresh; of a sealed segment that another broker keeps, as its snapshot was so long ago at most.

        That one rolls it up, and deletes what the roll-ups stand for, without our noticing.
        """
        segment = self.state.segment(segment_id)
        if segment is not None and segment.state == "sealed":
            self._indexes.forget_older(segment_id, longest_seconds)
        return await self.index(segment_id, fresh=True)

    def distrust_index(self, segment_id: int) -> None:
        """Recover the index of a segment at its next use: a file it names is gone.

        Not of one that is still written here; once it is sealed, another process may have rolled it up.
        """
        writer, segment = self.writers.get(segment_id), self.state.segment(segment_id)
        done = writer is None or writer.state in (WriterState.STOPPED, WriterState.SEALED)
        if done or (segment is not None and segment.state == "sealed"):
            self._indexes.forget(segment_id)

    def news(self) -> asyncio.Future[None]:
        """Done when the next message is stored or the shape changes: take it before you look, then wait for it."""
        if self._news is None or self._news.done():
            self._news = asyncio.get_running_loop().create_future()
        return self._news


@dataclass(frozen=True, slots=True)
class _Share:
    """What one segment is to take of a request."""

    segment: int
    writer: Appender | None
    rows: pa.RecordBatch
    size_bytes: int


def _rest(whole: _Share, route: Route, moved: Sequence[_Share], null_slot: int) -> _Share:
    """These shares of it as one, in the order of the request: a merge may bring them together in one segment."""
    if len(moved) == 1:
        return moved[0]
    rows = route.rows_of(whole.rows, [share.segment for share in moved], null_slot=null_slot)
    return _Share(-1, None, rows, sum(share.size_bytes for share in moved))


def _sort_out(
    shares: Sequence[_Share], outcomes: Sequence[list[Position] | BaseException], done: list[Position]
) -> list[_Share]:
    """Note what was stored; the shares that certainly were not and may go to a successor.

    A `SegmentMoved` says that another file stands at the offset this share was given, so it is not in the log
    and never will be: sending it again cannot store it twice.
    """
    again: list[_Share] = []
    failure: BaseException | None = None
    for share, outcome in zip(shares, outcomes, strict=True):
        if isinstance(outcome, list):
            done += outcome
        elif isinstance(outcome, SegmentMoved):
            again.append(share)
        else:
            failure = outcome
    if failure is not None:
        _give_up(done, failure)
    return again


def _give_up(done: Sequence[Position], error: BaseException) -> NoReturn:
    if done:
        raise PublishIncomplete(str(error), sorted(set(done))) from error
    raise error


def _wake(waiters: asyncio.Future[None] | None) -> None:
    """Wake everybody who waits for this piece of news; the next to wait starts a new one."""
    if waiters is not None and not waiters.done():
        waiters.set_result(None)
