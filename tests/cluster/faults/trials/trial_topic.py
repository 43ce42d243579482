"""A topic that has an object of every kind, made once and copied for each trial.

It has a history, since retention has emptied its first segments; sealed segments that are rolled up, and sealed ones
that are not; snapshots; and open segments whose broker is gone.
"""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from braidmq import Reference
from filer.clock import SystemClock
from filer.slots import slot_of
from filer.stores.store import Store, StreamingStore
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.store.object_faults import KINDS, Kind, Objects, Past, by_kind

TOPIC = "t"
T = f"/v1/topics/{TOPIC}"
SEGMENTS = 2
FILES_A_SEGMENT = 6
GRACE_SECONDS = 1
BUSY_UPKEEP = {"maintenance_interval": 0.05, "rollup_age": 0.0, "grace": GRACE_SECONDS}
NO_UPKEEP = {"maintenance_interval": 3600.0, "grace": GRACE_SECONDS}
PATIENCE_SECONDS = 20.0
KEYS = [b"key-%d" % number for number in range(64)]
Place = tuple[int, int]


@dataclass
class Expected:
    """What is known of a topic's messages: those that must be there at their places, and those that may be anywhere.

    `maybe` are the values of requests whose outcome nobody knows. A message by reference has no value: `payloads` are
    the references, and what is to be read there. `lives` are the segments that there have been.
    """

    messages: dict[Place, bytes | None] = field(default_factory=dict)
    maybe: set[bytes] = field(default_factory=set)
    lives: set[int] = field(default_factory=set)
    payloads: dict[Place, tuple[Reference, bytes]] = field(default_factory=dict)

    def copy(self) -> "Expected":
        """As it is now."""
        return Expected(dict(self.messages), set(self.maybe), set(self.lives), dict(self.payloads))

    def of(self, segment: int) -> dict[int, bytes | None]:
        """The messages of a segment by offset."""
        return {offset: value for (each, offset), value in self.messages.items() if each == segment}

    @property
    def segments(self) -> list[int]:
        """The segments that have messages."""
        return sorted({segment for segment, _ in self.messages})


def value_in(message: dict[str, Any]) -> bytes | None:
    """The value of a message as JSON gives it; None if it is a reference."""
    value = message.get("value")
    return None if value is None else str(value).encode()


@asynccontextmanager
async def broker_on(opens: Callable[[], Store], **settings: Any) -> AsyncIterator[HttpBroker]:
    """A broker in this process, which closes its store in the end; `settings` are those of `BrokerSettings`."""
    store = opens()
    payloads = store if isinstance(store, StreamingStore) else None
    async with http_broker(store, clock=SystemClock(), payloads=payloads, drain_timeout=5.0, **settings) as broker:
        yield broker


