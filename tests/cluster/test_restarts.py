"""Restarts of a broker without a cluster, as processes: stopped, killed, two at once; on a directory and on S3."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ulid import ULID

from tests.support.broker.broker_process import BrokerFailedToStart, BrokerProcess
from tests.support.process.previous_version import PREVIOUS_ENVIRONMENT, previous_python, previous_version
from tests.support.store.s3_server import S3_ENVIRONMENT, s3_server

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=["directory", "s3"])
def new_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], BrokerProcess]]:
    """Makes brokers of one store."""
    if request.param == "directory":
        yield lambda: BrokerProcess(data=tmp_path / "data")
        return
    with s3_server() as endpoint:
        bucket = f"test-{ULID()}".lower()
        httpx.put(f"{endpoint}/{bucket}").raise_for_status()
        args = ["--s3-endpoint", endpoint, "--s3-addressing", "path"]
        yield lambda: BrokerProcess(store=f"s3://{bucket}/some/prefix", args=args, env=S3_ENVIRONMENT)


def create(url: str, *topics: str) -> None:
    for topic in topics:
        httpx.put(f"{url}/v1/topics/{topic}", json={"value_type": "string"}, timeout=30).raise_for_status()


def publish(url: str, value: str, topic: str = "used") -> int:
    """The segment that has it."""
    answer = httpx.post(f"{url}/v1/topics/{topic}/messages?key=k", content=value, timeout=30).raise_for_status()
    segment: int = answer.json()["positions"][0]["segment"]
    return segment


def values(url: str, topic: str = "used") -> list[str]:
    page = httpx.get(f"{url}/v1/topics/{topic}/messages?from=earliest&limit=1000", timeout=30).raise_for_status()
    return [message["value"] for message in page.json()["messages"]]


def lineage(url: str, topic: str = "used") -> list[tuple[int, str]]:
    state: dict[str, Any] = httpx.get(f"{url}/v1/topics/{topic}/history", timeout=30).raise_for_status().json()
    return [(each["segment"], each["state"]) for each in state["segments"]]


def test_clean_stops_leave_the_lineage_as_it_is(new_broker: Callable[[], BrokerProcess]) -> None:
    broker = new_broker()
    with broker:
        create(broker.url, "used", "idle")
        for number in range(4):
            assert publish(broker.url, str(number)) == 0
            assert broker.terminate() == 0
            broker.start()
        assert values(broker.url) == ["0", "1", "2", "3"]
        assert lineage(broker.url) == lineage(broker.url, "idle") == [(0, "open")]


def test_after_kills_topics_are_sealed_when_they_are_used(new_broker: Callable[[], BrokerProcess]) -> None:
    broker = new_broker()
    with broker:
        create(broker.url, "used", "idle")
        for number in range(3):
            assert publish(broker.url, str(number)) == number
            broker.restart()
        assert values(broker.url) == ["0", "1", "2"]
        assert lineage(broker.url) == [(0, "sealed"), (1, "sealed"), (2, "open")]
        assert lineage(broker.url, "idle") == [(0, "open")]
        assert broker.terminate() == 0
        # It had not used them: what the killed one left is still left.
        broker.start()
        assert [publish(broker.url, "3"), publish(broker.url, "first", "idle")] == [3, 1]
        assert broker.terminate() == 0
        broker.start()
        assert [publish(broker.url, "4"), publish(broker.url, "second", "idle")] == [3, 1]
        assert values(broker.url) == ["0", "1", "2", "3", "4"] and values(broker.url, "idle") == ["first", "second"]


def test_two_starts_at_once_on_one_store_store_nothing_twice(new_broker: Callable[[], BrokerProcess]) -> None:
    """Both find the note of the clean stop. One of them takes it; the other does not start, or is a new incarnation."""
    first = new_broker()
    with first:
        create(first.url, "used")
        published = ["before"]
        publish(first.url, "before")
        assert first.terminate() == 0
    for round_number in range(3):
        pair = [new_broker(), new_broker()]
        with contextlib.ExitStack() as stack:
            for broker in pair:
                stack.enter_context(started(broker))
            for number, broker in enumerate(pair):
                until_ready_or_ended(broker)
                if not broker.running:
                    assert broker.returncode and "another broker has just started" in broker.log
                    assert "Traceback" not in broker.log
                    continue
                for each in range(3):
                    value = f"{round_number}-{number}-{each}"
                    answer = httpx.post(
                        f"{broker.url}/v1/topics/used/messages?key=k&producer={value}&sequence=0",
                        content=value,
                        timeout=30,
                    )
                    assert answer.status_code in (200, 503), answer.text
                    if answer.status_code == 200:
                        published.append(value)
            assert any(broker.running for broker in pair)
            for broker in pair:
                if broker.running:
                    assert broker.terminate() == 0
    with new_broker() as last:
        found = values(last.url)
        assert sorted(found) == sorted(published)


@contextlib.contextmanager
def started(broker: BrokerProcess) -> Iterator[None]:
    broker.start(wait=False)
    with contextlib.ExitStack() as stack:
        stack.push(broker.__exit__)
        yield


def until_ready_or_ended(broker: BrokerProcess) -> None:
    with contextlib.suppress(BrokerFailedToStart):
        broker.wait_ready()


def test_a_version_that_knows_nothing_of_it_may_run_in_between(tmp_path: Path) -> None:
    """It seals every topic at its start, and leaves the note of the stop before it as it was."""
    broker = BrokerProcess(data=tmp_path)
    with broker:
        create(broker.url, "used")
        publish(broker.url, "0")
        assert broker.terminate() == 0
    note = json.loads((tmp_path / "cluster/incarnation.json").read_bytes())
    assert note["stopped"] is True
    with BrokerProcess(
        data=tmp_path, env=PREVIOUS_ENVIRONMENT, forked=False, python=previous_python(), folder=previous_version()
    ) as older:
        assert publish(older.url, "1") == 1
        assert older.terminate() == 0
    with broker:
        assert values(broker.url) == ["0", "1"]
        assert publish(broker.url, "2") == 2
        assert broker.terminate() == 0
        broker.start()
        assert publish(broker.url, "3") == 2
        assert values(broker.url) == ["0", "1", "2", "3"]
    assert json.loads((tmp_path / "cluster/incarnation.json").read_bytes())["broker"] == note["broker"]
