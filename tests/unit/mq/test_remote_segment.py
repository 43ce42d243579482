"""Sending messages on to their owner: batches, what is known of each part, and what must not be sent twice."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import orjson
import pytest

from filer.clock import settle
from filer.errors import OutcomeUnknown, SegmentMoved, SequenceExpired
from filer.requests import Position, RequestId
from filer.schema import rows_schema
from filer.segment_log import SegmentRef
from filer.segment_writer import WriterState
from mq import remote_segment as subject
from mq.errors import FrontStoreFull, PeerSilent, PeerUnreachable, Repeatable
from mq.http.problems import problem_of
from mq.part_batch import Part, unpack_parts
from mq.peers import PeerAnswer, Peers
from mq.remote_segment import RemoteSegment
from tests.support.segment_owners import offset_of, single

REF = SegmentRef("t", 3)
REQUEST = RequestId("p", 1)


class Owner:
    """The other end: what it was sent, and what it answers; it waits while `gate` is shut."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[Part, list[bytes]]]] = []
        self.urls: list[str] = []
        self.errors: list[Exception] = []
        self.refused: dict[bytes, Exception] = {}
        self.end = 0
        self.missing = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.stores = asyncio.Event()
        self.stores.set()

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        await self.gate.wait()
        self.urls.append(url)
        if self.errors:
            error = self.errors.pop(0)
            if isinstance(error, (PeerUnreachable, PeerSilent)):
                raise error
            problem = problem_of(error)
            return PeerAnswer(problem.status, {}, problem.body())
        batch = [
            (part, [bytes(value) for value in rows["value"].to_pylist()])
            for part, rows in unpack_parts(bytes(body), rows_schema("binary", "binary"))
        ]
        self.batches.append(batch)
        if not all(part.replicated for part, _ in batch):
            await self.stores.wait()
        outcomes = [self._outcome(part, values[0]) for part, values in batch]
        return PeerAnswer(200, {}, orjson.dumps({"outcomes": outcomes[self.missing :]}))

    def _outcome(self, part: Part, value: bytes) -> dict[str, object]:
        if (error := self.refused.get(value)) is not None:
            problem = problem_of(error)
            return {"error": problem.slug, "detail": problem.detail}
        self.end += part.count
        return {"positions": [(3, self.end - part.count, part.count)]}

    async def close(self) -> None:
        return


class World:
    """A segment, its owner, and how often somebody was told to look for another."""

    def __init__(self) -> None:
        self.owner = Owner()
        self.moved = 0
        self.segment = self.make("http://b/")

    def make(self, url: str | None) -> RemoteSegment:
        return RemoteSegment(Peers(self.owner), REF, url=url, version=7, on_moved=self._moved)

    def _moved(self) -> None:
        self.moved += 1

    def append(
        self, value: bytes, request: RequestId | None = None, *, size_bytes: int = 10, replicated: bool = False
    ) -> "asyncio.Future[list[Position]]":
        return self.segment.append(single(value), size_bytes, request, replicated=replicated)

    def sent(self) -> list[list[bytes]]:
        return [[value for _, values in batch for value in values] for batch in self.owner.batches]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.segment.close()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_answers_come_from_the_owner(world: World) -> None:
    future = world.append(b"x", REQUEST, replicated=True)
    assert await future == [Position(3, 0, 1)]
    [[(part, values)]] = world.owner.batches
    assert part == Part(1, 10, REQUEST, replicated=True) and values == [b"x"]
    assert world.owner.urls == ["http://b/internal/v1/topics/t/segments/3/append?version=7"]
    assert world.segment.state is WriterState.OPEN and world.moved == 0


async def test_what_arrives_during_calls_goes_together_with_a_later_one(world: World) -> None:
    world.owner.gate.clear()
    futures = [world.append(b"%d" % n) for n in range(6)]
    await settle()
    world.owner.gate.set()
    assert [offset_of(await future) for future in futures] == list(range(6))
    assert world.sent() == [[b"0"], [b"1"], [b"2", b"3", b"4", b"5"]]


async def test_a_batch_is_bounded_and_a_part_stays_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "BATCH_BYTES", 25)
    world.owner.gate.clear()
    futures = [world.append(b"%d" % n) for n in range(5)]
    futures.append(world.append(b"large", size_bytes=1000))
    world.owner.gate.set()
    await asyncio.gather(*futures)
    assert world.sent() == [[b"0"], [b"1"], [b"2", b"3"], [b"4"], [b"large"]]


async def test_unreachable_nothing_was_sent(world: World) -> None:
    """So all of it may go to another segment."""
    world.owner.gate.clear()
    world.owner.errors = [PeerUnreachable(), PeerUnreachable()]
    futures = [world.append(b"%d" % n, REQUEST if n else None) for n in range(4)]
    world.owner.gate.set()
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [SegmentMoved] * 4
    assert world.moved == 1 and world.sent() == []
    with pytest.raises(SegmentMoved):
        world.append(b"more")


