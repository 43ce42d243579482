"""Publishers of a broker whose store stalls: an answer in time, with the cause; and all goes on when it is back."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from filer.clock import SystemClock
from filer.errors import BraidError, OutcomeUnknown, StoreRefused
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.decorators.instrumented_store import InstrumentedStore
from filer.stores.decorators.retrying_store import RetryingStore
from filer.stores.decorators.store_health import StoreHealth
from filer.stores.decorators.store_metrics import StoreMetrics
from filer.stores.memory_store import MemoryStore
from filer.stores.store import Data, Fetched, MakeData
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.cluster.http_cluster import HttpCluster, until

PATIENCE_SECONDS = 20.0
# A little longer than it takes until a stall is told, so that the answer names it.
TIMEOUT_SECONDS = 3.0
READ_SECONDS = 0.5
FULL = OutcomeUnknown("'k' below /data: No space left on device (ENOSPC)", cause="ENOSPC")
READ_ONLY = StoreRefused("'k' below /data: Read-only file system (EROFS)", cause="EROFS")
ID = {"producer": "p", "sequence": "1"}


class BrokenStore(ForwardingStore):
    """Fails or, without an error, hangs: puts of what has `broken` in its key, and all reads while `reads_hang`."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.broken = "nothing at all"
        self.error: BraidError | None = None
        self.reads_hang = False
        self._mended = asyncio.Event()

    def mend(self) -> None:
        self.broken, self.error, self.reads_hang = "nothing at all", None, False
        self._mended.set()
        self._mended = asyncio.Event()

    async def create(self, key: str, data: Data | MakeData, *, metadata: Mapping[str, str] | None = None) -> None:
        if self.broken in key:
            if self.error is not None:
                raise self.error
            await self._mended.wait()
        await self.inner.create(key, data, metadata=metadata)

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        if self.reads_hang:
            await self._mended.wait()
        return await self.inner.get(key, start=start, stop=stop)


class SlowDown(ForwardingStore):
    """Refuses all reads of the topic `t` while it `is_slow`, as S3 does with 503."""

    is_slow = False

    async def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Fetched:
        if self.is_slow and key.startswith("topics/t/"):
            raise OutcomeUnknown(f"{key!r}: SlowDown", cause="503")
        return await self.inner.get(key, start=start, stop=stop)


