"""Of requests of which a part of the head is there, the next pieces are read a few connections at a time."""

import asyncio

import pytest

from filer.clock import ManualClock, settle
from mq.process.connections.half_heads import AT_ONCE, HalfHeads
from mq.process.connections.protocol import LimitedProtocol
from mq.process.connections.socket_reader import FIRST_BYTES, SocketReader
from mq.process.connections.watch import ConnectionWatch
from tests.unit.mq.process.connections.test_protocol import Transport, connected, new_watch, refuse

HALF = b"GET / HTTP/1.1\r\nhost: x\r\nx: "


class Sender:
    def __init__(self) -> None:
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def read_on(self) -> None:
        self.paused = False


def reading(senders: list[Sender]) -> int:
    return sum(not each.paused for each in senders)


async def test_a_few_read_on_in_each_round() -> None:
    half_heads, senders = HalfHeads(), [Sender() for _ in range(3 * AT_ONCE)]
    for sender in senders:
        half_heads.came(sender)
    assert reading(senders) == 0
    for rounds in range(1, 4):
        await asyncio.sleep(0)
        assert reading(senders) == rounds * AT_ONCE
    half_heads.came(senders[0])
    await asyncio.sleep(0)
    assert not senders[0].paused


async def test_who_is_gone_is_not_read() -> None:
    half_heads, senders = HalfHeads(), [Sender() for _ in range(2)]
    for sender in senders:
        half_heads.came(sender)
    half_heads.gone(senders[0])
    half_heads.gone(senders[0])
    await asyncio.sleep(0)
    assert [sender.paused for sender in senders] == [True, False]


@pytest.fixture
def watch() -> ConnectionWatch:
    return new_watch(ManualClock())


def receive(protocol: LimitedProtocol, transport: Transport, data: bytes) -> int:
    """One read of the event loop; how many bytes it took."""
    reader = transport.get_protocol()
    assert isinstance(reader, SocketReader)
    room = reader.get_buffer(-1)
    part = data[: len(room)]
    room[: len(part)] = part
    reader.buffer_updated(len(part))
    return len(part)


async def test_of_many_heads_that_stall_little_is_read_at_once(watch: ConnectionWatch) -> None:
    pairs = [connected(refuse, watch) for _ in range(2 * AT_ONCE)]
    for protocol, transport in pairs:
        assert receive(protocol, transport, HALF + b"x" * 60_000) == FIRST_BYTES
        assert transport.paused
    await asyncio.sleep(0)
    assert [transport.paused for _, transport in pairs] == [False] * AT_ONCE + [True] * AT_ONCE
    protocol, transport = pairs[0]
    assert receive(protocol, transport, b"x" * 50_000) == 50_000
    assert transport.paused
    for protocol, _ in pairs:
        protocol.connection_lost(None)


async def test_a_head_in_pieces_is_served_once_it_is_there(watch: ConnectionWatch) -> None:
    protocol, transport = connected(refuse, watch)
    receive(protocol, transport, HALF)
    await settle()
    assert not transport.paused and not transport.written
    receive(protocol, transport, b"y\r\n\r\n")
    assert not transport.paused
    await settle()
    assert b" 413 " in transport.written
    protocol.connection_lost(None)


async def test_one_that_is_refused_meanwhile_is_not_read_in_its_turn(watch: ConnectionWatch) -> None:
    protocol, transport = connected(refuse, watch)
    receive(protocol, transport, HALF + b"x" * FIRST_BYTES)
    transport.closed = True
    protocol.connection_lost(None)
    await settle()
    assert transport.paused
