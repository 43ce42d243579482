"""Consumer processes that are killed go on from the marker saved last, and the verdict is of all their lives."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from filer.stores.memory_store import MemoryStore
from tests.cluster.checker import killed_consumers
from tests.cluster.checker.consumer_log import Began, ConsumerLog, Saved, written
from tests.cluster.checker.consumer_process import USAGE, Scribe, main
from tests.cluster.checker.history import Found
from tests.cluster.checker.killed_consumers import ProcessConsumer
from tests.cluster.checker.producers import Producer
from tests.cluster.checker.verdict import judge
from tests.cluster.checker.workload import Workload
from tests.support.broker.http_broker import http_broker
from tests.support.process.processes import free_port

PATIENCE_SECONDS = 60.0
KILLS = 2


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def test_it_goes_on_from_its_last_marker(tmp_path: Path) -> None:
    async with http_broker(MemoryStore()) as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        load = Workload(
            [broker.url],
            producers=[Producer("p", "t", "json", identified=True, pause_seconds=0.01)],
            processes=[ProcessConsumer("c", "t", tmp_path)],
        )
        [consumer] = load.consumer_processes
        visits = consumer.record.visits
        async with load.running():
            for life in range(KILLS):
                await until(lambda life=life: len(visits) > life and consumer.has_got_on)
                assert consumer.kill()
                await load.acknowledged(5)
            await load.read_to_the_end()
    assert judge(load.history) == []
    assert len(visits) == KILLS + 1
    behind = [visit.behind for visit in visits]
    assert behind[0] == 0 < behind[1] < behind[2]
    assert not consumer.kill(), "nothing is left behind"


async def test_it_begins_again_where_there_is_no_broker_and_then_at_those_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All brokers that it was told of are gone, as the only one is that was killed and is started again."""
    monkeypatch.setattr(killed_consumers, "LOST_SECONDS", 1.0)
    urls = [f"http://127.0.0.1:{free_port()}"]
    async with http_broker(MemoryStore()) as broker:
        (await broker.client.put("/v1/topics/t")).raise_for_status()
        (await broker.client.post("/v1/topics/t/messages", content=b"x")).raise_for_status()
        load = Workload(urls, processes=[ProcessConsumer("c", "t", tmp_path)])
        [consumer] = load.consumer_processes
        async with load.running():
            await until(lambda: len(consumer.record.visits) > 0)
            urls[:] = [broker.url]
            await until(lambda: consumer.has_reached({0: 1}))


async def test_one_that_ends_by_itself_is_told(tmp_path: Path) -> None:
    async with http_broker(MemoryStore()) as broker:
        load = Workload([broker.url], processes=[ProcessConsumer("c", "unknown", tmp_path)])
        with pytest.raises(AssertionError, match=r"(?s)c ended with 1: .*there is no topic 'unknown'"):
            async with load.running():
                errors = tmp_path / "c.err"
                await until(lambda: errors.exists() and "there is no topic" in errors.read_text())
                await until(lambda: load.consumer_processes[0].has_ended)


def test_a_line_that_was_torn_was_never_written(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    found = [Found(0, offset, b"k", bytes([offset, 255])) for offset in range(3)]
    lines = [Began(0, 1.0), found[0], Saved(1, "marker"), found[1]]
    path.write_bytes(b"".join(map(written, lines)) + written(found[2])[:-3])
    log = ConsumerLog(path)
    assert log.read_on() == lines
    assert log.read_on() == []
    with Scribe(path) as scribe:
        assert scribe.marker == "marker"
    [began] = log.read_on()
    assert isinstance(began, Began) and began.behind == 1


def test_it_is_told_what_to_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["t", "file"]) == 2
    assert USAGE in capsys.readouterr().err