class Setting:
    """A broker with the topic `t` of two segments."""

    def __init__(self, http: HttpBroker, store: BrokenStore) -> None:
        self.http, self.broker, self.store = http, http.broker, store

    async def publish(self, value: str, key: str = "0", **parameters: str) -> httpx.Response:
        return await self.http.client.post(
            "/v1/topics/t/messages", content=value, params={"key": key, **parameters}, timeout=PATIENCE_SECONDS
        )

    async def values(self) -> list[str]:
        page = (await self.http.client.get("/v1/topics/t/messages", params={"limit": 1000})).raise_for_status().json()
        return [message["value"] for message in page["messages"]]

    async def readiness(self) -> tuple[int, dict[str, Any]]:
        answer = await self.http.client.get("/readyz")
        return answer.status_code, answer.json()

    async def until_something_waits(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.broker.topics["t"].writers[0].accepted_end:
                await asyncio.sleep(0.01)

    async def until_nothing_waits(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.broker.front_store.pending_bytes:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Setting]:
    clock = SystemClock()
    health = StoreHealth(clock)
    broken = BrokenStore(MemoryStore(clock=clock))
    counted = InstrumentedStore(broken, clock=clock, metrics=StoreMetrics(), health=health)
    store = RetryingStore(counted, clock=clock, limit_seconds=READ_SECONDS)
    async with http_broker(store, clock=clock, store_health=health, **settings) as http:
        (await http.client.put("/v1/topics/t", json={"segments": 2})).raise_for_status()
        try:
            yield Setting(http, broken)
        finally:
            broken.mend()


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with running(publish_timeout=TIMEOUT_SECONDS) as made:
        yield made


@pytest.mark.parametrize(
    ("error", "cause"), [(FULL, "ENOSPC"), (READ_ONLY, "EROFS"), (None, "timeout")], ids=["full", "read-only", "hangs"]
)
async def test_publishers_get_the_cause_and_all_goes_on_by_itself(
    setting: Setting, error: BraidError | None, cause: str
) -> None:
    setting.store.broken, setting.store.error = "/segments/", error
    answers = await asyncio.gather(*(setting.publish(f"{n}") for n in range(5)), setting.publish("5", **ID))
    for answer in answers:
        problem = check_problem(answer, 503, "store-unavailable", "publish_timeout", "create of 'topics/t/segments/")
        assert problem["cause"] == cause
    # Only what has an id is recognised when it comes again.
    assert [answer.json()["retryable"] for answer in answers] == [False] * 5 + [True]
    status, told = await setting.readiness()
    assert (status, told["ready"], told["status"]) == (200, True, "degraded")
    assert told["problems"][0]["cause"] == cause
    assert (await setting.http.client.get("/livez")).status_code == 200
    assert setting.broker.front_store.pending_bytes > 6 * 1000
    setting.store.mend()
    answer = (await setting.publish("5", **ID)).raise_for_status()
    assert answer.json()["positions"] == [
        {"segment": answer.json()["positions"][0]["segment"], "offset": 5, "count": 1}
    ]
    assert await setting.values() == ["0", "1", "2", "3", "4", "5"]
    await setting.until_nothing_waits()
    assert (await setting.readiness())[1]["status"] == "ok"


@pytest.mark.parametrize(
    ("method", "path", "status"), [("DELETE", "/v1/topics/t", 204), ("POST", "/v1/topics/t/segments/0/split", 200)]
)
async def test_whoever_waits_for_a_seal_gets_the_cause_and_it_goes_on(method: str, path: str, status: int) -> None:
    async with running(publish_timeout=TIMEOUT_SECONDS) as setting:
        setting.store.broken, setting.store.error = "/segment=0/", FULL
        publishing = asyncio.create_task(setting.publish("a", "4"))
        await setting.until_something_waits()
        answer = await setting.http.client.request(method, path, timeout=PATIENCE_SECONDS)
        problem = check_problem(answer, 503, "store-unavailable", "topic 't' waits for the store: create of 'topics/t/")
        assert (problem["cause"], problem["retryable"]) == ("ENOSPC", True)
        await publishing
        setting.store.mend()
        # What goes on is waited for, and not begun twice.
        again = await setting.http.client.request(method, path, timeout=PATIENCE_SECONDS)
        assert again.status_code == status
        found = await setting.http.client.get("/v1/topics/t")
        assert found.status_code == 404 or len(found.json()["segments"]) == 4


async def test_consumers_get_the_cause_and_an_ack_goes_on() -> None:
    async with running(publish_timeout=TIMEOUT_SECONDS) as setting:
        client = setting.http.client
        await setting.publish("a", "1")
        claimed = (await client.post("/v1/topics/t/groups/g/claims", json={})).raise_for_status().json()
        setting.store.broken, setting.store.error = "topics/__groups/", FULL
        acks = {"messages": [{"claim": each["claim"]} for each in claimed["claims"]]}
        for verb, body in (("acks", acks), ("acks", acks), ("claims", {})):
            if verb == "claims":
                await setting.publish("b", "1")
            answer = await client.post(f"/v1/topics/t/groups/g/{verb}", json=body, timeout=PATIENCE_SECONDS)
            problem = check_problem(answer, 503, "store-unavailable", "create of 'topics/__groups/")
            assert (problem["cause"], problem["retryable"]) == ("ENOSPC", True)
        setting.store.mend()
        answer = await client.post("/v1/topics/t/groups/g/acks", json=acks, timeout=PATIENCE_SECONDS)
        assert answer.raise_for_status().json()["lost"] == 0
        found = await client.post("/v1/topics/t/groups/g/claims", json={"wait": 20}, timeout=PATIENCE_SECONDS)
        assert [message["deliveries"] for message in found.raise_for_status().json()["messages"]] == [1]


async def test_a_cold_broker_says_that_what_publishes_nothing_may_be_sent_again() -> None:
    topic, group = "/v1/topics/t", "/v1/topics/t/groups/g"
    asked = [("POST", f"{group}/claims"), *((method, path) for method in ("PUT", "GET") for path in (topic, group))]
    store = SlowDown(MemoryStore(clock=SystemClock()))
    async with http_broker(store) as http:
        (await http.client.put(topic, json={})).raise_for_status()
        (await http.client.put(group, json={})).raise_for_status()
    async with http_broker(store) as http:
        store.is_slow = True
        answers = [await http.client.request(method, path, json={}) for method, path in asked]
        store.is_slow = False
    assert [check_problem(each, 503, "store-unavailable")["retryable"] for each in answers] == [True] * len(asked)


async def test_a_broker_ends_while_a_seal_goes_on() -> None:
    async with running(publish_timeout=0.1) as setting:
        setting.store.broken, setting.store.error = "/segment=0/", FULL
        publishing = asyncio.create_task(setting.publish("a", "4"))
        await setting.until_something_waits()
        answer = await setting.http.client.delete("/v1/topics/t", timeout=PATIENCE_SECONDS)
        check_problem(answer, 503, "store-unavailable")
        await publishing
        await asyncio.wait_for(setting.broker.patience.close(), PATIENCE_SECONDS)
        # Nobody has forgotten it: the record says what is under way.
        assert (await setting.http.client.get("/v1/topics/t")).status_code == 200


async def test_what_a_request_has_stored_is_told(setting: Setting) -> None:
    setting.store.broken = "/segment=1/"
    rows = b"\n".join(b'{"key":"%d","value":"%d"}' % (n, n) for n in range(20))
    answer = await setting.http.client.post(
        "/v1/topics/t/messages", content=rows, headers={"content-type": "application/x-ndjson"}
    )
    problem = check_problem(answer, 503, "publish-incomplete", "publish_timeout")
    assert [position["segment"] for position in problem["positions"]] == [0]
    setting.store.mend()
    await setting.until_nothing_waits()
    assert sorted(map(int, await setting.values())) == list(range(20))


async def test_memory_stays_bounded_while_publishers_come_and_give_up() -> None:
    async with running(publish_timeout=0.2, front_store_bytes=1024 * 1024) as setting:
        setting.store.broken = "/segments/"
        statuses: list[int] = []
        for _ in range(6):
            answers = await asyncio.gather(*(setting.publish("x" * 50_000) for _ in range(6)))
            statuses += [answer.status_code for answer in answers]
        assert set(statuses) == {503, 429}
        accepted = statuses.count(503)
        assert setting.broker.front_store.pending_bytes <= 1024 * 1024 + 6 * 1024
        setting.store.mend()
        await setting.until_nothing_waits()
        assert len(await setting.values()) == accepted


async def test_a_topic_that_makes_publishers_wait_has_the_same_limit() -> None:
    async with running(publish_timeout=TIMEOUT_SECONDS, front_store_bytes=1024 * 1024) as setting:
        (await setting.http.client.put("/v1/topics/t", json={"overflow": "block"})).raise_for_status()
        setting.store.broken, setting.store.error = "/segments/", FULL
        first = asyncio.create_task(setting.publish("x" * 900_000))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while setting.broker.front_store.pending_bytes < 900_000:
                await asyncio.sleep(0.01)
        problem = check_problem(await setting.publish("y" * 900_000), 503, "store-unavailable", "nothing of this was")
        assert (problem["cause"], problem["retryable"]) == ("ENOSPC", True)
        assert not check_problem(await first, 503, "store-unavailable")["retryable"]
        setting.store.mend()
        await setting.until_nothing_waits()
        assert await setting.values() == ["x" * 900_000]


async def test_readers_of_a_store_that_hangs_get_what_is_in_memory_or_the_cause(setting: Setting) -> None:
    first, second = [
        (await setting.publish(value)).raise_for_status().json()["positions"][0] for value in ("old", "new")
    ]
    tail = setting.broker.topics["t"].reads.tail(first["segment"])
    assert tail is not None
    tail.drop_oldest()
    setting.store.reads_hang = True
    path = f"/v1/topics/t/segments/{first['segment']}/messages"
    answer = await setting.http.client.get(path, params={"offset": second["offset"]})
    assert [message["value"] for message in answer.raise_for_status().json()["messages"]] == ["new"]
    problem = check_problem(await setting.http.client.get(path), 503, "store-unavailable", "no answer within 0.5 s")
    assert (problem["cause"], problem["retryable"]) == ("timeout", True)
    setting.store.mend()
    answer = await setting.http.client.get(path)
    assert [message["value"] for message in answer.raise_for_status().json()["messages"]] == ["old", "new"]


async def test_a_forwarded_publish_gets_the_cause_that_the_owner_knows(brokers: HttpCluster) -> None:
    await brokers.create("a", "t")
    [[owner]] = await brokers.brokers_of("a", "t")
    through = next(name for name in "abc" if name != owner)
    await brokers.publish(through, "t", ("k", "0"))
    brokers.stores[owner].hold()
    answers = await asyncio.gather(
        *(brokers.up[through].client.post("/v1/topics/t/messages?key=k", content=b"%d" % n) for n in range(1, 4))
    )
    for answer in answers:
        problem = check_problem(answer, 503, "store-unavailable", "create of 'topics/t/segments/")
        assert (problem["cause"], problem["retryable"]) == ("timeout", False)
    front_store = brokers.up[owner].broker.front_store
    assert front_store.pending_bytes > 3 * 1000
    brokers.stores[owner].release()

    async def all_stored() -> bool:
        return await brokers.stored_messages(owner, "t") == 4 and not front_store.pending_bytes

    await until(all_stored)
    assert not brokers.up[through].broker.front_store.pending_bytes
    assert sorted(await brokers.values(through, "t")) == ["0", "1", "2", "3"]


async def test_replicated_acks_that_followers_do_not_give_have_the_same_limit(brokers: HttpCluster) -> None:
    await brokers.create("a", "t", acks="replicated", replicas=2)
    [[owner, follower]] = await brokers.brokers_of("a", "t")
    await brokers.publish(owner, "t", ("k", "0"))
    brokers.peers[owner].parted.add(brokers.up[follower].url)
    brokers.stores[owner].hold()
    answer = await brokers.up[owner].client.post("/v1/topics/t/messages?key=k", content=b"1")
    check_problem(answer, 503, "store-unavailable", "create of 'topics/t/segments/")
    brokers.stores[owner].release()

    async def all_stored() -> bool:
        return await brokers.stored_messages(owner, "t") == 2

    await until(all_stored)
    assert await brokers.values(owner, "t") == ["0", "1"]


@pytest.fixture
async def brokers() -> AsyncIterator[HttpCluster]:
    cluster = HttpCluster()
    try:
        await cluster.start("a", "b", "c", publish_timeout=TIMEOUT_SECONDS)
        yield cluster
    finally:
        await cluster.stop_all()
