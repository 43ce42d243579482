"""Checkpoints of the log of groups: whoever takes over reads from the last one on, and knows all there is."""

from typing import Any

import pytest

from filer.keys import GROUPS_TOPIC
from filer.stores.memory_store import MemoryStore
from filer.topic.topic_state import Segment
from groups.records import Checkpoint
from mq.groups import group_log
from mq.groups.group_log import GroupLog
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.cluster.http_cluster import until
from tests.support.store.dying_store import DyingStore

T = "/v1/topics/t"
GROUPS = [f"g{number}" for number in range(5)]


@pytest.fixture(autouse=True)
def _few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_log, "CHECKPOINT_RECORDS", 12)
    monkeypatch.setattr(group_log, "PAGE_ROWS", 7)


async def work(broker: HttpBroker, group: str, count: int) -> list[str]:
    """Claim and ack so many messages, each by itself; their values."""
    seen: list[str] = []
    for _ in range(count):
        answer = await broker.client.post(f"{T}/groups/{group}/claims", json={"max": 1, "wait": 10})
        (message,) = answer.raise_for_status().json()["messages"]
        body = {"messages": [{"claim": message["claim"]}]}
        (await broker.client.post(f"{T}/groups/{group}/acks", json=body)).raise_for_status()
        seen.append(message["value"])
    return seen


async def lags(broker: HttpBroker, *groups: str) -> list[int]:
    found = [(await broker.client.get(f"{T}/groups/{group}")).raise_for_status().json() for group in groups]
    return [each["lag"]["messages"] for each in found]


async def records(broker: HttpBroker) -> list[dict[str, Any]]:
    page = await broker.client.get(f"/v1/topics/{GROUPS_TOPIC}/messages", params={"limit": 1000})
    return [message["value"] for message in page.raise_for_status().json()["messages"]]


async def fill(broker: HttpBroker) -> None:
    await broker.client.put(T)
    body = {"messages": [{"value": str(number)} for number in range(20)]}
    (await broker.client.post(f"{T}/messages", json=body)).raise_for_status()
    for number, group in enumerate(GROUPS):
        await broker.client.put(f"{T}/groups/{group}", json={"lease_seconds": 1, "backoff_seconds": [0]})
        assert await work(broker, group, 2 * number) == [str(each) for each in range(2 * number)]

    async def has_checkpoint() -> bool:
        return any(record["type"] == "checkpoint" for record in await records(broker))

    await until(has_checkpoint)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
async def test_whoever_follows_reads_from_the_last_one_on(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store) as broker:
        await fill(broker)
        assert await lags(broker, *GROUPS) == [20, 18, 16, 14, 12]
        await broker.client.delete(f"{T}/groups/g4")
        count = len(await records(broker))
        store.dead = not clean
    caplog.clear()
    async with http_broker(kept) as broker:
        assert await lags(broker, *GROUPS[:4]) == [20, 18, 16, 14]
        assert (await broker.client.get(f"{T}/groups/g4")).status_code == 404
        read = next(r.msg.fields["records"] for r in caplog.records if "groups_taken_over" in r.getMessage())
        assert read < count
        assert await work(broker, "g3", 1) == ["6"]


async def test_what_lies_before_the_last_one_is_deleted() -> None:
    """Whoever takes over needs the rest alone, also after a kill, which makes the segment another."""
    kept = MemoryStore()
    store = DyingStore(kept)
    async with http_broker(store, maintenance_interval=0.05, grace=1) as broker:
        await fill(broker)

        async def has_moved() -> bool:
            segments = (await broker.client.get(f"/v1/topics/{GROUPS_TOPIC}")).json()["segments"]
            return bool(segments[0]["start_offset"] > 0)

        await until(has_moved)
        assert await lags(broker, *GROUPS) == [20, 18, 16, 14, 12]
        await work(broker, "g1", 1)
        store.dead = True
    async with http_broker(kept, maintenance_interval=0.05, grace=1) as broker:
        assert await lags(broker, *GROUPS) == [20, 17, 16, 14, 12]
        for group in GROUPS:
            await work(broker, group, 4)
        assert await lags(broker, *GROUPS) == [16, 13, 12, 10, 8]


async def reshape(broker: HttpBroker, times: int) -> None:
    """Split the only segment of the groups and merge it again, so many times."""
    for _ in range(times):
        for verb, body in (("split", {"parts": 2}), ("merge", {})):
            route = (await broker.client.get(f"/v1/topics/{GROUPS_TOPIC}/route")).raise_for_status().json()
            first, *rest = [each["segment"] for each in route["segments"]]
            asked = body | ({"with": rest[0]} if rest else {})
            path = f"/v1/topics/{GROUPS_TOPIC}/segments/{first}/{verb}"
            (await broker.client.post(path, json=asked)).raise_for_status()


async def test_splits_and_merges_do_not_make_takeovers_longer_and_longer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After each pair of them there are twice as many ways back to the first segment. Each is looked at once."""
    caplog.set_level("INFO")
    looks: list[int] = []
    look = GroupLog._last_checkpoint

    async def counted(log: GroupLog, segment: Segment, end: int) -> Checkpoint | None:
        looks.append(segment.id)
        return await look(log, segment, end)

    monkeypatch.setattr(GroupLog, "_last_checkpoint", counted)
    monkeypatch.setattr(group_log, "CHECKPOINT_RECORDS", 10_000)
    async with http_broker(MemoryStore()) as broker:
        await broker.client.put(T)
        await broker.client.put(f"{T}/groups/g1")
        await reshape(broker, 4)
        await until_coordinated(broker)
        # It has come back to the first one by 16 ways. Those that begin after it read from its checkpoint on.
        await reshape(broker, 3)
        await until_coordinated(broker)
        assert any(record["type"] == "checkpoint" for record in await records(broker))
    read = [r.msg.fields["segments"] for r in caplog.records if "groups_taken_over" in r.getMessage()]
    assert max(read) <= 4 * 3 + 1 and len(looks) <= sum(read)


async def until_coordinated(broker: HttpBroker) -> None:
    async def is_there() -> bool:
        return (await broker.client.get(f"{T}/groups/g1")).status_code == 200

    await until(is_there)
