"""Two brokers that differ only in what a token may not know: in names, and in whether a topic is there at all.

Whoever has the token asks both the same, and compares. What differs in any case (ids, ports, signatures) is the same
word in both answers (`Answer`).
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson

from filer.clock import SystemClock
from filer.stores.decorators.forwarding_store import ForwardingStore
from filer.stores.memory_store import MemoryStore
from filer.stores.store import PresignedRequest, Store
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.socket_client import socket_client
from tests.support.token_maker import TokenMaker

EVERYTHING = ("topic:*:*", "cluster:*")
_LEFT_OUT = {"date", "content-length", "x-request-id", "retry-after"}
_SAME = (
    (re.compile(rb"http://127\.0\.0\.1:\d+"), b"URL"),
    (re.compile(rb"(?<![0-9A-Z])[0-7][0-9A-HJKMNP-TV-Z]{25}(?![0-9A-Z])"), b"ULID"),
    (re.compile(rb"(ULID\.\d+\.[\w-]*\.)[\w-]{22}"), rb"\1MAC"),
    (re.compile(rb'"request_id":"[^"]*"'), b'"request_id":""'),
    (re.compile(rb'"(claim|member_token|ticket)":"[^"]*"'), rb'"\1":"TOKEN"'),
    (re.compile(rb'"(session_ends_in_seconds|seconds)":[0-9.e-]+'), rb'"\1":0'),
    (re.compile(rb'"(traffic|hot_slot)":(\{[^}]*\}|null|\d+)'), rb'"\1":{}'),
)


class Names(NamedTuple):
    """What is named otherwise in each world. `is_there`: whether the topic `secret-1` and what hangs on it exist."""

    group: str
    member: str
    other: str
    letters: str
    is_there: bool


ONE = Names("hush", "secret-m", "secret-b", "secret.dead", is_there=True)
OTHER = Names("push", "cover-m", "secret-b", "cover.dead", is_there=False)
GUESSES = sorted({*ONE[:4], *OTHER[:4], "secret-1", "absent-1", "hid-1", "none-1", "secret-all", "absent-all"})


class StandingClock(SystemClock):
    """Its wall clock stands still, so that both worlds tell the same times."""

    def __init__(self, now_us: int) -> None:
        super().__init__()
        self._now_us = now_us

    def now_us(self) -> int:
        """The time at which it stands."""
        return self._now_us


class Presigning(ForwardingStore):
    """A store that gives addresses with the names of objects in them, as S3 does."""

    async def presign_get(self, key: str, *, expires_seconds: int) -> PresignedRequest | None:
        """An address that nobody serves."""
        return PresignedRequest("GET", f"https://store.test/{key}?signed", 0)

    async def presign_create(
        self, key: str, *, size_bytes: int, sha256: str | None, expires_seconds: int
    ) -> PresignedRequest | None:
        """As `presign_get`."""
        return PresignedRequest("PUT", f"https://store.test/{key}?signed", 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one world has answered, without what is another one each time."""

    status: int
    headers: tuple[tuple[str, bytes], ...]
    body: bytes

    @classmethod
    def of(cls, answer: httpx.Response) -> "Answer":
        """The answer to a request."""
        headers = ((name, same(value.encode())) for name, value in answer.headers.items() if name not in _LEFT_OUT)
        return cls(answer.status_code, tuple(sorted(headers)), same(answer.content))


def same(data: bytes) -> bytes:
    """The bytes without ids, ports and signatures."""
    for pattern, word in _SAME:
        data = pattern.sub(word, data)
    return data


