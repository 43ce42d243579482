"""A broker checks topics for its clients: the report, and what bounds it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from filer import keys
from filer.clock import SystemClock
from filer.keys import FileName
from filer.segment.segment_log import SegmentRef, recover_index
from filer.segment.snapshot_format import to_snapshot
from filer.stores.local.local_store import LocalStore
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.topic.stored_topic import TOPIC, store_topic

LEAST_RATE = 65_536
WAIT_SECONDS = 20


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    await store_topic(root, sealed={0: [3, 2, 2], 1: [4, 1]}, still_open=[2, 2, 2])
    store = LocalStore(root, clock=SystemClock())
    await store.create(keys.index_snapshot(TOPIC, 0), to_snapshot(await recover_index(store, SegmentRef(TOPIC, 0))))
    await store.close()
    return root


@pytest.fixture
async def slow(root: Path) -> AsyncIterator[HttpBroker]:
    """A broker that takes half a minute for the topic."""
    async with http_broker(LocalStore(root, clock=SystemClock()), verify_bytes_per_second=LEAST_RATE) as broker:
        for _ in range(60):
            response = await broker.client.post(f"/v1/topics/{TOPIC}/messages", content=bytes(40_000))
            assert response.is_success
        yield broker


async def report(broker: HttpBroker, path: str = f"/v1/topics/{TOPIC}/verification") -> list[dict[str, Any]]:
    response = await broker.client.get(path)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


async def test_a_sound_topic_and_cluster(root: Path) -> None:
    async with http_broker(LocalStore(root, clock=SystemClock())) as broker:
        last = (await report(broker))[-1]
        assert last["is_complete"] is True
        assert (last["damaged"], last["missing"], last["unchecked"]) == (0, 0, 0)
        assert last["ok"] >= 12
        assert last["bytes"] > 10_000
        assert (await report(broker, "/v1/cluster/verification"))[-1]["ok"] == 1


def segment_file(segment: int, base: int) -> str:
    return keys.segment_file(TOPIC, segment, FileName(base))


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (key, kind)
        for key in [
            keys.topic(TOPIC),
            keys.index_snapshot(TOPIC, 0),
            segment_file(0, 3),
            segment_file(0, 7),
            segment_file(1, 0),
        ]
        for kind in ["flipped", "cut", "deleted"]
        # A snapshot only saves work: nothing shows that there was one.
        if (key, kind) != (keys.index_snapshot(TOPIC, 0), "deleted")
    ],
)
async def test_damage_is_named(root: Path, key: str, kind: str) -> None:
    async with http_broker(LocalStore(root, clock=SystemClock())) as broker:
        path = root / key
        data = bytearray(path.read_bytes())
        path.unlink()
        if kind != "deleted":
            data[len(data) // 2] ^= 1
            path.write_bytes(data if kind == "flipped" else data[: len(data) // 2])
        lines = await report(broker)
        found = [line["found"] for line in lines if "found" in line]
        assert [each["key"] for each in found] == [key]
        assert found[0]["condition"] == ("missing" if kind == "deleted" else "damaged")
        assert found[0]["why"]
        assert lines[-1]["is_complete"] is True
        assert lines[-1]["damaged"] + lines[-1]["missing"] == 1


async def test_unknown_topics_are_not_found(root: Path) -> None:
    async with http_broker(LocalStore(root, clock=SystemClock())) as broker:
        response = await broker.client.get("/v1/topics/none/verification")
        assert (response.status_code, response.json()["type"]) == (404, "urn:braidmq:topic-not-found")
        assert (await broker.client.get("/v1/topics/a%20b/verification")).status_code == 422


async def until(condition: Any) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def test_only_a_few_at_a_time_and_one_that_is_left_ends(slow: HttpBroker) -> None:
    path = f"/v1/topics/{TOPIC}/verification"
    under_way = slow.broker.verifications
    async with slow.client.stream("GET", path) as first, slow.client.stream("GET", path) as second:
        # Progress comes also while no file is done.
        lines = first.aiter_lines(), second.aiter_lines()
        for each in lines:
            assert "is_complete" not in await anext(each)
        refused = await slow.client.get(path)
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:braidmq:too-many-verifications")
        assert refused.json()["retryable"] is True
    await until(lambda: under_way.count == 0)
    assert (await slow.client.get("/v1/cluster/verification")).status_code == 200


async def test_a_draining_broker_says_so_and_ends(slow: HttpBroker) -> None:
    async with slow.client.stream("GET", f"/v1/topics/{TOPIC}/verification") as response:
        lines = response.aiter_lines()
        assert "is_complete" not in await anext(lines)
        slow.broker.draining.set()
        rest = [json.loads(line) async for line in lines]
    assert rest[-1]["problem"]["type"] == "urn:braidmq:draining"
    assert "is_complete" not in rest[-1]
