"""What an owner's followers get, over peers that cannot be reached, lose answers, refuse, or are full."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

from filer.clock import ManualClock, settle
from filer.errors import OutcomeUnknown
from filer.format.requests import RequestId
from filer.format.schema import MessageSchema
from filer.segment.next_file import ACCEPTED_OVERHEAD_BYTES, Accepted, rows_of_payloads
from filer.segment.segment_log import SegmentRef
from mq.base.errors import PeerUnreachable
from mq.http.problems import problem_of
from mq.limits.front_store import FrontStore
from mq.peers.part_batch import unpack_parts
from mq.peers.peers import Peers
from mq.peers.transport import PeerAnswer
from mq.replication import followers as subject
from mq.replication.followers import Followers
from mq.replication.replica_buffers import ReplicaBuffers
from tests.support.segment.segment_owners import single

REF = SegmentRef("t", 0)
HELD_BYTES = 10 + ACCEPTED_OVERHEAD_BYTES
LIMIT_BYTES = 100 * HELD_BYTES


class FollowingBroker:
    """A follower at the other end: real copies, and trouble as told for the next calls."""

    def __init__(self) -> None:
        self.front_store = FrontStore(LIMIT_BYTES)
        self.copies = ReplicaBuffers(self.front_store)
        self.before: list[Exception] = []
        self.after: list[Exception] = []
        self.calls = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def answer(self, url: str, body: bytes) -> PeerAnswer:
        self.calls += 1
        await self.gate.wait()
        if self.before:
            raise self.before.pop(0)
        query = {name: int(values[0]) for name, values in parse_qs(urlsplit(url).query).items()}
        try:
            held_end = self._take(query["base"], query["stored"], body)
        except Exception as error:
            problem = problem_of(error)
            return PeerAnswer(problem.status, {}, problem.body())
        if self.after:
            raise self.after.pop(0)
        return PeerAnswer(200, {}, orjson.dumps({"held_end": held_end}))

    def _take(self, base: int, stored_end: int, body: bytes) -> int:
        entries = []
        for part, rows in unpack_parts(body, MessageSchema.of().rows):
            entries.append(Accepted(rows, base, part.count, part.size_bytes, part.timestamp_us, part.request))
            base += part.count
        return self.copies.take("t", 0, entries, stored_end)

    def held(self) -> list[bytes]:
        rows = rows_of_payloads(REF, [each.payload for each in self.copies.refuse("t", 0)])
        return [bytes(value) for value in rows["value"].to_pylist()]


class Transport:
    """Brings calls to the followers by the host in their URL."""

    def __init__(self, brokers: Mapping[str, FollowingBroker]) -> None:
        self._brokers = brokers

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        return await self._brokers[urlsplit(url).netloc].answer(url, bytes(body))

    async def close(self) -> None:
        return


class World:
    """An owner's segment with two followers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.brokers = {"b": FollowingBroker(), "c": FollowingBroker()}
        self.addresses: dict[str, str | None] = {"b": "http://b", "c": "http://c"}
        self.looked_up: Counter[str] = Counter()
        self.followers = Followers(
            REF,
            ["b", "c"],
            1,
            clock=self.clock,
            peers=Peers(Transport(self.brokers)),
            last_url_of=self._last_url_of,
        )
        self.held: list[int] = []
        self.refusals = 0
        self.followers.attach(self.held.append, self._refused)
        self.accepted = 0

    def _last_url_of(self, broker: str) -> str | None:
        self.looked_up[broker] += 1
        return self.addresses[broker]

    def _refused(self) -> None:
        self.refusals += 1
        self.followers.close()

    def send(self, *values: bytes, size_bytes: int = 10) -> None:
        for value in values:
            request = RequestId("p", self.accepted)
            self.followers.send(Accepted(single(value), self.accepted, 1, size_bytes, 1000 + self.accepted, request))
            self.accepted += 1


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.followers.close()
    await settle()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_held_once_all_of_them_hold_it(world: World) -> None:
    world.brokers["c"].gate.clear()
    world.send(b"0", b"1")
    await settle()
    assert world.held == []
    world.brokers["c"].gate.set()
    await settle()
    assert world.held == [2]
    for broker in world.brokers.values():
        [first, second] = broker.copies.refuse("t", 0)
        assert (first.base, first.timestamp_us, first.request) == (0, 1000, RequestId("p", 0))
        assert (second.base, second.timestamp_us, second.request) == (1, 1001, RequestId("p", 1))
        assert broker.held() == [b"0", b"1"]


async def test_what_arrives_during_a_call_goes_with_the_next(world: World) -> None:
    world.brokers["b"].gate.clear()
    world.send(b"0")
    await settle()
    world.send(b"1", b"2", b"3")
    world.brokers["b"].gate.set()
    await settle()
    assert world.brokers["b"].calls == 2 and world.held == [1, 4]
    assert world.brokers["b"].held() == [b"0", b"1", b"2", b"3"]


