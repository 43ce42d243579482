"""What a client can do to a broker over a socket: nothing is lost, nothing goes on for ever, and all is told."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable

import httpx
import orjson
import pytest

from filer.stores.memory_store import MemoryStore
from mq.http.sockets.publishes import MOST_IN_FLIGHT
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.raw_socket import BINARY, CLOSE, CONTINUATION, PING, frame, raw_socket, upgrade
from tests.support.broker.socket_client import checked, socket_client

TOPIC = "/v1/topics/t"
MIB = 1024 * 1024
PUBLISH = b'{"id":1,"publish":{"value":"x"}}'


@pytest.fixture
async def broker() -> AsyncIterator[HttpBroker]:
    async with http_broker(MemoryStore(), maintenance_interval=3600) as running:
        (await running.client.put(TOPIC)).raise_for_status()
        yield running


@pytest.fixture
async def strict() -> AsyncIterator[HttpBroker]:
    """A broker that has little patience."""
    limits = {"stall_timeout": 0.4, "max_json_bytes": 64 * 1024, "slowest_bytes_per_second": 100_000}
    async with http_broker(MemoryStore(), maintenance_interval=3600, **limits) as running:
        (await running.client.put(TOPIC)).raise_for_status()
        yield running


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


def connections(broker: HttpBroker) -> float:
    return broker.broker.metrics.registry.get_sample_value("braidmq_connections") or 0


async def stored(broker: HttpBroker) -> int:
    return sum((await broker.end_offsets("t")).values())


# -- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status", "part"),
    [
        ({}, 426, "Upgrade: websocket"),
        ({"connection": "Upgrade", "upgrade": "h2c"}, 426, "Upgrade: websocket"),
    ],
)
async def test_a_request_that_opens_no_socket_is_told_how(
    broker: HttpBroker, headers: dict[str, str], status: int, part: str
) -> None:
    answer = await broker.client.get(f"{TOPIC}/socket", headers=headers)
    assert (answer.status_code, answer.headers["upgrade"]) == (status, "websocket")
    assert part in answer.json()["detail"]


@pytest.mark.parametrize(
    ("request_bytes", "status", "part"),
    [
        (upgrade(protocol=""), 400, "braidmq.v1"),
        (upgrade(protocol="mqtt"), 400, "braidmq.v1"),
        (upgrade().replace(b"Version: 13", b"Version: 12"), 400, "Sec-WebSocket-Version"),
        (upgrade().replace(b"AAAA==", b""), 400, "Sec-WebSocket-Key"),
        (upgrade("absent"), 404, "absent"),
        (upgrade("t/../u"), 404, "no such path"),
        (upgrade("t", "Origin: https://elsewhere.example"), 403, "https://elsewhere.example"),
        (upgrade().replace(b"Host: localhost", b"Host: elsewhere.example"), 403, "elsewhere.example"),
        (upgrade("t", "X-Forwarded-For: 10.0.0.1"), 403, "x-forwarded-for"),
        (upgrade("__groups"), 403, "brokers' own"),
    ],
)
async def test_a_socket_that_may_not_be_opened_is_a_problem(
    broker: HttpBroker, request_bytes: bytes, status: int, part: str
) -> None:
    answer = await broker.raw(request_bytes)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert part in orjson.loads(answer.partition(b"\r\n\r\n")[2])["detail"]


async def test_a_page_of_another_site_opens_no_socket_of_a_broker_that_serves_all() -> None:
    async with http_broker(MemoryStore(), authorizer="any", cors_origin="https://mine.example") as open_to_all:
        await open_to_all.client.put(TOPIC)
        answer = await open_to_all.raw(upgrade("t", "Origin: https://elsewhere.example"))
        assert answer.startswith(b"HTTP/1.1 403 ")
        async with socket_client(open_to_all.url, "t", origin="https://mine.example") as mine:
            assert mine.hello


async def test_sockets_of_an_address_have_a_limit() -> None:
    async with http_broker(MemoryStore(), streams_per_address=2) as few:
        await few.client.put(TOPIC)
        async with socket_client(few.url, "t"), socket_client(few.url, "t"):
            answer = await few.raw(upgrade())
            assert answer.startswith(b"HTTP/1.1 429 ")
            assert b"--streams-per-address" in answer
        await until(lambda: few.broker.streams.count == 0)
        async with socket_client(few.url, "t"):
            pass


# -- frames ----------------------------------------------------------------------------------------------------------


async def test_a_message_may_come_in_any_pieces(broker: HttpBroker) -> None:
    async with raw_socket(broker.port) as socket:
        whole = frame(PUBLISH[:5], fin=False) + frame(b"", PING) + frame(b"", CONTINUATION, fin=False)
        whole += frame(PUBLISH[5:], CONTINUATION)
        for byte in whole:
            await socket.send(bytes([byte]))
        assert (await socket.next()).opcode == 10
        assert (await socket.next()).document["answers"][0]["id"] == 1
    assert await stored(broker) == 1


async def test_frames_may_come_together_with_the_request(broker: HttpBroker) -> None:
    answer = await broker.raw(upgrade() + frame(PUBLISH) + frame(b"\x03\xe8", CLOSE))
    assert answer.startswith(b"HTTP/1.1 101 ")
    await until(lambda: connections(broker) == 1)  # the client of the fixture
    assert await stored(broker) == 1


@pytest.mark.parametrize(
    ("data", "slug", "code", "part"),
    [
        (b"\x81\x02{}", "invalid-request", 1002, "masking"),
        (frame(b"{}", 3), "invalid-request", 1002, "opcode"),
        (b"\xc1" + frame(zlib.compress(b"x" * 9))[1:], "invalid-request", 1002, "reserved bits"),
        (frame(b"{}", CONTINUATION), "invalid-request", 1002, "continuation"),
        (frame(b"{", fin=False) + frame(b"}"), "invalid-request", 1002, "continuation"),
        (frame(b"x" * 126, PING), "invalid-request", 1002, "control frame"),
        (frame(b'{"id":1,"publish":{"value":"\xff"}}'), "invalid-request", 1007, "UTF-8"),
        (frame(b"", declared=10 * MIB), "body-too-large", 1009, str(8 * MIB)),
        (frame(b"", declared=2**62), "body-too-large", 1009, str(8 * MIB)),
    ],
)
async def test_who_does_not_keep_to_the_protocol_is_told_and_closed(
    broker: HttpBroker, data: bytes, slug: str, code: int, part: str
) -> None:
    async with raw_socket(broker.port) as socket:
        await socket.send(frame(PUBLISH))
        assert (await socket.next()).document["answers"][0]["ok"]
        await socket.send(data)
        problem, closed = await socket.last_words()
        checked(problem, slug, part)
        assert closed[0] == code
    assert await stored(broker) == 1
    await until(lambda: connections(broker) == 1)


async def test_ten_megabytes_of_json_in_one_message_are_refused_unread(broker: HttpBroker) -> None:
    text = orjson.dumps({"id": 1, "publish": [{"value": "x" * 1000}] * 10_000})
    async with raw_socket(broker.port) as socket:
        sending = asyncio.create_task(socket.send(frame(text)))
        problem, closed = await socket.last_words()
        assert checked(problem, "body-too-large", "several")["limit_bytes"] == 8 * MIB
        assert closed[0] == 1009
        await sending
    assert await stored(broker) == 0


TOO_LARGE = b'"publish":{"value":"' + b"x" * 70_000 + b'"}}'
BREAKS = [
    pytest.param([frame(b'{"id":200,' + TOO_LARGE)], 1009, 200, id="a text that is too large"),
    pytest.param([frame(b'{"id":"mine",' + TOO_LARGE)], 1009, "mine", id="its id is a string"),
    pytest.param([frame(b'{"id":200,' + TOO_LARGE, BINARY)], 1009, 200, id="a binary message"),
    pytest.param([frame(b'{"id":200,', fin=False), frame(TOO_LARGE, CONTINUATION)], 1009, 200, id="in fragments"),
    pytest.param([frame(b"{" + TOO_LARGE)], 1009, None, id="one without an id"),
    pytest.param([b"\x81\x02{}"], 1002, None, id="a frame without a mask"),
    pytest.param([frame(b"\xff\xfe")], 1007, None, id="a text that is no UTF-8"),
]


@pytest.mark.parametrize(("breaking", "code", "id_"), BREAKS)
async def test_what_was_begun_is_answered_before_a_client_that_breaks_the_protocol_is_cut_off(
    strict: HttpBroker, breaking: list[bytes], code: int, id_: object
) -> None:
    publishes = [frame(b'{"id":%d,"publish":{"value":"x"}}' % number) for number in range(200)]
    async with raw_socket(strict.port) as socket:
        await socket.send(*publishes, *breaking)
        found = [each for each in await socket.frames() if each.opcode != PING]
    told = [each.document for each in found[:-1]]
    answers = [answer for document in told for answer in document.get("answers", [])]
    assert [answer["id"] for answer in answers if "ok" in answer] == list(range(200))
    assert found[-1].closed[0] == code
    assert ("problem" in told[-1] or "problem" in answers[-1]) and told[-1].get("id") == id_
    assert await stored(strict) == 200
    await until(lambda: connections(strict) == 1)


async def test_fragments_together_have_the_limit_of_a_message(broker: HttpBroker) -> None:
    async with raw_socket(broker.port) as socket:
        await socket.send(frame(b"x" * MIB, fin=False), *[frame(b"x" * MIB, CONTINUATION, fin=False)] * 8)
        problem, closed = await socket.last_words()
        checked(problem, "body-too-large", "message")
        assert closed[0] == 1009


async def test_json_of_too_many_objects_is_refused(broker: HttpBroker) -> None:
    async with raw_socket(broker.port) as socket:
        await socket.send(frame(b'{"id":5,"publish":[{"value":' + b"[" * 3 * MIB + b"]" * 3 * MIB + b"}]}"))
        answer = (await socket.next()).document["answers"][0]
        assert answer["id"] == 5
        checked(answer["problem"], "invalid-request")
        await socket.send(frame(PUBLISH))
        assert (await socket.next()).document["answers"][0]["ok"]


@pytest.mark.parametrize("half", [b"\x81", frame(PUBLISH)[:-1], frame(b"{", fin=False), frame(b"", declared=60_000)])
async def test_half_a_frame_is_waited_for_no_longer_than_half_a_body(strict: HttpBroker, half: bytes) -> None:
    async with raw_socket(strict.port) as socket:
        await socket.send(frame(PUBLISH), half)
        problem, closed = await socket.last_words()
        assert checked(problem, "request-timeout", "stalled")["retryable"]
        assert closed[0] == 1008
    assert await stored(strict) == 1
    await until(lambda: connections(strict) == 1)


async def test_who_never_reads_is_closed_and_what_was_published_is_stored(strict: HttpBroker) -> None:
    for _ in range(20):
        (await strict.client.post(f"{TOPIC}/messages", content=b"x" * MIB)).raise_for_status()
    async with raw_socket(strict.port, buffer_bytes=1024) as socket:
        await socket.send(frame(b'{"id":1,"subscribe":{"from":"earliest","credit":100}}'), frame(PUBLISH))
        async with asyncio.timeout(60):
            while connections(strict) > 1:
                await asyncio.sleep(0.01)
    assert strict.broker.streams.count == 0
    assert strict.broker.read_budget.held_bytes == 0
    assert await stored(strict) == 21


async def test_pings_that_nobody_reads_the_answers_of_fill_no_memory(strict: HttpBroker) -> None:
    async with raw_socket(strict.port, buffer_bytes=2048) as socket:
        data = frame(b"x" * 125, PING) * 200
        async with asyncio.timeout(60):
            while connections(strict) > 1:
                await socket.send(data)


@pytest.mark.parametrize(
    "flood",
    [
        frame(b"x", fin=False) + frame(b"x", CONTINUATION, fin=False) * 6000,
        frame(b"", fin=False) + frame(b"", CONTINUATION, fin=False) * 6000,
        frame(b"", PING) * 6000,
    ],
    ids=["fragments", "empty fragments", "pings"],
)
async def test_tiny_frames_without_end_are_refused(broker: HttpBroker, flood: bytes) -> None:
    async with raw_socket(broker.port) as socket:
        sending = asyncio.create_task(socket.send(flood))
        problem, closed = await socket.last_words()
        checked(problem, "invalid-request", "too small")
        assert closed[0] == 1008
        await sending


async def test_many_sockets_that_send_nonsense_hold_up_nobody(broker: HttpBroker) -> None:
    rounds: list[int] = []

    async def flood() -> None:
        async with raw_socket(broker.port) as socket:
            sending = asyncio.create_task(socket.send(frame(b'{"id":1,"nonsense":1}') * 1500))
            told = 0
            while told < 1500:
                told += (await socket.next()).payload.count(b'"problem"')
            await sending
        rounds.append(told)

    floods = [asyncio.create_task(flood()) for _ in range(10)]
    published = 0
    while not all(each.done() for each in floods):
        (await broker.client.post(f"{TOPIC}/messages", content=b"x")).raise_for_status()
        published += 1
    await asyncio.gather(*floods)
    assert rounds == [1500] * 10
    assert published > 10, "publishes had to wait for nonsense"


async def test_ten_thousand_messages_at_once_are_all_answered(broker: HttpBroker) -> None:
    """More than may be under way: the rest waits in the client's own buffer."""
    count = MOST_IN_FLIGHT + 2000
    async with socket_client(broker.url, "t") as socket:
        for number in range(count):
            await socket.send(publish={"value": f"{number}"})
        await socket.until(lambda: len(socket.answers) == count)
        assert all("ok" in answer for answer in socket.answers.values())
    assert await stored(broker) == count


async def test_ten_thousand_messages_of_nonsense_are_all_told(broker: HttpBroker) -> None:
    async with socket_client(broker.url, "t") as socket:
        for _ in range(10_000):
            await socket.connection.send("nonsense")
        await socket.until(lambda: len(socket.told) == 10_000)
        checked(socket.told[-1], "invalid-request", "message 10000")
        await socket.ok(publish={"value": "x"})


async def test_arrow_that_is_none_is_refused(broker: HttpBroker) -> None:
    async with raw_socket(broker.port) as socket:
        await socket.send(frame(b'{"id":9,"publish":"arrow"}\nnonsense', BINARY))
        answer = (await socket.next()).document["answers"][0]
        assert answer["id"] == 9
        checked(answer["problem"], "invalid-request", "Arrow")


async def test_a_socket_takes_part_in_the_count_of_connections_until_it_is_gone(broker: HttpBroker) -> None:
    async with httpx.AsyncClient(base_url=broker.url) as client:
        (await client.get(TOPIC)).raise_for_status()
        before = connections(broker)
        async with socket_client(broker.url, "t"):
            assert connections(broker) == before + 1
        await until(lambda: connections(broker) == before)