async def test_closing_before_a_call_has_begun(world: World) -> None:
    future = world.append(b"0")
    await world.segment.close()
    with pytest.raises(OutcomeUnknown):
        future.result()


@pytest.mark.parametrize("missing", [False, True])
async def test_an_unknown_outcome_is_told_but_for_requests_with_an_id(world: World, missing: bool) -> None:
    """Those are found again; the others must not be sent a second time. What was never sent may be."""
    world.owner.gate.clear()
    if missing:
        world.owner.missing = 1
    else:
        world.owner.errors = [PeerSilent(), PeerSilent()]
    futures = [world.append(b"plain"), world.append(b"known", REQUEST), world.append(b"waiting")]
    world.owner.gate.set()
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [PeerSilent, SegmentMoved, SegmentMoved]
    assert world.moved == 1
    assert "segment 3 of topic 't'" in str(outcomes[0])


async def test_what_is_to_be_stored_does_not_hold_up_what_is_to_be_replicated(world: World) -> None:
    world.owner.stores.clear()
    stored = [world.append(b"stored %d" % n, RequestId("slow", n)) for n in range(4)]
    replicated = [world.append(b"replicated %d" % n, RequestId("fast", n), replicated=True) for n in range(4)]
    await asyncio.gather(*replicated)
    assert not any(future.done() for future in stored)
    world.owner.stores.set()
    await asyncio.gather(*stored)
    of_each = [[v for batch in world.sent() for v in batch if v.startswith(kind)] for kind in (b"stored", b"repl")]
    assert of_each == [[b"stored %d" % n for n in range(4)], [b"replicated %d" % n for n in range(4)]]


async def test_a_producer_that_wants_both_keeps_its_order(world: World) -> None:
    world.owner.stores.clear()
    futures = [world.append(b"%d" % n, RequestId("p", n), replicated=n % 2 == 1) for n in range(6)]
    other = world.append(b"other", RequestId("q", 0), replicated=True)
    await other
    world.owner.stores.set()
    await asyncio.gather(*futures)
    sent = [value for batch in world.sent() for value in batch]
    assert [value for value in sent if value != b"other"] == [b"%d" % n for n in range(6)]
    again = world.append(b"6", RequestId("p", 6), replicated=True)
    world.owner.stores.clear()
    await again  # all of its others are answered: it waits for the store no more


@pytest.mark.parametrize(
    ("error", "slug"), [(OutcomeUnknown("no answer"), "store-unavailable"), (RuntimeError("a defect"), "owner-silent")]
)
async def test_a_silent_store_is_told_from_a_failing_owner(world: World, error: Exception, slug: str) -> None:
    world.owner.errors = [error]
    with pytest.raises(OutcomeUnknown) as raised:
        await world.append(b"x")
    without_id, with_id = problem_of(raised.value), problem_of(Repeatable(raised.value))
    assert without_id.slug == with_id.slug == slug
    assert (without_id.retryable, with_id.retryable) == (False, True)


async def test_a_full_owner_is_told_as_such(world: World) -> None:
    world.owner.errors = [FrontStoreFull()]
    with pytest.raises(FrontStoreFull):
        await world.append(b"x")


async def test_each_part_has_its_own_outcome(world: World) -> None:
    world.owner.gate.clear()
    first = [world.append(b"0"), world.append(b"1")]
    world.owner.refused = {b"old": SequenceExpired(), b"odd": ValueError()}
    later = [world.append(b"old", REQUEST), world.append(b"fine"), world.append(b"odd")]
    world.owner.gate.set()
    await asyncio.gather(*first)
    outcomes = await asyncio.gather(*later, return_exceptions=True)
    assert isinstance(outcomes[0], SequenceExpired) and isinstance(outcomes[2], OutcomeUnknown)
    assert outcomes[1] == [Position(3, 2, 1)]
    assert world.segment.state is WriterState.OPEN and world.moved == 0


async def test_a_part_that_moved_ends_it(world: World) -> None:
    world.owner.refused = {b"0": SegmentMoved()}
    with pytest.raises(SegmentMoved):
        await world.append(b"0")
    assert world.segment.state is WriterState.STOPPED and world.moved == 1


async def test_whoever_gives_up_waiting_disturbs_nobody(world: World) -> None:
    world.owner.gate.clear()
    gone, stays = world.append(b"gone"), world.append(b"stays")
    gone.cancel()
    world.owner.gate.set()
    assert offset_of(await stays) == 1


async def test_closing_says_what_may_be_stored_and_what_is_not(world: World) -> None:
    world.owner.gate.clear()
    sent = [world.append(b"0"), world.append(b"1")]
    waiting = world.append(b"2")
    await settle()
    await world.segment.close()
    for future in sent:
        with pytest.raises(OutcomeUnknown):
            future.result()
    with pytest.raises(SegmentMoved):
        waiting.result()


async def test_without_an_address_it_takes_nothing(world: World) -> None:
    nowhere = world.make(None)
    assert nowhere.state is WriterState.STOPPED
    with pytest.raises(SegmentMoved):
        nowhere.append(single(b"x"), 1)
