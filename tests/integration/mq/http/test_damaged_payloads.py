"""Payloads that are lost or damaged: whoever reads one is told, and so is whoever has the topic checked."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from braidmq import AsyncClient, BraidMQError
from filer.clock import SystemClock
from filer.stores.local.local_store import LocalStore
from filer.stores.open_store import open_store
from filer.stores.store_address import StoreAddress
from filer.verification.stored_topic import verify_topic
from filer.verification.verdict import Verdict
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem

TOPIC = "t"
T = f"/v1/topics/{TOPIC}"
MIB = 1024 * 1024


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[HttpBroker]:
    async with http_broker(LocalStore(tmp_path / "data", clock=SystemClock())) as broker:
        (await broker.client.put(T)).raise_for_status()
        yield broker


@pytest.fixture
async def s3(s3_endpoint: str, s3_bucket: str) -> AsyncIterator[HttpBroker]:
    store = open_store(StoreAddress(f"s3://{s3_bucket}/prefix", s3_endpoint), SystemClock())
    async with http_broker(store, store=f"s3://{s3_bucket}/prefix") as broker:
        (await broker.client.put(T)).raise_for_status()
        yield broker


@pytest.fixture(params=["local", "s3"])
def broker(request: pytest.FixtureRequest) -> HttpBroker:
    found: HttpBroker = request.getfixturevalue(request.param)
    return found


async def publish(broker: HttpBroker, data: bytes, *, announce: bool = True) -> str:
    """A message by reference; returns the key of its payload."""
    sha256 = hashlib.sha256(data).hexdigest() if announce else None
    upload = (await broker.client.post(f"{T}/uploads", json={"size": len(data), "sha256": sha256})).json()
    async with httpx.AsyncClient(trust_env=False) as client:
        (await client.put(upload["url"], content=data, headers=upload["headers"])).raise_for_status()
    body = {"messages": [{"key": "k", "ref": {"upload": upload["upload"]}}]}
    (await broker.client.post(f"{T}/messages", json=body)).raise_for_status()
    return f"topics/{TOPIC}/uploads/{upload['upload']}"


async def verdicts(broker: HttpBroker) -> dict[str, Verdict]:
    store, catalogue = broker.broker.store, broker.broker.catalogue
    return {each.key: each async for each in verify_topic(store, catalogue, TOPIC)}


async def get(broker: HttpBroker) -> httpx.Response:
    return await broker.client.get(f"{T}/messages/0-0/payload")


async def client_error(broker: HttpBroker) -> str:
    """The error by which a client is told that it cannot read the payload."""
    async with AsyncClient(broker.url) as client:
        [message] = [message async for message in client.browse(TOPIC)]
        with pytest.raises(BraidMQError) as raised:
            async with client.open(message) as payload:
                await payload.read()
        return str(raised.value)


async def flip(broker: HttpBroker, key: str, at: int) -> None:
    data = bytearray((await broker.broker.store.get(key)).data)
    data[at] ^= 1
    await replace(broker, key, bytes(data))


async def cut(broker: HttpBroker, key: str, at: int) -> None:
    await replace(broker, key, (await broker.broker.store.get(key)).data[:at])


async def remove(broker: HttpBroker, key: str, at: int) -> None:
    await broker.broker.store.delete([key])


async def replace(broker: HttpBroker, key: str, data: bytes) -> None:
    store = broker.broker.store
    await store.replace(key, data, etag=(await store.head(key)).etag)


Damage = Callable[[HttpBroker, str, int], Awaitable[None]]


async def test_sound_ones(broker: HttpBroker) -> None:
    keys = [await publish(broker, b"some payload"), await publish(broker, b""), await publish(broker, b"x" * (MIB + 1))]
    found = await verdicts(broker)
    assert {found[key].condition for key in keys} == {"ok"}


@pytest.mark.parametrize("damage", [flip, cut, remove], ids=["flipped", "cut", "removed"])
async def test_it_is_told_by_name(broker: HttpBroker, damage: Damage) -> None:
    key = await publish(broker, b"some payload")
    await damage(broker, key, 5)
    verdict = (await verdicts(broker))[key]
    assert verdict.condition == ("missing" if damage is remove else "damaged")
    assert verdict.why.startswith("message 0-0 refers to it, and it ")
    assert key in await client_error(broker)
    answer = await get(broker)
    if answer.status_code == 307:
        # S3 itself gives the bytes, and the client checks them.
        assert damage is flip
        return
    slug = "data-missing" if damage is remove else "data-damaged"
    problem = check_problem(answer, 503, slug, key)
    assert (problem["key"], problem["segment"], problem["offset"]) == (key, 0, 0)


@pytest.mark.parametrize("at", [0, MIB, 3 * MIB + 2])
async def test_a_large_one_breaks_off_before_its_end(
    local: HttpBroker, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever checks nothing has no whole payload, and an error."""
    key = await publish(local, b"0123456789abcdef" * (3 * MIB // 16) + b"end")
    await flip(local, key, at)
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        await get(local)
    told = await client_error(local)
    assert key in told
    assert f"broke off after {3 * MIB} of {3 * MIB + 3} bytes" in told
    assert "mq verify t tells" in told
    assert all(record.exc_info is None for record in caplog.records)
    assert "answer_broke_off" in caplog.text and f"{key}: it is damaged: its SHA-256 is" in caplog.text


async def test_put_back_it_is_read(broker: HttpBroker) -> None:
    key = await publish(broker, b"some payload")
    store = broker.broker.store
    await store.delete([key])
    assert (await verdicts(broker))[key].condition == "missing"
    await store.create(key, b"some payload")
    assert (await verdicts(broker))[key].condition == "ok"
    async with AsyncClient(broker.url) as client:
        [message] = [message async for message in client.browse(TOPIC)]
        async with client.open(message) as payload:
            assert await payload.read() == b"some payload"


async def test_what_nobody_announced_is_unchecked_on_a_directory(local: HttpBroker) -> None:
    key = await publish(local, b"some payload", announce=False)
    assert (await verdicts(local))[key].condition == "unchecked"
    await cut(local, key, 4)
    assert (await verdicts(local))[key].condition == "damaged"


async def test_on_s3_the_etag_tells(s3: HttpBroker) -> None:
    key = await publish(s3, b"some payload", announce=False)
    assert (await verdicts(s3))[key].condition == "ok"
    await flip(s3, key, 3)
    assert (await verdicts(s3))[key].condition == "damaged"
    assert key in await client_error(s3)


async def test_rolled_up_messages_keep_theirs(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "data", clock=SystemClock())
    async with http_broker(store, maintenance_interval=0.05, rollup_age=0.0) as broker:
        (await broker.client.put(T)).raise_for_status()
        keys = [await publish(broker, b"payload %d" % number) for number in range(3)]
        # A sealed segment is rolled up at once.
        (await broker.client.post(f"{T}/segments/0/split")).raise_for_status()
        async with asyncio.timeout(20):
            while len((await broker.client.get(f"{T}/files")).json()["files"]) > 1:
                await asyncio.sleep(0.05)
        await store.delete([keys[1]])
        found = await verdicts(broker)
    assert [found[key].condition for key in keys] == ["ok", "missing", "ok"]
    assert found[keys[1]].why == "message 0-1 refers to it, and it is not there"


async def test_an_empty_one_that_is_gone_is_told(local: HttpBroker) -> None:
    key = await publish(local, b"")
    assert (await get(local)).content == b""
    await local.broker.store.delete([key])
    check_problem(await get(local), 503, "data-missing", key)
