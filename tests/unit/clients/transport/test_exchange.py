"""Ending a request in flight does not interrupt the closing of its connections."""

import asyncio

import anyio
import httpx
import pytest

from braidmq.transport.exchange import Exchange


class Connections:
    """As httpcore closes connections: shielded from anyio's cancellation, with waits in between."""

    def __init__(self) -> None:
        self.closing, self.go_on = asyncio.Event(), asyncio.Event()
        self.are_closed = False

    async def close_and_send(self) -> httpx.Response:
        with anyio.CancelScope(shield=True):
            self.closing.set()
            await self.go_on.wait()
            self.are_closed = True
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def test_who_asked_is_cancelled_while_connections_are_closed() -> None:
    connections = Connections()
    asking = asyncio.create_task(Exchange(connections.close_and_send()).response())
    await connections.closing.wait()
    asking.cancel()
    await asyncio.sleep(0)
    assert not asking.done()
    connections.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert connections.are_closed


async def test_it_is_ended_while_connections_are_closed() -> None:
    connections = Connections()
    exchange = Exchange(connections.close_and_send())
    asking = asyncio.create_task(exchange.response())
    await connections.closing.wait()
    ending = asyncio.create_task(exchange.end())
    await asyncio.sleep(0)
    assert not ending.done()
    connections.go_on.set()
    await ending
    assert await asking is None and connections.are_closed


async def test_a_response_that_nobody_takes_is_closed() -> None:
    """It arrived at the moment when its caller was cancelled."""
    response, sent = httpx.Response(200, stream=httpx.ByteStream(b"body")), asyncio.Event()

    async def send() -> httpx.Response:
        await sent.wait()
        return response

    asking = asyncio.create_task(Exchange(send()).response())
    await asyncio.sleep(0)
    sent.set()
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert response.is_closed


async def test_what_fails_says_so() -> None:
    async def send() -> httpx.Response:
        raise httpx.ConnectError("no")

    with pytest.raises(httpx.ConnectError):
        await Exchange(send()).response()
