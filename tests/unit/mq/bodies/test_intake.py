import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from filer.clock import settle
from mq.base.errors import BodyTimeout, BodyTooLarge, FrontStoreFull, Malformed, UnsupportedMedia
from mq.bodies.intake import ClientGone, Intake, as_bytes
from mq.limits.arrivals import Arrivals
from mq.limits.front_store import FrontStore
from mq.limits.room import STALLED_SECONDS, STEP_BYTES
from mq.limits.turns import Turns

MIB = 1024 * 1024
ARRIVING_BYTES = 512 * 1024


def sent(*parts: bytes, gone: bool = False) -> Callable[[], Awaitable[dict[str, Any]]]:
    """An ASGI `receive` of these parts; where `gone`, the client leaves after them."""
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": part, "more_body": gone or n < len(parts) - 1} for n, part in enumerate(parts)
    ]
    if gone:
        messages.append({"type": "http.disconnect"})
    left = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(left)

    return receive


def intake(store: FrontStore, limit_bytes: int = MIB) -> Intake:
    return Intake(store, limit_bytes, "t", wait=False)


@pytest.mark.parametrize("declared", [None, 6, 0])
async def test_bodies_come_in_parts(declared: int | None) -> None:
    store = FrontStore(MIB)
    with intake(store) as held:
        assert await held.read(sent(b"ab", b"", b"cdef"), declared) == b"abcdef"
        assert store.pending_bytes == held.held_bytes == 6
    assert store.pending_bytes == 0


async def test_limits_hold_declared_or_not() -> None:
    store = FrontStore(MIB)
    for parts, declared in [((b"x" * 11,), None), ((b"x" * 6, b"x" * 5), None), ((), 11), ((b"x" * 11,), 5)]:
        with pytest.raises(BodyTooLarge, match="10 bytes") as caught, intake(store, 10) as held:
            await held.read(sent(*parts), declared)
        assert (caught.value.limit_bytes, caught.value.topic) == (10, "t")
        assert store.pending_bytes == 0


async def test_what_can_never_fit_is_too_large() -> None:
    with pytest.raises(BodyTooLarge), intake(FrontStore(10), MIB) as held:
        await held.read(sent(b"x" * 11), 11)


async def test_no_room() -> None:
    store = FrontStore(10)
    store.try_reserve(5)
    for declared in (None, 6):
        with pytest.raises(FrontStoreFull), intake(store) as held:
            await held.read(sent(b"abc", b"def"), declared)
        assert store.pending_bytes == 5


async def test_clients_that_leave() -> None:
    store = FrontStore(MIB)
    for receive in (sent(b"abc", gone=True), sent(gone=True)):
        with pytest.raises(ClientGone), intake(store) as held:
            await held.read(receive, 100)
        assert store.pending_bytes == 0


@pytest.mark.parametrize("size_bytes", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 7])
async def test_gzip(size_bytes: int) -> None:
    data = bytes(size_bytes)
    with intake(FrontStore(8 * MIB), 8 * MIB) as held:
        assert await held.inflate(gzip.compress(data), "gzip") == data
        assert held.held_bytes == size_bytes
        assert await held.inflate(b"as it is", "identity") == b"as it is"


