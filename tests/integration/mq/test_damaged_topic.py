"""One damaged topic does not keep a broker from serving the others."""

from pathlib import Path

import pytest

from filer.clock import SystemClock
from filer.errors import CorruptFile
from filer.segment.next_file import Single
from filer.stores.local.local_store import LocalStore
from leader.membership.coordinator import InProcessCoordinator
from mq.base.settings import BrokerSettings
from mq.broker import Broker


async def broker_on(folder: Path) -> Broker:
    clock = SystemClock()
    broker = Broker(LocalStore(folder, clock=clock), clock, InProcessCoordinator(), BrokerSettings(data=folder))
    await broker.start("http://127.0.0.1:1")
    return broker


async def test_a_damaged_topic_leaves_the_others_served(tmp_path: Path) -> None:
    broker = await broker_on(tmp_path)
    for name in ("good", "bad"):
        runtime, _ = await broker.administration.put(name, {})
        await runtime.publisher.publish_single(Single(None, b"kept", None, None), 4)
    await broker.close()
    [damaged] = (tmp_path / "topics" / "bad" / "segments").glob("*/*.parquet")
    damaged.write_bytes(b"not Parquet at all")

    again = await broker_on(tmp_path)
    try:
        good = await again.topics.topic("good")
        assert (await good.publisher.publish_single(Single(None, b"more", None, None), 4)).count == 1
        bad = await again.topics.topic("bad")
        with pytest.raises(CorruptFile):
            await bad.publisher.publish_single(Single(None, b"no", None, None), 2)
        reader = await again.reader("good")
        runs, _ = await reader.read(reader.earliest(), max_rows=10, max_bytes=2**20)
        assert [value for run in runs for value in run.table["value"].to_pylist()] == [b"kept", b"more"]
    finally:
        await again.close()
