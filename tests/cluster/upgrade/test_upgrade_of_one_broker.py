"""Topics that the version before has written are read and continued by this one."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from braidmq import Client
from braidmq.message import Message
from filer import keys
from filer.keys import FileName
from mq.cli.main import run
from tests.support.broker.broker_process import BrokerProcess
from tests.support.process.previous_version import PREVIOUS_ENVIRONMENT, previous_python, previous_version, run_previous
from tests.support.topic.stored_topic import TOPIC, store_topic

pytestmark = pytest.mark.timeout(120)

UPKEEP = ("--maintenance-interval", "0.2", "--rollup-age", "0")
# What a user of the version before does, with its own client: every kind of message, a bulk load, splits, a deletion.
WRITING = """
import json, sys
from datetime import UTC, datetime
import pyarrow as pa
from braidmq import Client

with Client(sys.argv[1]) as client:
    client.create_topic("events", segments=2, key_type="string", value_type="json")
    client.create_topic("bytes", segments=1, segment_bytes=2000)
    client.create_topic("gone")
    client.publish("gone", "not for long")
    client.delete_topic("gone")
    for number in range(40):
        day = datetime(2025, 1, 1, tzinfo=UTC)
        client.publish("events", {"number": number}, key=f"key-{number % 7}", event_time=day)
    client.split_segment("events", client.topic("events").segments[0].segment, parts=2)
    client.load("events", pa.table({"key": ["a", "b", "c"], "value": ['{"n": 1}', '{"n": 2}', '{"n": 3}']}),
                key="key", value="value", load="history")
    client.publish("events", {"number": "after the load"}, key="key-1")
    for number in range(60):
        client.publish("bytes", b"x" * 100, key=b"k", headers={"number": str(number)})
    client.publish("bytes", client.upload("bytes", b"payload " * 100), key=b"large")
"""
READING = """
import sys
from braidmq import Client

with Client(sys.argv[1]) as client:
    for topic in ("events", "bytes"):
        for m in client.browse(topic):
            payload = client.open(m).read() if m.ref is not None else m.value
            print(repr((topic, m.id, m.timestamp.isoformat(), m.key, payload, dict(m.headers), str(m.event_time))))
"""


def with_id(url: str, topic: str, sequence: int, values: list[str]) -> Any:
    """The answer to a publish that may be repeated."""
    messages = [{"key": f"key-{value}", "value": {"value": value}} for value in values]
    path = f"{url}/v1/topics/{topic}/messages?producer=upgrading&sequence={sequence}"
    return httpx.post(path, json={"messages": messages}).raise_for_status().json()


def shown(topic: str, client: Client, message: Message) -> str:
    payload = client.open(message).read() if message.ref is not None else message.value
    return repr(
        (
            topic,
            message.id,
            message.timestamp.isoformat(),
            message.key,
            payload,
            dict(message.headers),
            str(message.event_time),
        )
    )


def all_messages(url: str) -> list[str]:
    with Client(url) as client:
        return [shown(topic, client, m) for topic in ("events", "bytes") for m in client.browse(topic)]


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_topics_go_on(tmp_path: Path, end: str) -> None:
    """Every message keeps its id and content; requests that were stored are not stored again; publishing goes on."""
    python, folder = previous_python(), previous_version()
    with BrokerProcess(
        data=tmp_path, args=UPKEEP, env=PREVIOUS_ENVIRONMENT, forked=False, python=python, folder=folder
    ) as old:
        run_previous(WRITING, old.url)
        answers = {n: with_id(old.url, "events", n, [str(n), str(n + 1)]) for n in range(5)}
        before = run_previous(READING, old.url).splitlines()
        getattr(old, end)()
    assert len(before) == 40 + 3 + 1 + 61 + 10
    with BrokerProcess(data=tmp_path, args=UPKEEP) as new:
        assert sorted(all_messages(new.url)) == sorted(before)
        assert {n: with_id(new.url, "events", n, [str(n), str(n + 1)]) for n in answers} == answers
        assert sorted(all_messages(new.url)) == sorted(before)
        with_id(new.url, "events", 99, ["new"])
        names = [entry["topic"] for entry in httpx.get(f"{new.url}/v1/topics").raise_for_status().json()["topics"]]
        assert sorted(names) == ["bytes", "events"]
        history = json.dumps(httpx.get(f"{new.url}/v1/topics/events/history").raise_for_status().json())
        assert '"load": "history"' in history
        assert len(all_messages(new.url)) == len(before) + 1


def test_downgrade_and_back(tmp_path: Path) -> None:
    """The version before reads all that this one has written, goes on with it, and this one goes on after that."""
    with BrokerProcess(data=tmp_path, args=UPKEEP) as new:
        subprocess.run([sys.executable, "-c", WRITING, new.url], check=True)
        answers = {n: with_id(new.url, "events", n, [str(n), str(n + 1)]) for n in range(5)}
        before = all_messages(new.url)
    assert len(before) == 40 + 3 + 1 + 61 + 10
    with BrokerProcess(
        data=tmp_path,
        args=UPKEEP,
        env=PREVIOUS_ENVIRONMENT,
        forked=False,
        python=previous_python(),
        folder=previous_version(),
    ) as old:
        assert sorted(run_previous(READING, old.url).splitlines()) == sorted(before)
        assert {n: with_id(old.url, "events", n, [str(n), str(n + 1)]) for n in answers} == answers
        with_id(old.url, "events", 98, ["by the version before"])
        with_it = run_previous(READING, old.url).splitlines()
        assert len(with_it) == len(before) + 1
    with BrokerProcess(data=tmp_path, args=UPKEEP) as again:
        assert sorted(all_messages(again.url)) == sorted(with_it)
        with_id(again.url, "events", 99, ["new"])
        assert len(all_messages(again.url)) == len(with_it) + 1
    assert run(["verify", "--all", "--store", str(tmp_path)]) == 0


def test_the_version_before_keeps_what_is_given_up(tmp_path: Path) -> None:
    """It does not know of it, and writes the record back with it: this version goes on after that."""
    asyncio.run(store_topic(tmp_path, sealed={0: [3, 2, 2]}))
    with BrokerProcess(data=tmp_path):
        pass
    (tmp_path / keys.segment_file(TOPIC, 0, FileName(3))).unlink()
    assert run(["topic", "repair", TOPIC, "--store", str(tmp_path), "--accept-loss"]) == 0
    record = tmp_path / keys.topic(TOPIC)
    before = json.loads(record.read_bytes())
    with (
        BrokerProcess(
            data=tmp_path, env=PREVIOUS_ENVIRONMENT, forked=False, python=previous_python(), folder=previous_version()
        ) as old,
        Client(old.url) as it,
    ):
        it.create_topic(TOPIC, segment_seconds=86_400)
        it.publish(TOPIC, "by the version before")
    after = json.loads(record.read_bytes())
    assert after["version"] > before["version"]
    assert after["segments"][0]["given_up"] == before["segments"][0]["given_up"]
    with BrokerProcess(data=tmp_path) as new, Client(new.url) as client:
        found = [message.offset for message in client.browse(TOPIC) if message.segment == 0]
        assert found == [0, 1, 2, 5, 6]