async def route(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """The open segments with their ranges. Raises `httpx.HTTPStatusError`."""
    answer = (await client.get(f"{T}/route")).raise_for_status()
    segments: list[dict[str, Any]] = answer.json()["segments"]
    return segments


def key_in(bounds: tuple[int, int]) -> bytes:
    """A key whose slot lies in a range."""
    return next(key for key in KEYS if bounds[0] <= slot_of(key) < bounds[1])


class Publisher:
    """Publishes single messages with numbered values, and keeps what it was told."""

    def __init__(self, expected: Expected) -> None:
        self.expected, self._count = expected, 0

    async def publish(self, client: httpx.AsyncClient, key: bytes) -> httpx.Response | None:
        """One message; None if the connection broke."""
        value = b"value %d of %s, padded so that a file is not only its footer " % (self._count, key) * 3
        self._count += 1
        # Until an answer says where it is, it may be anywhere.
        self.expected.maybe.add(value)
        try:
            answer = await client.post(f"{T}/messages", params={"key": key.decode()}, content=value)
        except httpx.TransportError:
            return None
        if answer.status_code == 200:
            [position] = answer.json()["positions"]
            self.expected.messages[position["segment"], position["offset"]] = value
            self.expected.maybe.discard(value)
        return answer

    async def refer(self, client: httpx.AsyncClient) -> None:
        """A message by reference in each open segment. Raises `httpx.HTTPStatusError`."""
        for segment in await route(client):
            data = b"payload %d, which is longer than its reference " % self._count * 10
            self._count += 1
            declared = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            upload = (await client.post(f"{T}/uploads", json=declared)).raise_for_status().json()
            (await client.put(upload["url"], content=data, headers=upload["headers"])).raise_for_status()
            message = {"key": key_in(tuple(segment["range"])).decode(), "ref": {"upload": upload["upload"]}}
            answer = (await client.post(f"{T}/messages", json={"messages": [message]})).raise_for_status().json()
            [position] = answer["positions"]
            place = position["segment"], position["offset"]
            ref = (await client.get(f"{T}/messages/{place[0]}-{place[1]}")).raise_for_status().json()["ref"]
            self.expected.messages[place] = None
            self.expected.payloads[place] = Reference(ref["uri"], ref["size"], ref["etag"], ref["sha256"]), data

    async def fill(self, client: httpx.AsyncClient, files: int) -> None:
        """That many files of one message in each open segment. Raises `httpx.HTTPStatusError`."""
        for segment in await route(client):
            for _ in range(files):
                answer = await self.publish(client, key_in(tuple(segment["range"])))
                assert answer is not None
                answer.raise_for_status()


async def make_topic(opens: Callable[[], Store], objects: Objects, past: Past) -> Expected:
    """Make the topic on an empty store. Returns what its readers must find."""
    expected = Expected()
    publisher = Publisher(expected)
    async with broker_on(opens, **BUSY_UPKEEP) as broker:
        client = broker.client
        await _put(client, {"segments": SEGMENTS, "retention": {"seconds": 0.3}})
        await publisher.fill(client, 1)
        past.remember()
        [first, _] = await route(client)
        (await client.post(f"{T}/segments/{first['segment']}/split")).raise_for_status()
        await _until(lambda: _has(objects, "history"), past)
        expected.messages.clear()
        past.remember()
        await _put(client, {"retention": {"seconds": None}})
        # What retention has removed is gone from the listing, too.
        await publisher.fill(client, FILES_A_SEGMENT)
        await publisher.refer(client)
        past.remember()
    async with broker_on(opens, **BUSY_UPKEEP) as broker:
        await _until(lambda: _has(objects, "roll-up"), past)
        await publisher.fill(broker.client, FILES_A_SEGMENT)
        past.remember()
        # Twice: one that somebody may put back.
        await _until(lambda: _has_older(objects, "snapshot", past), past)
    async with broker_on(opens, **NO_UPKEEP) as broker:
        await publisher.fill(broker.client, FILES_A_SEGMENT)
        past.remember()
        [*_, last] = await route(broker.client)
        (await broker.client.post(f"{T}/segments/{last['segment']}/split")).raise_for_status()
        past.remember()
        await publisher.fill(broker.client, FILES_A_SEGMENT - 2)
        await publisher.refer(broker.client)
        expected.messages = await _kept(broker.client, expected)
        expected.lives = set(range(1 + max(segment["segment"] for segment in await route(broker.client))))
    past.remember()
    found = by_kind(objects, TOPIC)
    missing = set(KINDS) - found.keys()
    assert not missing, f"the topic has no {sorted(missing)}"
    return expected


async def _kept(client: httpx.AsyncClient, expected: Expected) -> dict[Place, bytes | None]:
    """What retention has left of the first messages, which it takes whole file by whole file, and all later ones."""
    kept: dict[Place, bytes | None] = {}
    marker: dict[str, str] = {"from": "earliest"}
    while True:
        page = (await client.get(f"{T}/messages", params={**marker, "limit": "1000"})).raise_for_status().json()
        if not page["messages"]:
            break
        kept |= {(m["segment"], m["offset"]): value_in(m) for m in page["messages"]}
        marker = {"marker": page["marker"]}
    assert expected.messages.items() <= kept.items(), "an undamaged topic is not read as it was written"
    return kept


async def _put(client: httpx.AsyncClient, settings: Mapping[str, Any]) -> None:
    (await client.put(T, json=settings)).raise_for_status()


async def _has(objects: Objects, kind: Kind) -> bool:
    return bool((await asyncio.to_thread(by_kind, objects, TOPIC)).get(kind))


async def _has_older(objects: Objects, kind: Kind, past: Past) -> bool:
    found = (await asyncio.to_thread(by_kind, objects, TOPIC)).get(kind, [])
    return any(past.older(key, objects.read(key) or b"") for key in found)


async def _until(condition: Callable[[], Awaitable[bool]], past: Past) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.02)
            past.remember()


def choose_keys(open_segments: list[dict[str, Any]], chance: random.Random, count: int) -> list[bytes]:
    """Keys for that many messages, of any open segment."""
    return [key_in(tuple(chance.choice(open_segments)["range"])) for _ in range(count)]
