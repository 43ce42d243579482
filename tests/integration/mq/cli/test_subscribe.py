import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from mq.cli.main import run
from tests.support.broker.broker_process import BrokerProcess, broker_environment

Mq = Callable[..., str]


@contextmanager
def subscriber(broker: BrokerProcess, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`mq subscribe` as a process of its own, which Ctrl-C can reach."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mq.cli.main", "subscribe", *arguments, "--url", broker.url],
        env=broker_environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A parent that ignores SIGINT, as background jobs of a shell do, would hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_the_forms(mq: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a", "b", "--key", "k")
    assert mq("subscribe", topic, "--until-end") == "a\nb\n"
    assert mq("subscribe", topic, "--until-end", "--format", "raw") == "ab"
    assert [m["value"] for m in json.loads(mq("subscribe", topic, "--until-end", "--format", "json"))] == ["a", "b"]
    lines = mq("subscribe", topic, "--until-end", "--format", "ndjson").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["0-0", "0-1"]
    table = mq("subscribe", topic, "--until-end", "--format", "table").splitlines()
    assert [line.split()[0] for line in table] == ["id", "0-0", "0-1"]


def test_ndjson_is_what_the_broker_itself_answers(mq: Mq, broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a", "--header", "x=y")
    answer = httpx.get(f"{broker.url}/v1/topics/{topic}/messages").json()["messages"]
    assert [json.loads(line) for line in mq("subscribe", topic, "--until-end", "--json").splitlines()] == answer


def test_an_empty_topic_ends_at_once(mq: Mq, topic: str) -> None:
    mq("topic", "create", topic, "--segments", "2")
    assert mq("subscribe", topic, "--until-end") == ""
    assert json.loads(mq("subscribe", topic, "--until-end", "--format", "json")) == []


def test_where_to_start(mq: Mq, broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a")
    later = json.loads(mq("subscribe", topic, "--until-end", "--json"))["timestamp"]
    marker = httpx.get(f"{broker.url}/v1/topics/{topic}/messages").json()["marker"]
    mq("publish", topic, "b")
    assert mq("subscribe", topic, "--until-end", "--from", "latest") == ""
    assert mq("subscribe", topic, "--until-end", "--from", "earliest") == "a\nb\n"
    assert mq("subscribe", topic, "--until-end", "--from", later) == "a\nb\n"
    assert mq("subscribe", topic, "--until-end", "--from", "2100-01-01T00:00:00Z") == ""
    assert mq("subscribe", topic, "--until-end", "--marker", marker) == "b\n"


@pytest.mark.parametrize("options", [["--until-end"], ["--from", "earliest"]], ids=["until the end", "for ever"])
def test_the_limit(options: list[str], mq: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, *map(str, range(5)))
    assert mq("subscribe", topic, *options, "--limit", "3") == "0\n1\n2\n"
    assert mq("subscribe", topic, *options, "--limit", "0") == ""


def test_a_limit_beyond_the_end(mq: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, *map(str, range(5)))
    assert mq("subscribe", topic, "--until-end", "--limit", "9") == "0\n1\n2\n3\n4\n"


def test_referenced_payloads_take_the_place_of_their_values(mq: Mq, topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic)
    (tmp_path / "large").write_text("L" * 1_500_000)
    mq("publish", topic, "a")
    mq("publish", topic, "--format", "raw", "--file", str(tmp_path / "large"))
    mq("publish", topic, "b")
    assert mq("subscribe", topic, "--until-end") == "a\n" + "L" * 1_500_000 + "\nb\n"


def test_until_end_ends_although_others_go_on_publishing(mq: Mq, broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic, "--segments", "2")
    mq("publish", topic, *map(str, range(1000)))
    stop = threading.Event()

    def publish() -> None:
        with httpx.Client(base_url=broker.url) as client:
            while not stop.is_set():
                client.post(f"/v1/topics/{topic}/messages", json={"messages": [{"value": "late"}] * 20})

    publishers = [threading.Thread(target=publish) for _ in range(2)]
    for each in publishers:
        each.start()
    try:
        read = mq("subscribe", topic, "--until-end").splitlines()
    finally:
        stop.set()
        for each in publishers:
            each.join()
    assert sorted(each for each in read if each != "late") == sorted(map(str, range(1000)))


def test_new_messages_are_printed_as_they_come_and_ctrl_c_ends_silently(
    mq: Mq, broker: BrokerProcess, topic: str
) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "old")
    with subscriber(broker, topic, "--from", "earliest") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"old\n"
        mq("publish", topic, "new")
        assert process.stdout.readline() == b"new\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


def test_a_closed_pipe_ends_silently(mq: Mq, broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic)
    (tmp_path / "many.txt").write_text("x" * 99 + "\n" + ("y" * 99 + "\n") * 20_000)
    mq("publish", topic, "--file", str(tmp_path / "many.txt"))
    with subscriber(broker, topic, "--from", "earliest") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"x" * 99 + b"\n"
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_a_broker_that_restarts_is_waited_for(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        port = int(broker.url.rpartition(":")[2])
        httpx.put(f"{broker.url}/v1/topics/t", json={}).raise_for_status()
        httpx.post(f"{broker.url}/v1/topics/t/messages", content=b"before").raise_for_status()
        with subscriber(broker, "t", "--from", "earliest") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"before\n"
            broker.kill()
            broker.arguments[broker.arguments.index("--port") + 1] = str(port)
            broker.start()
            httpx.post(f"{broker.url}/v1/topics/t/messages", content=b"after").raise_for_status()
            assert process.stdout.readline() == b"after\n"


def test_a_marker_that_makes_no_sense_is_told(mq: Mq, mq_fails: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    assert "is not a marker" in mq_fails("subscribe", topic, "--marker", "xx")


def test_it_is_fast_enough_for_a_lot(
    mq: Mq, topic: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    mq("topic", "create", topic)
    (tmp_path / "many.txt").write_text("".join(f"{number:099}\n" for number in range(200_000)))
    mq("publish", topic, "--file", str(tmp_path / "many.txt"))
    began = time.monotonic()
    assert run(["subscribe", topic, "--until-end"]) == 0
    seconds = time.monotonic() - began
    assert capfdbinary.readouterr().out == (tmp_path / "many.txt").read_bytes()
    assert seconds < 15  # about one, on a machine with nothing else to do


def test_a_closed_pipe_ends_it_also_while_no_message_comes(mq: Mq, broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a", "b")
    with subscriber(broker, topic, "--from", "earliest") as process:
        assert process.stdout is not None and process.stderr is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"a\n", b"b\n"]
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""