@pytest.mark.parametrize("size_bytes", [0, 1, 2 * MIB, 2 * MIB + 1, 9 * MIB + 7])
async def test_a_large_body_is_copied_in_turns(size_bytes: int) -> None:
    """A copy of 60 MiB stops everything else for some 30 ms."""
    body, rounds = bytes(range(256)) * (size_bytes // 256 + 1), 0
    copying = asyncio.create_task(as_bytes(memoryview(body)[:size_bytes], Turns(lambda: 0.0).bodies))
    while not copying.done():
        rounds += 1
        await asyncio.sleep(0)
    assert copying.result() == body[:size_bytes]
    assert rounds >= size_bytes // (2 * MIB)


async def test_gzip_bombs() -> None:
    store = FrontStore(8 * MIB)
    with pytest.raises(BodyTooLarge), intake(store, 2 * MIB) as held:
        await held.inflate(gzip.compress(bytes(100 * MIB)), "gzip")
    assert store.pending_bytes == 0


async def test_what_is_no_gzip() -> None:
    whole = gzip.compress(b"data")
    with intake(FrontStore(MIB)) as held:
        for bad in (b"", b"data", whole[:-1], whole + b"x", whole + whole, zlib.compress(b"data")):
            with pytest.raises(Malformed, match="not valid gzip"):
                await held.inflate(bad, "gzip")
        for encoding in ("br", "gzip, gzip", "deflate"):
            with pytest.raises(UnsupportedMedia, match="send gzip or none"):
                await held.inflate(whole, encoding)


class Sender:
    """A client that sends its body when the test says so."""

    def __init__(self) -> None:
        self._parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def send(self, part: bytes, *, more: bool = True) -> None:
        """Send a part, which arrives the next time that anybody reads."""
        self._parts.put_nowait({"type": "http.request", "body": part, "more_body": more})

    async def receive(self) -> dict[str, Any]:
        """As ASGI has it."""
        return await self._parts.get()


class Room:
    """A front store of 1 MiB whose time the test sets, and bodies that arrive in it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.store = FrontStore(MIB, lambda: self.seconds)
        self.arrivals = Arrivals(ARRIVING_BYTES)

    def read(self, sender: Sender, declared: int | None, *, wait: bool = False) -> "asyncio.Task[int]":
        """Begin to read a body; its length in the end."""

        async def read() -> int:
            with Intake(self.store, MIB, None, wait=wait, patience_seconds=20, arrivals=self.arrivals) as held:
                return len(await held.read(sender.receive, declared))

        return asyncio.create_task(read())


async def test_room_is_taken_as_the_bytes_arrive() -> None:
    room, sender = Room(), Sender()
    reading = room.read(sender, MIB)
    await settle()
    assert room.store.pending_bytes == 0
    sender.send(b"x" * 100)
    await settle()
    assert room.store.pending_bytes == 100
    sender.send(b"x" * (MIB - 100), more=False)
    assert await reading == MIB
    assert room.store.pending_bytes == 0


async def test_who_stalls_gives_way_and_who_gets_on_does_not() -> None:
    room, stalls, gets_on, comes = Room(), Sender(), Sender(), Sender()
    stalled = room.read(stalls, MIB)
    stalls.send(b"x" * (MIB // 2))
    going = room.read(gets_on, MIB // 2)
    gets_on.send(b"x" * (MIB // 4))
    await settle()
    room.seconds = STALLED_SECONDS
    gets_on.send(b"x" * STEP_BYTES)
    await settle()
    comes.send(b"x" * (MIB // 2), more=False)
    assert await room.read(comes, MIB // 2) == MIB // 2
    with pytest.raises(BodyTimeout, match="stalled"):
        await stalled
    gets_on.send(b"", more=False)
    assert await going == MIB // 4 + STEP_BYTES
    assert room.store.pending_bytes == 0 and not room.store.has_stalled


async def test_a_drop_now_and_then_is_no_progress() -> None:
    room, drips = Room(), Sender()
    dripping = room.read(drips, MIB)
    for second in range(4):
        room.seconds = float(second)
        drips.send(b"x" * 1000)
        await settle()
    assert room.store.has_stalled
    room.store.give_way()
    with pytest.raises(BodyTimeout):
        await dripping


async def test_nobody_is_cut_off_while_there_is_room() -> None:
    room, slow, comes = Room(), Sender(), Sender()
    reading = room.read(slow, MIB)
    slow.send(b"x")
    await settle()
    room.seconds = 1000.0
    comes.send(b"x" * (MIB // 2), more=False)
    assert await room.read(comes, MIB // 2) == MIB // 2
    slow.send(b"x", more=False)
    assert await reading == 2


async def test_large_bodies_that_wait_come_one_after_the_other() -> None:
    room, first, second, small = Room(), Sender(), Sender(), Sender()
    one = room.read(first, MIB, wait=True)
    await settle()
    two = room.read(second, MIB, wait=True)
    second.send(b"x" * MIB, more=False)
    await settle()
    assert not two.done()  # the room was promised to the first, of which nothing has come
    small.send(b"x" * 1000, more=False)
    assert await room.read(small, 1000, wait=True) == 1000  # a promise takes no room
    first.send(b"x" * MIB, more=False)
    assert (await one, await two) == (MIB, MIB)
    assert room.store.pending_bytes == 0 and room.store.try_promise(MIB)


async def test_a_promise_of_who_stalls_is_taken_back() -> None:
    room, silent, waits = Room(), Sender(), Sender()
    stalled = room.read(silent, MIB, wait=True)
    await settle()
    room.seconds = STALLED_SECONDS
    waits.send(b"x" * MIB, more=False)
    assert await room.read(waits, MIB, wait=True) == MIB
    with pytest.raises(BodyTimeout):
        await stalled


async def test_who_waits_for_room_does_not_count_as_stalled() -> None:
    room, grows = Room(), Sender()
    assert room.store.try_reserve(MIB - 10)
    reading = room.read(grows, None, wait=True)
    grows.send(b"x" * 10)
    grows.send(b"x" * 10, more=False)
    await settle()
    room.seconds = 1000.0
    assert not room.store.has_stalled
    room.store.release(MIB - 10)
    assert await reading == 20


async def test_bodies_wait_for_those_that_began_before_them() -> None:
    room, first, second, third, small = Room(), Sender(), Sender(), Sender(), Sender()
    one, two, three = (room.read(sender, None) for sender in (first, second, third))
    for sender in (first, second, third):
        sender.send(b"x" * (ARRIVING_BYTES // 2 + 1))
    await settle()
    for sender in (first, second, third):
        sender.send(b"x", more=False)
    assert await one == ARRIVING_BYTES // 2 + 2  # the first goes on while the others would hold too much
    assert (await two, await three) == (ARRIVING_BYTES // 2 + 2,) * 2
    small.send(b"whole", more=False)
    assert await room.read(small, 5) == 5
    assert room.arrivals.total_bytes == room.store.pending_bytes == 0


async def test_who_waits_for_others_is_not_read_and_goes_on_when_they_stall() -> None:
    room, stalls, waits = Room(), Sender(), Sender()
    stalled, waiting = room.read(stalls, None), room.read(waits, None)
    stalls.send(b"x")
    waits.send(b"x" * (ARRIVING_BYTES + 1))
    waits.send(b"x", more=False)
    await settle()
    assert not waiting.done() and room.arrivals.total_bytes == ARRIVING_BYTES + 2
    room.seconds = STALLED_SECONDS
    room.store.give_way()
    with pytest.raises(BodyTimeout):
        await stalled
    assert await waiting == ARRIVING_BYTES + 2


async def test_what_is_inflated_waits_for_others() -> None:
    room, first = Room(), Sender()
    reading = room.read(first, None)
    first.send(b"x")
    await settle()
    with Intake(room.store, MIB, None, wait=False, patience_seconds=0, arrivals=room.arrivals) as held:
        assert await held.inflate(gzip.compress(bytes(ARRIVING_BYTES)), "gzip") == bytes(ARRIVING_BYTES)
        with pytest.raises(FrontStoreFull, match="--arriving-bytes"):
            await held.inflate(gzip.compress(bytes(ARRIVING_BYTES + 1)), "gzip")
    first.send(b"", more=False)
    assert await reading == 1
    assert room.arrivals.total_bytes == 0


async def test_what_has_grown_beyond_measure_counts_as_arriving_until_it_is_answered() -> None:
    room, grown_bytes = Room(), 5 * MIB
    store = FrontStore(16 * MIB)
    with Intake(store, 8 * MIB, None, wait=False, arrivals=room.arrivals) as held:
        await held.inflate(gzip.compress(b"usual" * 10), "gzip")
        assert room.arrivals.total_bytes == 0
        await held.inflate(gzip.compress(bytes(grown_bytes)), "gzip")
        assert room.arrivals.total_bytes == held.held_bytes == grown_bytes
    assert room.arrivals.total_bytes == store.pending_bytes == 0


async def test_messages_that_are_nearly_empty_hold_what_they_take_as_columns() -> None:
    room, sender = Room(), Sender()
    with Intake(room.store, 1000, None, wait=False) as held:
        sender.send(b"x" * 900, more=False)
        await held.read(sender.receive, 900)
        assert await held.hold_rows(10) == held.held_bytes == 900
        assert await held.hold_rows(1000) == room.store.pending_bytes == 64_000
        with pytest.raises(FrontStoreFull), Intake(room.store, 1000, None, wait=False) as other:
            await other.hold_rows(MIB // 64)
    assert room.store.pending_bytes == 0
