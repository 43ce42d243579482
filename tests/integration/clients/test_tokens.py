"""The client at a broker that asks for tokens."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from braidmq import AsyncClient, Client, Forbidden, Unauthenticated
from braidmq.testing import InMemoryBroker
from braidmq.transport.transport import Call, Transport, Try
from filer.clock import SystemClock
from tests.support.token_maker import TokenMaker


@pytest.fixture(scope="module")
def maker() -> TokenMaker:
    return TokenMaker(now_seconds=SystemClock().now_us() / 1e6)


@pytest.fixture
def asking(tmp_path: Path, maker: TokenMaker) -> Iterator[InMemoryBroker]:
    (tmp_path / "keys.json").write_bytes(maker.key_set)
    with InMemoryBroker(authorizer="tokens", token_keys=tmp_path / "keys.json") as broker:
        yield broker


def test_with_its_token_a_client_does_all_it_may(
    asking: InMemoryBroker, maker: TokenMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what goes straight from the caller's thread, what learns of brokers, and what uploads."""
    token = maker.token("topic:orders-*:manage,publish,read,consume,load")
    (tmp_path / "token").write_text(f"{token}\n")
    monkeypatch.setenv("BRAIDMQ_TOKEN_FILE", str(tmp_path / "token"))
    with asking.client(upload_threshold_bytes=1000) as client:
        client.create_topic("orders-1")
        for n in range(5):
            client.publish("orders-1", str(n), key="k")
        client.publish("orders-1", b"x" * 2000)
        with client.producer("orders-1") as producer:
            producer.send("of the producer")
        *small, large, last = client.browse("orders-1")
        assert [message.value for message in small] == [b"%d" % n for n in range(5)]
        with client.open(large) as payload:
            assert payload.read() == b"x" * 2000
        assert last.value == b"of the producer"
        following = client.subscribe("orders-1", from_="earliest")
        assert [next(following).value for _ in range(5)] == [b"%d" % n for n in range(5)]
        with pytest.raises(Forbidden, match=r"may not manage topic 'bills': that takes the grant topic:bills:manage"):
            client.create_topic("bills")


def test_without_a_good_token_a_client_is_told_what_is_missing(asking: InMemoryBroker, maker: TokenMaker) -> None:
    with asking.client() as client, pytest.raises(Unauthenticated, match="this broker asks for a token"):
        client.publish("orders-1", "x")
    old = maker.token("topic:*:*", exp=maker.now_seconds - 100)
    with Client(asking.url, token=old) as client:
        for _ in range(2):
            with pytest.raises(Unauthenticated, match="has expired: get a new one") as caught:
                client.publish("orders-1", "x")
            assert old not in str(caught.value)


def test_a_token_that_is_renewed_in_its_file_stops_nobody_when_the_old_one_ends(
    asking: InMemoryBroker, maker: TokenMaker, tmp_path: Path
) -> None:
    """Also not within the second in which the file is not looked at."""
    (tmp_path / "token").write_text(maker.token("topic:orders-*:manage,publish,read"))
    with Client(asking.url, token_file=tmp_path / "token") as client:
        client.create_topic("orders-1")
        for n in range(3):
            another = TokenMaker(key_id=f"next{n}", now_seconds=maker.now_seconds)
            client.publish("orders-1", f"before {n}")
            (tmp_path / "keys.json").write_bytes(another.key_set)
            while not _is_refused(asking.url, maker):
                pass
            (tmp_path / "token").write_text(another.token("topic:orders-*:manage,publish,read"))
            client.publish("orders-1", f"after {n}")
            maker = another
        assert len(list(client.browse("orders-1"))) == 6


async def test_all_requests_that_the_old_token_has_brought_to_a_broker_go_on_with_the_new_one(
    asking: InMemoryBroker, maker: TokenMaker, tmp_path: Path
) -> None:
    """The first that is refused has the file read: the others find nothing new in it, and their own token refused."""
    grants = "topic:orders-*:manage,publish,read"
    (tmp_path / "token").write_text(maker.token(grants))
    async with AsyncClient(asking.url, token_file=tmp_path / "token", upload_threshold_bytes=100) as client:
        await client.create_topic("orders-1")
        await client.publish("orders-1", b"x" * 1000)
        (message,) = [message async for message in client.browse("orders-1")]
        another = TokenMaker(key_id="next", now_seconds=maker.now_seconds)
        (tmp_path / "keys.json").write_bytes(another.key_set)
        async with asyncio.timeout(20):
            while not await asyncio.to_thread(_is_refused, asking.url, maker):
                pass
        # As if it had looked at the file just now, however slow this machine is.
        client._transport.token._looked_seconds += 3600
        (tmp_path / "token").write_text(another.token(grants))

        async def payload() -> bytes:
            async with client.open(message) as opened:
                return await opened.read()

        told = await asyncio.gather(*(client.topic("orders-1") for _ in range(8)), *(payload() for _ in range(4)))
        assert told[-1] == b"x" * 1000


@pytest.mark.parametrize("what", ["/uploads/", "/files/"])
async def test_what_is_streamed_to_a_broker_is_sent_anew_with_the_new_token(
    asking: InMemoryBroker, maker: TokenMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A payload, and a file of a bulk load: their parts can be read again."""
    grants = "topic:orders-*:manage,publish,read,load"
    (tmp_path / "token").write_text(maker.token(grants))
    another, statuses = TokenMaker(key_id="next", now_seconds=maker.now_seconds), list[int]()
    answer = Transport._answer

    async def noted(self: Transport, call: Call, attempt: Try, *, stream: bool) -> httpx.Response:
        is_upload = call.method == "PUT" and what in call.target
        if is_upload and not statuses:
            (tmp_path / "keys.json").write_bytes(another.key_set)
            async with asyncio.timeout(20):
                while not await asyncio.to_thread(_is_refused, asking.url, maker):
                    pass
            # As if it had looked at the file just now, however slow this machine is.
            self.token._looked_seconds = self.clock.monotonic_seconds() + 3600
            (tmp_path / "token").write_text(another.token(grants))
        response = await answer(self, call, attempt, stream=stream)
        if is_upload:
            statuses.append(response.status_code)
        return response

    monkeypatch.setattr(Transport, "_answer", noted)
    async with AsyncClient(asking.url, token_file=tmp_path / "token", upload_threshold_bytes=1000) as client:
        await client.create_topic("orders-1", key_type="string", value_type="json")
        if what == "/uploads/":
            await client.publish("orders-1", '"' + "x" * 3_000_000 + '"')
        else:
            table = pa.table({"key": ["a", "b"], "value": ["1", "2"]})
            await client.load("orders-1", table, key="key", value="value", load="history")
        assert statuses[0] == 401 and set(statuses[1:]) == {201}
        assert [message async for message in client.browse("orders-1")]


def _is_refused(url: str, maker: TokenMaker) -> bool:
    with Client(url, token=maker.token("topic:orders-*:read")) as client:
        try:
            client.topic("orders-1")
        except Unauthenticated:
            return True
        return False
