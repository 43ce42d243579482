"""A real broker whose store stalls and comes back: what it says, what publishers get, and that it goes on by itself."""

import contextlib
import re
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from mq.cli.main import run
from tests.support.broker.broker_process import BrokerProcess
from tests.support.store.shared_store import S3Bucket

PATIENCE_SECONDS = 30.0
TIMEOUT = ("--publish-timeout", "3")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Publisher:
    """A client whose connections are open before the store stalls: a broker without descriptors accepts no others."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.first, self.second = (
            httpx.Client(base_url=broker.url, timeout=PATIENCE_SECONDS, trust_env=False) for _ in range(2)
        )
        self.first.put("/v1/topics/t").raise_for_status()
        self.second.get("/readyz").raise_for_status()

    def close(self) -> None:
        self.first.close()
        self.second.close()

    def publish(self, value: str, identity: str = "") -> httpx.Response:
        return self.first.post(f"/v1/topics/t/messages?key=k{identity}", content=value)

    def publish_once(self, value: str, sequence: int) -> None:
        """As publishers with an id do: again, until it is stored."""
        until(lambda: self.publish(value, f"&producer=p&sequence={sequence}").status_code == 200)

    def values(self) -> list[str]:
        page = self.first.get("/v1/topics/t/messages").raise_for_status().json()
        return [message["value"] for message in page["messages"]]


@contextlib.contextmanager
def limited(broker: BrokerProcess, limit: int, most: int) -> Iterator[None]:
    """The running process has another limit."""
    before = resource.prlimit(broker.process.pid, limit)
    resource.prlimit(broker.process.pid, limit, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(broker.process.pid, limit, before)


@contextlib.contextmanager
def replaced_by_a_file(folder: Path) -> Iterator[None]:
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.touch()
    try:
        yield
    finally:
        folder.unlink()
        aside.rename(folder)


def open_files(broker: BrokerProcess) -> int:
    return max(int(path.name) for path in Path(f"/proc/{broker.process.pid}/fd").iterdir()) + 1


def demand_told(client: Publisher, cause: str, readiness: int) -> None:
    """While the store stalls: the log, the publisher, and `/readyz`."""
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(client.publish, "1")
        until(lambda: 'store_stalled operation=create key="topics/t/segments/' in client.broker.log)
        # How soon, the unit tests say: here the machine may be busy.
        assert cause in re.findall("store_stalled (.*)", client.broker.log)[-1]
        answer = client.second.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (readiness, "degraded")
        assert answer.json()["problems"][0]["cause"] == ("timeout" if cause == "no answer" else cause)
        assert client.second.get("/livez").status_code == 200
        problem = publishing.result().json()
    assert (problem["status"], problem["type"]) == (503, "urn:braidmq:store-unavailable")
    assert cause in problem["detail"] and not problem["retryable"]


def demand_mended(client: Publisher) -> None:
    client.publish_once("2", 2)
    assert client.values() == ["0", "1", "2"]
    until(lambda: client.second.get("/readyz").json()["status"] == "ok")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Publisher]:
    with BrokerProcess(data=tmp_path / "data", args=TIMEOUT) as broker:
        with contextlib.closing(Publisher(broker)) as made:
            made.publish_once("0", 1)
            yield made
        assert broker.terminate() == 0


def test_no_room_for_another_file(client: Publisher, capfd: pytest.CaptureFixture[str]) -> None:
    with limited(client.broker, resource.RLIMIT_FSIZE, 0):
        demand_told(client, "EFBIG", 503)
        assert run(["doctor", "--url", client.broker.url]) == 1
        assert "(EFBIG)" in capfd.readouterr().out
    demand_mended(client)
    until(lambda: "store_recovered" in client.broker.log)


def test_too_many_open_files(client: Publisher) -> None:
    with limited(client.broker, resource.RLIMIT_NOFILE, open_files(client.broker)):
        demand_told(client, "EMFILE", 503)
    demand_mended(client)


def test_a_file_in_the_place_of_the_directory(client: Publisher, tmp_path: Path) -> None:
    with replaced_by_a_file(tmp_path / "data"):
        demand_told(client, "ENOTDIR", 503)
    demand_mended(client)


def test_a_bucket_that_does_not_answer() -> None:
    with (
        S3Bucket() as bucket,
        BrokerProcess(args=[*bucket.arguments(None), *TIMEOUT], env=bucket.environment) as broker,
    ):
        with contextlib.closing(Publisher(broker)) as client:
            client.publish_once("0", 1)
            bucket.faults.hang()
            # All brokers share it: taking them away would take away what they have in memory.
            demand_told(client, "no answer", 200)
            bucket.faults.heal()
            demand_mended(client)
        assert broker.terminate() == 0
