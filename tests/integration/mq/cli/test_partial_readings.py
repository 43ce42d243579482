"""`mq subscribe` of a part of a topic: by time, the last messages, one key, into a Parquet file."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidmq.read.segment_pages import segment_page
from mq.cli.main import run
from tests.support.broker.broker_process import BrokerProcess, broker_environment

Mq = Callable[..., str]
KEYS = [f"k{number}" for number in range(12)]


@pytest.fixture
def braid(mq: Mq, broker: BrokerProcess, topic: str) -> list[dict[str, Any]]:
    """All messages of a topic whose segments were split and merged between publishes, by time.

    By HTTP: the command takes longer to publish one message than a broker for all of them.
    """
    transitions: list[tuple[str, dict[str, int]]] = [
        ("segments/0/split", {}),
        ("segments/1/split", {"parts": 3}),
        ("segments/2/merge", {"with": 3}),
        ("", {}),
    ]
    with httpx.Client(base_url=f"{broker.url}/v1/topics", timeout=60, trust_env=False) as http:

        def publish(key: str, *values: str) -> None:
            messages = [{"key": key, "value": value} for value in values]
            http.post(f"{topic}/messages", json={"messages": messages}).raise_for_status()

        http.put(topic, json={"segments": 2, "key_type": "string", "value_type": "string"}).raise_for_status()
        for number, (path, how) in enumerate(transitions):
            for key in KEYS:
                publish(key, f"{key} in {number}")
            if path:
                http.post(f"{topic}/{path}", json=how).raise_for_status()
        # Several with the same timestamp, which no time can tell apart.
        publish(KEYS[0], *(f"together {number}" for number in range(9)))
    found = [json.loads(line) for line in mq("subscribe", topic, "--until-end", "--json").splitlines()]
    assert len(found) == len(transitions) * len(KEYS) + 9
    return sorted(found, key=lambda message: message["timestamp"])


def read(mq: Mq, topic: str, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in mq("subscribe", topic, *options, "--until-end", "--json").splitlines()]


def test_the_tail_is_what_has_the_latest_times_over_all_segments(
    mq: Mq, topic: str, braid: list[dict[str, Any]]
) -> None:
    for count in (0, 1, 5, 9, 10, 11, 20, 33, 56, 57, 58, 1000):
        tail = read(mq, topic, "--tail", str(count))
        assert tail == braid[max(0, len(braid) - count) :]


def test_one_key_is_read_over_splits_and_merges(mq: Mq, topic: str, braid: list[dict[str, Any]]) -> None:
    for key in KEYS:
        of_key = [message for message in braid if message["key"] == key]
        assert read(mq, topic, "--key", key) == of_key
        for count in (0, 1, 2, 3, 4, 5, 99):
            assert read(mq, topic, "--key", key, "--tail", str(count)) == of_key[max(0, len(of_key) - count) :]
    assert read(mq, topic, "--key", "nobody") == []


def test_only_the_segments_of_the_key_are_read(
    mq: Mq, topic: str, braid: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[int] = set()

    async def noted(transport: Any, name: str, segment: int, *arguments: Any, **options: Any) -> Any:
        asked.add(segment)
        return await segment_page(transport, name, segment, *arguments, **options)

    monkeypatch.setattr("braidmq.read.segment_pages.segment_page", noted)
    read(mq, topic, "--key", KEYS[3])
    held = {message["segment"] for message in braid if message["key"] == KEYS[3]}
    segments = json.loads(mq("topic", "describe", topic, "--json"))["segments"]
    assert held <= asked and len(asked) < len(segments)


@pytest.mark.parametrize("position", [0, 1, 13, 30, 56])
def test_two_readings_meet_at_a_time_without_a_gap(
    position: int, mq: Mq, topic: str, braid: list[dict[str, Any]]
) -> None:
    time = braid[position]["timestamp"]
    before, behind = read(mq, topic, "--to", time), read(mq, topic, "--from", time)
    assert {m["id"] for m in before} == {m["id"] for m in braid if m["timestamp"] < time}
    assert {m["id"] for m in behind} == {m["id"] for m in braid if m["timestamp"] >= time}
    both = read(mq, topic, "--from", braid[2]["timestamp"], "--to", braid[45]["timestamp"])
    assert sorted(m["id"] for m in both) == sorted(m["id"] for m in braid[2:45])


def test_the_tail_before_a_time_and_the_key_up_to_a_time(mq: Mq, topic: str, braid: list[dict[str, Any]]) -> None:
    time = braid[40]["timestamp"]
    assert [m["id"] for m in read(mq, topic, "--to", time, "--tail", "7")] == [m["id"] for m in braid[33:40]]
    of_key = [m for m in braid[:40] if m["key"] == KEYS[1]]
    assert read(mq, topic, "--key", KEYS[1], "--to", time) == of_key
    assert read(mq, topic, "--key", KEYS[1], "--to", time, "--tail", "2") == of_key[-2:]
    assert read(mq, topic, "--key", KEYS[1], "--from", time) == [m for m in braid[40:] if m["key"] == KEYS[1]]


def test_a_relative_time_counts_back_from_now(mq: Mq, topic: str, braid: list[dict[str, Any]]) -> None:
    assert len(read(mq, topic, "--from", "1h")) == len(braid)
    assert read(mq, topic, "--to", "1h") == []
    assert read(mq, topic, "--from", "1ms") == []
    assert json.loads(mq("files", "ls", topic, "--from", "1h", "--json"))
    assert json.loads(mq("files", "ls", topic, "--from", "1ms", "--json")) == []


def test_an_end_before_the_start_is_refused(topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["subscribe", topic, "--from", "30m", "--to", "1h"]) == 2
    assert "Invalid value for --to: '1h' is before '30m', where --from begins" in capfd.readouterr().err


def test_a_time_to_come_is_waited_for(mq: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a", "b")
    stop = datetime.now(UTC) + timedelta(seconds=1.5)
    assert mq("subscribe", topic, "--to", stop.isoformat()) == "a\nb\n"
    assert datetime.now(UTC) >= stop


def test_a_key_is_followed_over_a_split(mq: Mq, broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic)
    process = subprocess.Popen(
        [sys.executable, "-m", "mq.cli.main", "subscribe", topic, "--key", "k", "--from", "earliest"],
        env=broker_environment({"BRAIDMQ_URL": broker.url}),
        stdout=subprocess.PIPE,
    )
    with process:
        try:
            assert process.stdout is not None
            for number in range(3):
                mq("publish", topic, "other", "--key", "other")
                mq("publish", topic, f"v{number}", "--key", "k")
                assert process.stdout.readline() == f"v{number}\n".encode()
                if number < 2:
                    newest = json.loads(mq("topic", "describe", topic, "--json"))["segments"][-1]["segment"]
                    mq("topic", "split", topic, str(newest))
        finally:
            process.kill()


@pytest.mark.parametrize("types", [("binary", "binary"), ("string", "json"), ("string", "string")], ids=" ".join)
def test_a_parquet_file_has_the_messages_in_the_columns_of_the_topic(
    types: tuple[str, str], mq: Mq, topic: str, tmp_path: Path
) -> None:
    mq("topic", "create", topic, "--segments", "2", "--key-type", types[0], "--value-type", types[1])
    mq("publish", topic, "1", "2", "--key", "a", "--header", "x=y")
    mq("publish", topic, "3", "--key", "b")
    path = tmp_path / "out.parquet"
    path.write_text("an older file")
    assert mq("subscribe", topic, "--until-end", "--format", "parquet", "--output", str(path)) == ""
    written = pq.read_table(path)
    listed = json.loads(mq("files", "ls", topic, "--json"))
    stored = pq.read_schema(listed[0]["uri"].removeprefix("file://"))
    assert written.schema.names == ["segment", *stored.names]
    assert [written.schema.field(name).type for name in stored.names] == [stored.field(n).type for n in stored.names]
    assert [str(value) for value in written["value"].cast(pa.string()).to_pylist()] in (
        ["1", "2", "3"],
        ["3", "1", "2"],
    )
    assert [each.name for each in tmp_path.iterdir()] == ["out.parquet"]


def test_a_parquet_file_of_no_message_has_the_columns(mq: Mq, topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic, "--value-type", "json")
    path = tmp_path / "out.parquet"
    mq("subscribe", topic, "--tail", "0", "--until-end", "--format", "parquet", "--output", str(path))
    assert pq.read_table(path).num_rows == 0 and "value" in pq.read_schema(path).names


def test_a_file_is_whole_or_not_there(mq: Mq, broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a")
    path = tmp_path / "out.parquet"
    process = subprocess.Popen(
        [sys.executable, "-m", "mq.cli.main", "subscribe", topic, "--from", "earliest", "--limit", "2"]
        + ["--format", "parquet", "--output", str(path)],
        env=broker_environment({"BRAIDMQ_URL": broker.url}),
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with process:
        try:
            while not list(tmp_path.iterdir()):  # it writes, and waits for a second message
                assert process.poll() is None
            assert not path.exists()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_told(
    mq: Mq, topic: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    mq("topic", "create", topic)
    options = ["--until-end", "--format", "parquet", "--output", str(tmp_path / "no" / "out.parquet")]
    assert run(["subscribe", topic, *options]) == 1
    assert b"No such file or directory" in capfdbinary.readouterr().err
