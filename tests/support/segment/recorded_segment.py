"""A segment with its owners under a clock that stands still, whose publishers and readers leave a history to judge."""

import asyncio
from collections.abc import Iterable

from filer.clock import settle
from filer.errors import BraidError, CorruptFile, SegmentMoved, SegmentSealed, SequenceExpired
from filer.format.requests import Position, RequestId
from filer.format.segment_file import decode
from filer.segment.segment_log import SegmentRef, recover_index
from filer.segment.writer.segment_writer import SegmentWriter
from filer.upkeep.index_snapshots import write_snapshot
from filer.upkeep.rollup import roll_up
from tests.cluster.checker.history import (
    REACHED,
    Attempt,
    Fault,
    Found,
    Gap,
    History,
    Outcome,
    Reader,
    Request,
    Sent,
    Visit,
)
from tests.cluster.checker.verdict import judge
from tests.support.inline_executor import InlineExecutor
from tests.support.segment.segment_owners import GRACE_SECONDS, single
from tests.support.segment.segment_world import FakeFollowers, SegmentWorld

TOPIC = "events"
_REFUSED = (SegmentMoved, SegmentSealed, SequenceExpired)


class RecordedSegment(SegmentWorld):
    """Its messages are numbered in the order in which they are published, under one key."""

    def __init__(self, *, followers: FakeFollowers | None = None) -> None:
        super().__init__(SegmentRef(TOPIC, 0), followers=followers)
        self.history = History(began="simulated")
        self.open = True
        self._count = 0

    @property
    def now_seconds(self) -> float:
        return self.clock.monotonic_seconds()

    async def publish(self, writer: SegmentWriter, *, sequence: int | None = None, replicated: bool = False) -> Request:
        """One message to an owner; its outcome is recorded as soon as there is one, now or later."""
        sent = Sent("k", self._count)
        self._count += 1
        request = Request(writer.ref.topic, TOPIC, (sent,), sequence=sequence)
        self.history.requests.append(request)
        await self.send(writer, request, replicated=replicated)
        return request

    async def send(self, writer: SegmentWriter, request: Request, *, replicated: bool = False) -> None:
        """A request, for the first time or once more."""
        number, started_seconds = len(request.attempts), self.now_seconds
        # Until there is an answer nobody knows.
        request.attempts.append(Attempt(TOPIC, started_seconds, started_seconds, "unknown"))

        def ended(outcome: Outcome, *positions: Position) -> None:
            told = tuple((each.segment, each.offset, each.count) for each in positions)
            request.attempts[number] = Attempt(TOPIC, started_seconds, self.now_seconds, outcome, told)

        def answered(future: "asyncio.Future[list[Position]]") -> None:
            error = None if future.cancelled() else future.exception()
            if error is None and not future.cancelled():
                ended("acknowledged", *future.result())
            elif isinstance(error, _REFUSED):
                ended("failed")

        name = None if request.sequence is None else RequestId("p", request.sequence)
        try:
            waiter = writer.append(single(request.messages[0].value), 10, name, replicated=replicated)
        except _REFUSED:
            ended("failed")
            return
        waiter.add_done_callback(answered)
        await settle()

    async def crash(self, writer: SegmentWriter) -> None:
        """The owner ends as it stands: what it waits for never happens."""
        await writer.close()
        await settle()

    # -- other processes -------------------------------------------------------------------------------------

    async def roll_up_and_delete(self, *, after_seconds: float = GRACE_SECONDS) -> None:
        """What another process' upkeep does: roll up all of the log, snapshot, and delete some time later."""
        index = await self.recovered()
        run = list(index.files)
        rolled = await roll_up(self.memory, self.clock, self.ref, run, broker="b.1", executor=InlineExecutor())
        index.supersede(rolled, self.clock.now_us())
        await write_snapshot(self.memory, self.ref, index, etag=None, executor=InlineExecutor())
        await self.clock.advance(after_seconds)
        await self.memory.delete([self.ref.key(facts.name) for facts in run])

    # -- the verdict -----------------------------------------------------------------------------------------

    def damaged(self, key: str) -> None:
        """Record that an object is damaged from now on."""
        self.history.faults.append(Fault("damage", self.now_seconds, key=key))

    async def read(self, segments: Iterable[int] = (0,)) -> None:
        """Read everything as a new broker would, and record it."""
        visit = Visit("broker", 0, self.now_seconds, end=REACHED)
        reader = Reader("final", TOPIC, "final", joined_seconds=self.now_seconds, visits=[visit])
        for segment in segments:
            await self._read_segment(SegmentRef(TOPIC, segment), visit)
        visit.ended_seconds = self.now_seconds
        reader.finished = True
        self.history.readers.append(reader)

    async def _read_segment(self, ref: SegmentRef, visit: Visit) -> None:
        offset, key = 0, ""
        try:
            for facts in (await recover_index(self.memory, ref)).files:
                offset, key = facts.start, ref.key(facts.name)
                table = decode((await self.memory.get(key)).data).slice(facts.start - facts.base)
                for row in table.to_pylist():
                    visit.found.append(Found(ref.segment, row["_offset"], row["key"], row["value"], self.now_seconds))
        except CorruptFile:
            visit.told.append(Gap(key, ref.segment, offset))
            visit.end = "told"
        except BraidError as error:
            visit.end = repr(error)

    async def verdict(self, segments: Iterable[int] = (0,)) -> list[str]:
        """Everything that is wrong in the end."""
        await self.read(segments)
        return judge(self.history, staleness_seconds=0.0)
