"""Sending messages on to their owner: batches, what is known of each part, and what must not be sent twice."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import orjson
import pyarrow as pa
import pytest

from filer import request_ids
from filer.clock import ManualClock, settle
from filer.errors import OutcomeUnknown, SegmentMoved, SequenceExpired
from filer.format.requests import Position, RequestId
from filer.format.schema import MessageSchema
from filer.segment.segment_log import SegmentRef
from mq.base.errors import Draining, FrontStoreFull, NotFound, PeerFailed, PeerSilent, PeerUnreachable, Repeatable
from mq.forwarding import forward_batcher, remote_segment
from mq.forwarding.remote_segment import RemoteSegment
from mq.http.problems import problem_of
from mq.peers.part_batch import Part, unpack_parts
from mq.peers.peers import Peers
from mq.peers.transport import PeerAnswer
from tests.support.segment.segment_owners import offset_of, single

REF = SegmentRef("t", 3)
REQUEST = RequestId("p", 1)


class Owner:
    """The other end: what it was sent, and what it answers; it waits while `gate` is shut."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[Part, list[bytes]]]] = []
        self.urls: list[str] = []
        self.request_ids: list[str | None] = []
        self.errors: list[Exception] = []
        self.refused: dict[bytes, Exception] = {}
        self.end = 0
        self.missing = 0
        self.under_way = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.stores = asyncio.Event()
        self.stores.set()

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        self.under_way += 1
        self.request_ids.append(headers.get(request_ids.HEADER))
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
            for part, rows in unpack_parts(bytes(body), MessageSchema.of().rows)
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
        self.took_seconds: list[float] = []
        self.clock = ManualClock()
        self.segment = self.make("http://b/")

    def make(self, url: str | None) -> RemoteSegment:
        return RemoteSegment(
            Peers(self.owner),
            self.clock,
            REF,
            url=url,
            version=7,
            on_moved=self._moved,
            on_forwarded=self.took_seconds.append,
        )

    def _moved(self) -> None:
        self.moved += 1

    def append(
        self, value: bytes, request: RequestId | None = None, *, size_bytes: int = 10, replicated: bool = False
    ) -> "asyncio.Future[list[Position]]":
        return self.segment.append(single(value), size_bytes, request, replicated=replicated)

    async def start_calls(self) -> "list[asyncio.Future[list[Position]]]":
        """As many calls as there may be at once, with a message each; the owner's gate is shut for them."""
        self.owner.gate.clear()
        futures = []
        for n in range(forward_batcher.CALLS_AT_ONCE):
            futures.append(self.append(b"%d" % n))
            await settle()
        return futures

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
    assert world.segment.is_open and world.moved == 0


async def test_a_call_names_the_requests_that_it_is_made_for(world: World) -> None:
    with request_ids.within("first"):
        calls = await world.start_calls()
        for id_ in ("a", "b", "a"):
            with request_ids.within(id_):
                calls.append(world.append(b"x"))
    calls.append(world.append(b"y"))
    world.owner.gate.set()
    await asyncio.gather(*calls)
    await world.append(b"z")
    assert world.owner.request_ids == ["first", "first", "a,b", None]


async def test_it_tells_how_long_each_call_took(world: World) -> None:
    world.owner.gate.clear()
    future = world.append(b"x")
    await settle()
    await world.clock.advance(0.3)
    assert world.took_seconds == []
    world.owner.gate.set()
    await future
    assert world.took_seconds == [pytest.approx(0.3)]


async def test_what_arrives_during_calls_goes_together_with_a_later_one(world: World) -> None:
    futures = await world.start_calls()
    futures += [world.append(b"%d" % n) for n in range(2, 6)]
    world.owner.gate.set()
    assert [offset_of(await future) for future in futures] == list(range(6))
    assert world.sent() == [[b"0"], [b"1"], [b"2", b"3", b"4", b"5"]]


