import io
import tempfile

import httpx
import pytest

from braidmq import AsyncClient, InvalidArgument, Message, PayloadMismatch, Refused
from tests.support.broker.fake_broker import FakeBroker, Fault, broken, streamed
from tests.support.instant_clock import InstantClock

LARGE = bytes(range(256)) * 10_000


async def first(client: AsyncClient) -> Message:
    return await anext(client.browse("t"))


async def test_a_large_value_goes_by_reference_and_comes_back(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    await client.publish("t", LARGE, key="k")
    message = await first(client)
    assert message.value is None
    assert message.ref is not None
    assert message.ref.size_bytes == len(LARGE)
    async with client.open(message) as payload:
        assert payload.size_bytes == len(LARGE)
        assert await payload.read() == LARGE


async def test_a_file_is_uploaded_from_its_current_position(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    with tempfile.TemporaryFile() as file:
        file.write(b"header" + LARGE)
        file.seek(6)
        await client.publish("t", file)
    assert list(broker.uploads.values()) == [LARGE]


async def test_an_upload_is_published_as_often_as_wanted(client: AsyncClient, broker: FakeBroker) -> None:
    topic = broker.add_topic("t")
    upload = await client.upload("t", b"payload")
    await client.publish("t", upload, key="a")
    await client.publish("t", upload, key="b")
    assert upload.size_bytes == 7
    assert topic.rows[0][0]["_ref"] == topic.rows[0][1]["_ref"]
    assert len(broker.uploads) == 1


async def test_a_broken_upload_is_repeated_at_a_new_address(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    broker.faults.extend([None, Fault(broken, after=True)])
    upload = await client.upload("t", LARGE)
    assert len(broker.uploads) == 2
    assert broker.uploads[upload.id] == LARGE


async def test_an_unseekable_file_is_refused(client: AsyncClient) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    with pytest.raises(InvalidArgument, match="read twice"):
        await client.upload("t", Pipe(b"x"))


async def test_inline_values_open_alike(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    await client.publish_many("t", ["inline", None])
    messages = [message async for message in client.browse("t")]
    async with client.open(messages[0]) as payload:
        assert [chunk async for chunk in payload] == [b"inline"]
    async with client.open(messages[1]) as payload:
        assert await payload.read() == b""


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (streamed(LARGE[:-1] + b"!"), "SHA-256"),
        (streamed(LARGE[:-1]), "bytes"),
        (streamed(LARGE, etag='"other"'), "ETag"),
    ],
)
async def test_a_payload_that_is_not_what_was_promised_is_refused(
    client: AsyncClient, broker: FakeBroker, answer: httpx.Response, what: str
) -> None:
    broker.add_topic("t")
    await client.publish("t", LARGE)
    message = await first(client)
    broker.faults.append(Fault(response=answer))
    with pytest.raises(PayloadMismatch, match=what):
        async with client.open(message) as payload:
            await payload.read()


async def test_opening_is_repeated_after_a_broken_connection(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    await client.publish("t", LARGE)
    message = await first(client)
    broker.faults.append(Fault(broken))
    async with client.open(message) as payload:
        assert await payload.read() == LARGE


async def test_a_payload_that_is_not_open_says_so(client: AsyncClient, broker: FakeBroker) -> None:
    broker.add_topic("t")
    await client.publish("t", "v")
    with pytest.raises(InvalidArgument, match="open the payload first"):
        await client.open(await first(client)).read()


class StoreApart:
    """A broker whose payloads are on another server, at presigned addresses."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.at_store: list[httpx.Request] = []
        self.refusal: httpx.Response | None = None

    async def handle(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "store":
            await request.aread()
            self.at_store.append(request)
            if self.refusal is not None:
                return self.refusal
            return streamed(LARGE) if request.method == "GET" else httpx.Response(200)
        answer = await self.broker.handle(request)
        if request.url.path.endswith("/uploads"):
            target = {**answer.json(), "url": "http://store/bucket/u1?signature=s"}
            self.broker.uploads[target["upload"]] = LARGE
            return httpx.Response(201, json=target)
        if request.url.path.endswith("/payload"):
            return httpx.Response(307, headers={"location": "http://store/bucket/u1?signature=s"})
        return answer


async def test_presigned_addresses_get_none_of_the_brokers_headers(broker: FakeBroker, clock: InstantClock) -> None:
    apart = StoreApart(broker)
    broker.add_topic("t")
    async with AsyncClient(
        "http://b", headers={"x-secret": "s"}, http_transport=httpx.MockTransport(apart.handle), clock=clock
    ) as client:
        await client.publish("t", LARGE)
        async with client.open(await first(client)) as payload:
            assert await payload.read() == LARGE
    put, get = apart.at_store
    assert put.content == LARGE
    assert put.headers["x-bound"] == "1"
    assert put.headers["content-length"] == str(len(LARGE))
    assert "transfer-encoding" not in put.headers
    assert "x-secret" not in put.headers
    assert "x-secret" not in get.headers
    assert put.url.query == b"signature=s"


async def test_a_store_that_refuses_is_quoted(broker: FakeBroker, clock: InstantClock) -> None:
    apart = StoreApart(broker)
    apart.refusal = httpx.Response(403, text="<Error><Code>AccessDenied</Code></Error>")
    broker.add_topic("t")
    transport = httpx.MockTransport(apart.handle)
    async with AsyncClient("http://b", http_transport=transport, clock=clock) as client:
        with pytest.raises(Refused, match="http://store answered with Forbidden") as caught:
            await client.publish("t", LARGE)
    assert not caught.value.retryable
