"""A local cluster on a machine so busy that ZooKeeper gives a broker no session in its few seconds."""

import sys
from pathlib import Path

import pytest

from filer.clock import SystemClock
from leader.membership.coordinator import NO_SESSION
from mq.local import cluster as local
from mq.local.child import ProcessFailed
from mq.local.cluster import LocalBroker, LocalCluster, LocalSettings

# It ends so the first times it is started, as it has done so often.
BROKER = """
import pathlib, sys, time
tries = pathlib.Path(sys.argv[1])
tries.write_text(tries.read_text() + "." if tries.exists() else ".")
if len(tries.read_text()) < int(sys.argv[2]):
    sys.exit(sys.argv[3])
print("ready", flush=True)
time.sleep(100)
"""


def broker(folder: Path, ready_at: int, says: str) -> LocalBroker:
    command = [sys.executable, "-c", BROKER, str(folder / "tries"), str(ready_at), says]
    return LocalBroker("broker-1", command, folder / "log")


async def until_ready(folder: Path, process: LocalBroker) -> None:
    async def is_ready() -> bool:
        return process.output().endswith("ready\n")

    cluster = LocalCluster(LocalSettings(folder), SystemClock())
    process.start()
    try:
        await cluster._until(process, is_ready)
    finally:
        process.kill()


async def test_a_broker_that_had_no_session_is_started_again(tmp_path: Path) -> None:
    await until_ready(tmp_path, broker(tmp_path, 3, f"mq: {NO_SESSION} within 5 seconds: 127.0.0.1:9: it is slow"))
    assert (tmp_path / "tries").read_text() == "..."


async def test_one_that_ends_for_another_reason_is_not(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match="broker-1 did not start: exit code 1"):
        await until_ready(tmp_path, broker(tmp_path, 3, "mq: cannot listen on 127.0.0.1:8080"))
    assert (tmp_path / "tries").read_text() == "."


async def test_it_is_not_started_again_once_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "START_SECONDS", -1.0)
    with pytest.raises(ProcessFailed, match="broker-1 "):
        await until_ready(tmp_path, broker(tmp_path, 9, f"mq: {NO_SESSION} within 5 seconds: it is slow"))
    assert not (tmp_path / "tries").exists() or (tmp_path / "tries").read_text() == "."
