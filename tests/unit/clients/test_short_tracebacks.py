"""Errors of the client come without the traceback of its inside, from wherever they leave it."""

import inspect
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest

from braidmq import AsyncClient, BraidMQError, Client, NoConnection
from braidmq.publish.producer import AsyncProducer
from braidmq.read.cursors import AsyncTables
from braidmq.read.payload import AsyncPayload
from braidmq.short_tracebacks import whole_tracebacks
from tests.support.broker.fake_broker import FakeBroker, Fault, refused

NOBODY = "http://127.0.0.1:9"
# Where it was called, how it was asked for, and the one line that raised it again.
MOST_FRAMES = 3


def frames_of(error: BraidMQError) -> list[str]:
    """The files of its traceback, without this one."""
    assert error.__cause__ is None and error.__suppress_context__
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]


async def call(client: AsyncClient) -> None:
    await client.topic("t")


async def publish(client: AsyncClient) -> None:
    await client.publish("t", b"x")


async def list_topics(client: AsyncClient) -> None:
    async for _ in client.topics():
        pass


async def read_messages(client: AsyncClient) -> None:
    async for _ in client.browse("t"):
        pass


async def read_tables(client: AsyncClient) -> None:
    async for _ in client.browse_tables("t"):
        pass


async def await_a_receipt(client: AsyncClient) -> None:
    async with client.producer("t") as producer:
        await (await producer.send(b"x"))


async def flush(client: AsyncClient) -> None:
    async with client.producer("t") as producer:
        await producer.send(b"x")


@pytest.mark.parametrize("use", [call, publish, list_topics, read_messages, read_tables, await_a_receipt, flush])
async def test_asyncio(use: Callable[[AsyncClient], Awaitable[None]], client: AsyncClient, broker: FakeBroker) -> None:
    broker.faults.extend([Fault(refused)] * 1000)
    with pytest.raises(NoConnection) as failure:
        await use(client)
    frames = frames_of(failure.value)
    assert len(frames) < MOST_FRAMES
    assert all("braidmq" in Path(each).parts for each in frames)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    "url",
    ["ftp://x", "", "http://", "http://[::1", ["http://a", "b"]],
    ids=["ftp", "none", "no host", "no end", "list"],
)
def test_a_wrong_address(kind: type[Client | AsyncClient], url: str | list[str]) -> None:
    with pytest.raises(BraidMQError, match="is not a broker's address") as failure:
        kind(url)
    assert len(frames_of(failure.value)) == 1


@pytest.mark.parametrize("kind", [AsyncClient, Client, AsyncProducer, AsyncTables, AsyncPayload])
def test_every_public_method_is_one_that_shortens(kind: type[object]) -> None:
    methods = {name: each for name, each in vars(kind).items() if inspect.isfunction(each) and not name.startswith("_")}
    assert methods and all(hasattr(each, "__wrapped__") for each in methods.values())


async def test_who_looks_for_a_mistake_in_the_client_sees_all() -> None:
    async with AsyncClient(NOBODY) as client:
        with whole_tracebacks(), pytest.raises(NoConnection) as failure:
            await client.topic("t")
    assert failure.value.__cause__ is not None
    assert len(traceback.extract_tb(failure.value.__traceback__)) > MOST_FRAMES


async def test_a_reader_may_stop(client: AsyncClient, broker: FakeBroker) -> None:
    for number in range(3):
        broker.add_topic(f"t{number}")
    topics = client.topics()
    assert (await anext(topics)).topic == "t0"
    assert isinstance(topics, AsyncGenerator)
    await topics.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(topics)