async def test_what_has_waited_for_a_slow_owner_goes_as_well(world: World) -> None:
    """It is to be there when the owner begins its next file; pauses grow, and calls are bounded."""
    futures = await world.start_calls()
    waited_seconds = []
    for late in range(forward_batcher.LATE_CALLS):
        futures += [world.append(b"late"), world.append(b"late")]
        waited_seconds.append(0.0)
        await settle()
        while world.owner.under_way == forward_batcher.CALLS_AT_ONCE + late:
            await world.clock.advance(forward_batcher.LATE_SECONDS)
            waited_seconds[-1] += forward_batcher.LATE_SECONDS
    assert waited_seconds == pytest.approx(
        [forward_batcher.LATE_SECONDS * 2**n for n in range(forward_batcher.LATE_CALLS)]
    )
    futures.append(world.append(b"last"))
    await settle()
    await world.clock.advance(100)
    assert world.owner.under_way == forward_batcher.CALLS_AT_ONCE + forward_batcher.LATE_CALLS
    world.owner.gate.set()
    assert sorted([offset_of(await future) for future in futures]) == list(range(len(futures)))


async def test_what_waited_for_a_late_call_goes_at_once_when_a_call_ends(world: World) -> None:
    futures = await world.start_calls()
    futures.append(world.append(b"2"))
    await settle()
    world.owner.gate.set()
    await asyncio.gather(*futures)
    await world.clock.advance(1)
    assert world.sent() == [[b"0"], [b"1"], [b"2"]]


async def test_leaving_fails_what_waited_for_a_late_call(world: World) -> None:
    futures = await world.start_calls()
    futures.append(world.append(b"2"))
    leaving = asyncio.create_task(world.segment.leave())
    await settle()
    with pytest.raises(SegmentMoved):
        world.append(b"too late")
    await world.clock.advance(remote_segment.LAST_ANSWERS_SECONDS)
    await leaving
    assert all(isinstance(future.exception(), OutcomeUnknown) for future in futures[:-1])
    assert isinstance(futures[-1].exception(), SegmentMoved)
    assert world.owner.under_way == forward_batcher.CALLS_AT_ONCE


async def test_what_arrives_at_the_same_time_goes_together(world: World) -> None:
    await asyncio.gather(*(world.append(b"%d" % n) for n in range(3)))
    assert world.sent() == [[b"0", b"1", b"2"]]


async def test_neighbouring_singles_are_one_part_to_the_owner(world: World) -> None:
    """What has an id or several rows stays a part of its own; another kind of acknowledgement has its own calls."""
    rows = pa.RecordBatch.from_pylist([{"value": b"r0"}, {"value": b"r1"}], schema=MessageSchema.of().rows)
    futures = [
        world.append(b"0"),
        world.append(b"1"),
        world.append(b"2", replicated=True),
        world.append(b"3", replicated=True),
        world.append(b"4", REQUEST),
        world.append(b"5"),
        world.segment.append(rows, 20),
        world.append(b"6"),
    ]
    positions = [await future for future in futures]
    assert positions[:2] + positions[4:] == [
        *([Position(3, offset, 1)] for offset in range(4)),
        [Position(3, 4, 2)],
        [Position(3, 6, 1)],
    ]
    assert positions[2:4] == [[Position(3, 7, 1)], [Position(3, 8, 1)]]
    assert world.owner.batches == [
        [
            (Part(2, 20), [b"0", b"1"]),
            (Part(1, 10, REQUEST), [b"4"]),
            (Part(1, 10), [b"5"]),
            (Part(2, 20), [b"r0", b"r1"]),
            (Part(1, 10), [b"6"]),
        ],
        [(Part(2, 20, replicated=True), [b"2", b"3"])],
    ]


async def test_singles_that_are_one_part_to_the_owner_are_refused_together(world: World) -> None:
    world.owner.refused = {b"0": SegmentMoved()}
    futures = [world.append(b"0"), world.append(b"1")]
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [SegmentMoved] * 2


async def test_a_batch_is_bounded_and_a_part_stays_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_batcher, "BATCH_BYTES", 25)
    futures = await world.start_calls()
    futures += [world.append(b"%d" % n) for n in range(2, 5)]
    futures.append(world.append(b"large", size_bytes=1000))
    world.owner.gate.set()
    await asyncio.gather(*futures)
    assert world.sent() == [[b"0"], [b"1"], [b"2", b"3"], [b"4"], [b"large"]]


async def test_what_one_call_has_no_room_for_goes_with_another_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward_batcher, "BATCH_BYTES", 25)
    world.owner.gate.clear()
    futures = [world.append(b"%d" % n) for n in range(4)]
    await settle()
    assert world.owner.under_way == 2
    world.owner.gate.set()
    await asyncio.gather(*futures)
    assert world.sent() == [[b"0", b"1"], [b"2", b"3"]]


