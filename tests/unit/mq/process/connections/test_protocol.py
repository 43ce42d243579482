"""What becomes of the request that is being answered when its connection ends."""

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from filer import request_ids
from filer.clock import ManualClock, settle
from mq.base.settings import BrokerSettings
from mq.metrics.metrics import Metrics
from mq.process.connections.limits import MOST_AHEAD, connection_limits
from mq.process.connections.protocol import LimitedProtocol
from mq.process.connections.unwanted import STEP_SECONDS
from mq.process.connections.watch import ConnectionWatch

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


class Transport(asyncio.Transport):
    """Keeps what is written, and, as uvloop's, lets nothing be written once it is closed."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 1), "sockname": ("192.0.2.2", 2)})
        self.written = b""
        self.closed = self.paused = False

    def write(self, data: Any) -> None:
        assert not self.closed, "written after the end"
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def abort(self) -> None:
        self.closed = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert not self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        assert not self.closed
        self.paused = True

    def resume_reading(self) -> None:
        assert not self.closed, "read on after the end"
        self.paused = False


def new_watch(clock: ManualClock) -> ConnectionWatch:
    return ConnectionWatch(connection_limits(BrokerSettings(), 10_000, 0), clock, Metrics(), request_ids.maker(clock))


def connected(app: Any, watch: ConnectionWatch) -> tuple[LimitedProtocol, Transport]:
    """A connection that an app serves."""
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none", proxy_headers=False)
    protocol, transport = LimitedProtocol(config, ServerState(), {}, watch=watch), Transport()
    protocol.connection_made(transport)
    return protocol, transport


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """An app that answers before the end of the body."""
    await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


POST = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 30\r\n\r\n0123456789"


async def test_what_comes_of_a_body_after_its_answer_is_read_slowly() -> None:
    clock = ManualClock()
    protocol, transport = connected(refuse, new_watch(clock))
    protocol.data_received(POST)
    await settle()
    assert b" 413 " in transport.written and not transport.paused
    protocol.data_received(b"0123456789")
    await settle()
    assert transport.paused
    await clock.advance(STEP_SECONDS)
    assert not transport.paused
    protocol.data_received(b"0123456789" + GET)
    await settle()
    assert transport.written.count(b" 413 ") == 2 and not transport.paused


async def test_one_that_is_closed_meanwhile_does_not_keep_others_from_being_read() -> None:
    clock = ManualClock()
    watch = new_watch(clock)
    pairs = [connected(refuse, watch) for _ in range(2)]
    for protocol, _ in pairs:
        protocol.data_received(POST)
    await settle()
    for protocol, _ in pairs:
        protocol.data_received(b"0123456789")
    await settle()
    (_, closed), (_, other) = pairs
    closed.close()
    await clock.advance(2 * STEP_SECONDS)
    assert closed.paused and not other.paused


@pytest.mark.parametrize("ends", ["refused", "lost"])
async def test_an_endpoint_whose_client_is_gone_sends_nothing_though_requests_wait_behind_it(
    ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, answered = asyncio.Event(), 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal answered
        await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})
        answered += 1

    watch = new_watch(ManualClock())
    protocol, transport = connected(app, watch)
    protocol.data_received(GET * 2)
    await settle()
    if ends == "refused":
        protocol.data_received(GET * (MOST_AHEAD + 1))
    else:
        transport.close()
        protocol.connection_lost(None)
    assert transport.closed and len(watch.connections) == 0
    go_on.set()
    await settle()
    assert answered == 1 and transport.written == b""
    assert "Exception" not in caplog.text
