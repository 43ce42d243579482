"""A load whose broker is killed at each of its steps and that is run again: each message once, nothing half visible."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

import braidmq.bulk_load.load_source
import braidmq.bulk_load.store_folder
from braidmq import AsyncClient, BraidMQError, Retry
from tests.support.broker.broker_process import BrokerProcess
from tests.support.topic.segment_glob import read_bare_glob

ROWS = 2000
KEYS = 20
TABLE = pa.table(
    {
        "key": [f"key-{row % KEYS}" for row in range(ROWS)],
        "value": [f"loaded-{row}" + " " * 100 for row in range(ROWS)],
    }
)
# Of two segments of the load with several files each, and of the two that were open.
STEPS = [
    ("before reservation", 1),
    ("reserved", 1),
    ("before load file", 1),
    ("load file stored", 1),
    ("load file stored", 3),
    ("load file stored", 6),
    ("before seal put", 1),
    ("seal put returned", 1),
    ("seal put returned", 2),
    ("before begin", 1),
    ("begun", 1),
    ("seal put returned", 3),
    ("before finish", 1),
    ("finished", 1),
]


@pytest.fixture(autouse=True)
def through_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several files a segment, none of which the client writes by itself."""
    monkeypatch.setattr(braidmq.bulk_load.load_source, "FILE_BYTES", 50_000)
    monkeypatch.setattr(braidmq.bulk_load.store_folder, "_is_ours", lambda root: False)


async def load(url: str) -> int:
    async with AsyncClient(url, retry=Retry(give_up_after_seconds=0)) as client:
        done = await client.load("t", TABLE, load="backfill", key="key", value="value")
        return done.messages


async def publish(url: str, what: str) -> None:
    async with AsyncClient(url) as client:
        for row in range(KEYS):
            await client.publish("t", f"{what}-{row}", key=f"key-{row}")


PATIENCE_SECONDS = 20.0


async def read(url: str) -> dict[str, list[str]]:
    """The values of each key in order."""
    async with AsyncClient(url) as client:
        values: dict[str, list[str]] = {}
        async for message in client.browse("t"):
            values.setdefault((message.key or b"").decode(), []).append(bytes(message.value).decode().rstrip())
        return values


def expected(*parts: str) -> dict[str, list[str]]:
    loaded = {f"key-{key}": [f"loaded-{row}" for row in range(key, ROWS, KEYS)] for key in range(KEYS)}
    return {
        f"key-{key}": [
            value for part in parts for value in (loaded[f"key-{key}"] if part == "load" else [f"{part}-{key}"])
        ]
        for key in range(KEYS)
    }


@pytest.mark.parametrize(("step", "nth"), STEPS, ids=[f"{step} {nth}" for step, nth in STEPS])
async def test_killed_and_run_again(tmp_path: Path, step: str, nth: int) -> None:
    data = tmp_path / "data"
    arguments = ("--maintenance-interval", "3600")
    env = {"DEADLY_STEP": step, "DEADLY_NTH": str(nth)}
    with BrokerProcess(data=data, args=arguments, env=env, module="tests.support.broker.deadly_broker") as deadly:
        async with AsyncClient(deadly.url) as client:
            await client.create_topic("t", segments=2)
        await publish(deadly.url, "before")
        with pytest.raises(BraidMQError):
            await load(deadly.url)
        assert await asyncio.to_thread(deadly.wait) == -9
    with BrokerProcess(data=data, args=arguments) as broker:
        # Once it has begun, whoever starts next brings the transition to its end: soon after it has read the topic.
        begun = step in ("begun", "before finish", "finished") or (step, nth) == ("seal put returned", 3)
        after = expected("before", "load") if begun else expected("before")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while begun and await read(broker.url) != after:
                await asyncio.sleep(0.05)
        assert await read(broker.url) == after
        assert await load(broker.url) == ROWS
        await publish(broker.url, "after")
        assert await read(broker.url) == expected("before", "load", "after")
        assert await load(broker.url) == ROWS
    in_files: dict[str, list[str]] = {}
    for found in read_bare_glob(data, "t"):
        in_files.setdefault(found.key.decode(), []).append(found.value.decode().rstrip())
    assert in_files == expected("before", "load", "after")