async def test_unreachable_nothing_was_sent(world: World) -> None:
    """So all of it may go to another segment."""
    world.owner.errors = [PeerUnreachable(), PeerUnreachable()]
    futures = await world.start_calls()
    futures += [world.append(b"2", REQUEST), world.append(b"3")]
    world.owner.gate.set()
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [SegmentMoved] * 4
    assert world.moved == 1 and world.sent() == []
    with pytest.raises(SegmentMoved):
        world.append(b"more")


async def test_closing_before_a_call_has_begun(world: World) -> None:
    future = world.append(b"0")
    await world.segment.close()
    with pytest.raises(SegmentMoved):
        future.result()
    await settle()
    assert world.sent() == []


@pytest.mark.parametrize("missing", [False, True])
async def test_an_unknown_outcome_is_told_but_for_requests_with_an_id(world: World, missing: bool) -> None:
    """Those are found again; the others must not be sent a second time. What was never sent may be."""
    world.owner.gate.clear()
    if missing:
        world.owner.missing = 1
    else:
        world.owner.errors = [PeerSilent(), PeerSilent()]
    futures = [world.append(b"plain")]
    await settle()
    futures.append(world.append(b"known", REQUEST))
    await settle()
    futures.append(world.append(b"waiting"))
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
    world.owner.stores.clear()
    held_up = []
    for n in range(forward_batcher.CALLS_AT_ONCE):
        held_up.append(world.append(b"stored", RequestId("r", n)))
        await settle()
    await world.append(b"6", RequestId("p", 6), replicated=True)  # all of its others are answered: it waits for none
    assert not any(future.done() for future in held_up)
    world.owner.stores.set()
    await asyncio.gather(*held_up)


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


@pytest.mark.parametrize("request_id", [None, REQUEST])
async def test_a_full_owner_is_told_as_such_and_keeps_its_segment(world: World, request_id: RequestId | None) -> None:
    world.owner.errors = [FrontStoreFull()]
    world.owner.gate.clear()
    refused = world.append(b"x", request_id)
    await settle()
    later = world.append(b"y")
    world.owner.gate.set()
    with pytest.raises(FrontStoreFull):
        await refused
    assert offset_of(await later) == 0
    assert world.segment.is_open and world.moved == 0


@pytest.mark.parametrize("request_id", [None, REQUEST])
@pytest.mark.parametrize(
    ("error", "told"),
    [(SegmentMoved(), SegmentMoved), (Draining(), Draining), (NotFound("topic", "none"), PeerFailed)],
)
async def test_a_call_that_was_certainly_refused(
    world: World, error: Exception, told: type[Exception], request_id: RequestId | None
) -> None:
    world.owner.errors = [error]
    world.owner.gate.clear()
    refused = world.append(b"x", request_id)
    for n in range(forward_batcher.CALLS_AT_ONCE):
        await settle()
        waiting = world.append(b"%d" % n)
    world.owner.gate.set()
    with pytest.raises(told):
        await refused
    with pytest.raises(SegmentMoved):
        await waiting
    assert not world.segment.is_open and world.moved == 1


async def test_each_part_has_its_own_outcome(world: World) -> None:
    first = await world.start_calls()
    world.owner.refused = {b"old": SequenceExpired(), b"odd": ValueError()}
    later = [world.append(b"old", REQUEST), world.append(b"fine"), world.append(b"odd", RequestId("p", 2))]
    world.owner.gate.set()
    await asyncio.gather(*first)
    outcomes = await asyncio.gather(*later, return_exceptions=True)
    assert isinstance(outcomes[0], SequenceExpired) and isinstance(outcomes[2], OutcomeUnknown)
    assert outcomes[1] == [Position(3, 2, 1)]
    assert world.segment.is_open and world.moved == 0


async def test_a_part_that_moved_ends_it(world: World) -> None:
    world.owner.refused = {b"0": SegmentMoved()}
    with pytest.raises(SegmentMoved):
        await world.append(b"0")
    assert not world.segment.is_open and world.moved == 1


async def test_whoever_gives_up_waiting_disturbs_nobody(world: World) -> None:
    world.owner.gate.clear()
    gone, stays = world.append(b"gone"), world.append(b"stays")
    gone.cancel()
    world.owner.gate.set()
    assert offset_of(await stays) == 1


async def test_closing_says_what_may_be_stored_and_what_is_not(world: World) -> None:
    sent = await world.start_calls()
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
    assert not nowhere.is_open
    with pytest.raises(SegmentMoved):
        nowhere.append(single(b"x"), 1)