@dataclass(frozen=True, slots=True)
class World:
    """One of the two, with the headers of who may do everything, and of the token that is tried."""

    broker: HttpBroker
    names: Names
    everything: Mapping[str, str]
    scoped: Mapping[str, str]

    async def ask(self, method: str, path: str, **given: Any) -> Answer:
        """What whoever has the token is answered."""
        headers = {**self.scoped, **given.pop("headers", {})}
        return Answer.of(await self.broker.client.request(method, path, headers=headers, **given))

    async def frames(self, topic: str, frames: list[dict[str, Any]]) -> list[bytes]:
        """The answers to these requests over one socket."""
        found: list[bytes] = []
        async with socket_client(self.broker.url, topic, additional_headers=dict(self.scoped)) as socket:
            for frame in frames:
                found.append(same(orjson.dumps(await socket.ask(**frame))))
        return found

    async def begun(self, path: str) -> tuple[int, bytes]:
        """The status, and the first that comes of an answer without an end."""
        async with self.broker.client.stream("GET", path, headers=dict(self.scoped)) as answer:
            async for part in answer.aiter_raw():
                return answer.status_code, same(part)
        return answer.status_code, b""

    async def make(self, groups: tuple[str, ...]) -> None:
        """Make what is there: in both worlds alike, but for the names, and for what only one of them has."""
        names, done = self.names, self._done
        for topic in ("orders-1", "orders-2"):
            await done("PUT", f"/v1/topics/{topic}", json={"segments": 2})
        for group, topics in ((names.group, ["orders-m", names.member]), ("orders-all", ["orders-a", names.other])):
            await done("PUT", f"/v1/topic-groups/{group}", json={"topics": topics})
        for topic in ("orders-1", "orders-m", names.member, "orders-a", names.other):
            rows = [{"key": f"{number}", "value": number} for number in range(3)]
            await done("POST", f"/v1/topics/{topic}/messages", json={"messages": rows})
        await self._upload("orders-m")
        letters = {"dead_letter": {"topic": names.letters}, "max_deliveries": 1}
        for topic in ("orders-1", "orders-m"):
            await done(
                "PUT", f"/v1/topics/{topic}/groups/seen-1", json={"mode": "queue", "from": "earliest", **letters}
            )
            await done("PUT", f"/v1/topics/{topic}/groups/seen-2", json={"mode": "stream", "from": "earliest"})
            await self._kill_one(topic, "seen-1")
        if not names.is_there:
            return
        await done("PUT", "/v1/topics/secret-1")
        await done("POST", "/v1/topics/secret-1/messages", json={"messages": [{"value": "x"}]})
        await done("POST", "/v1/topics/secret-1/loads", json={"segments": 1, "load": "loaded"})
        await done("PUT", "/v1/topic-groups/secret-all", json={"topics": ["secret-2"]})
        await self._upload("secret-1")
        for topic, group in (("secret-1", "billing"), *(("orders-1", each) for each in groups)):
            settings = {"mode": "queue", "from": "earliest", "dead_letter": None}
            await done("PUT", f"/v1/topics/{topic}/groups/{group}", json=settings)
            await done("POST", f"/v1/topics/{topic}/groups/{group}/claims", json={"max": 1})

    async def _upload(self, topic: str) -> None:
        issued = (await self._done("POST", f"/v1/topics/{topic}/uploads", json={"size": 5})).json()["upload"]
        stored = topic if topic == "secret-1" else self.names.group
        await self.broker.broker.store.create(f"topics/{stored}/uploads/{issued}", b"large")
        await self._done(
            "POST", f"/v1/topics/{topic}/messages", json={"messages": [{"key": "u", "ref": {"upload": issued}}]}
        )

    async def _kill_one(self, topic: str, group: str) -> None:
        path = f"/v1/topics/{topic}/groups/{group}"
        claimed = (await self._done("POST", f"{path}/claims", json={"max": 1})).json()["messages"]
        part = {"messages": [{"claim": each["claim"]} for each in claimed], "dead": True, "reason": "no"}
        await self._done("POST", f"{path}/releases", json=part)
        while (await self._done("GET", path)).json()["dead"] != 1:
            await asyncio.sleep(0.01)

    async def _done(self, method: str, path: str, **given: Any) -> httpx.Response:
        answer = await self.broker.client.request(method, path, headers=dict(self.everything), **given)
        assert answer.is_success, (method, path, answer.text)
        return answer


@contextlib.asynccontextmanager
async def two_worlds(
    folder: Path, grants: list[str], *, presigns: bool, groups: tuple[str, ...] = ()
) -> AsyncIterator[tuple[World, World]]:
    """Start both, for a token with these grants. Only the first one has these consumer groups of `orders-1`."""
    now_us = SystemClock().now_us()
    maker = TokenMaker(now_seconds=now_us / 1e6)
    keys = folder / "keys.json"
    keys.write_bytes(maker.key_set)
    everything, scoped = ({"authorization": f"Bearer {maker.token(*each)}"} for each in (EVERYTHING, grants))
    async with contextlib.AsyncExitStack() as running:
        worlds: list[World] = []
        for names in (ONE, OTHER):
            clock = StandingClock(now_us)
            memory = MemoryStore(clock=clock)
            store: Store = Presigning(memory) if presigns else memory
            broker = await running.enter_async_context(
                http_broker(
                    store,
                    clock=clock,
                    payloads=memory,
                    authorizer="tokens",
                    token_keys=keys,
                    broker="broker-1",
                    audit="off",  # hundreds of refusals
                )
            )
            worlds.append(World(broker, names, everything, scoped))
        await asyncio.gather(*(each.make(groups) for each in worlds))
        yield worlds[0], worlds[1]