async def test_a_call_is_about_a_batch_long(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "BATCH_BYTES", 25)
    world.send(*(b"%d" % n for n in range(5)))
    await settle()
    assert world.brokers["b"].calls == 3 and world.held[-1] == 5
    world.send(b"large", size_bytes=100)
    await settle()
    assert world.held[-1] == 6


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [PeerUnreachable(), OutcomeUnknown(), RuntimeError("a defect")])
async def test_repeated_until_it_is_known_to_be_held(world: World, when: str, error: Exception) -> None:
    getattr(world.brokers["b"], when).extend([error] * 3)
    world.send(b"0", b"1")
    await settle()
    assert world.held == []
    await world.clock.advance(5)
    assert world.held == [2] and world.brokers["b"].calls == 4
    assert world.brokers["b"].held() == [b"0", b"1"]


async def test_in_step_while_every_follower_takes_what_it_is_sent(world: World) -> None:
    world.send(b"0")
    await settle()
    assert world.followers.in_step
    world.brokers["b"].before.append(OutcomeUnknown())
    world.send(b"1")
    await settle()
    assert not world.followers.in_step
    await world.clock.advance(1)
    assert world.followers.in_step and world.held[-1] == 2


async def test_pauses_grow_while_a_follower_is_gone_and_it_goes_on_when_it_is_back(world: World) -> None:
    world.addresses["b"] = None
    asked_before = world.looked_up["b"]
    world.send(b"0")
    await settle()
    await world.clock.advance(60)
    assert world.brokers["b"].calls == 0 and world.held == []
    # Doubling from the first pause to the longest, and that one again and again.
    longest_pauses = 60 / subject.RETRY_LONGEST_SECONDS
    assert longest_pauses <= world.looked_up["b"] - asked_before <= longest_pauses + 8
    world.addresses["b"] = "http://b"
    await world.clock.advance(subject.RETRY_LONGEST_SECONDS)
    assert world.held == [1]


async def test_what_is_stored_meanwhile_need_not_be_sent(world: World) -> None:
    world.brokers["b"].before.append(PeerUnreachable())
    world.send(b"0", b"1")
    await settle()
    world.followers.stored(2)
    world.send(b"2")
    await world.clock.advance(1)
    assert world.brokers["b"].held() == [b"2"] and world.held[-1] == 3


async def test_a_dead_follower_keeps_no_more_waiting_than_is_not_stored(world: World) -> None:
    world.addresses["b"] = None
    for n in range(100):
        world.send(b"%d" % n)
        world.followers.stored(n)
        await settle(3)
    [stream, _] = world.followers._streams
    assert len(stream._waiting) == 1


async def test_an_idle_follower_is_told_what_is_stored(world: World) -> None:
    """Else it would keep room for it until the segment is sealed, and have none for others in the end."""
    world.send(b"0", b"1")
    await settle()
    assert world.brokers["b"].front_store.pending_bytes == 2 * HELD_BYTES
    world.followers.stored(2)
    await settle()
    await world.clock.advance(subject.STORED_END_SECONDS)
    assert world.brokers["b"].front_store.pending_bytes == 0
    calls = world.brokers["b"].calls
    await world.clock.advance(100)
    assert world.brokers["b"].calls == calls == 2, "once is enough"
    world.send(b"2")
    await settle()
    assert world.held == [2, 3] and world.brokers["b"].held() == [b"2"]


async def test_what_goes_on_tells_it_as_well(world: World) -> None:
    world.send(b"0")
    await settle()
    world.followers.stored(1)
    world.send(b"1")
    await settle()
    assert world.brokers["b"].calls == 2 and world.brokers["b"].front_store.pending_bytes == HELD_BYTES
    await world.clock.advance(100)
    assert world.brokers["b"].calls == 2


async def test_a_full_follower_takes_it_when_there_is_room(world: World) -> None:
    assert world.brokers["b"].front_store.try_reserve(LIMIT_BYTES - 3 * HELD_BYTES // 2)
    world.send(b"0", b"1")
    await world.clock.advance(3)
    assert world.held == []
    world.brokers["b"].front_store.release(LIMIT_BYTES - 3 * HELD_BYTES // 2)
    await world.clock.advance(subject.RETRY_LONGEST_SECONDS)
    assert world.held == [2] and world.brokers["b"].held() == [b"0", b"1"]


async def test_a_gap_is_never_taken_for_held(world: World) -> None:
    world.brokers["b"].copies.keep_only("t", {0})
    world.accepted = 5
    world.send(b"5")
    await world.clock.advance(3)
    assert world.held == [] and world.refusals == 0
    world.followers.stored(5)
    await world.clock.advance(subject.RETRY_LONGEST_SECONDS)
    assert world.held == [6]


async def test_a_refusal_ends_it(world: World) -> None:
    world.send(b"0")
    await settle()
    world.brokers["b"].copies.refuse("t", 0)
    world.send(b"1")
    await settle()
    assert world.refusals == 1 and world.held == [1]
    calls = world.brokers["b"].calls
    world.send(b"2")
    await world.clock.advance(10)
    assert world.brokers["b"].calls == calls and world.held == [1]
