"""`mq subscribe --group` against a broker: members print, commit what they printed, and leave."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidmq import Client
from mq.cli.main import run
from tests.support.broker.broker_process import BrokerProcess
from tests.support.process.mq import MqProcess, mq_process

Mq = Callable[..., str]
MqJson = Callable[..., Any]


def member(broker: BrokerProcess, topic: str, *options: str) -> MqProcess:
    return mq_process("subscribe", topic, "--group", "g", "--url", broker.url, *options)


def lag(mq_json: MqJson, topic: str) -> int:
    described = mq_json("group", "describe", topic, "g")
    assert described["members"] == []
    messages: int = described["lag"]["messages"]
    return messages


def test_what_is_printed_is_committed(mq: Mq, mq_json: MqJson, topic: str) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a", "b", "c", "d")
    assert mq("subscribe", topic, "--group", "g", "--limit", "3") == "a\nb\nc\n"
    assert lag(mq_json, topic) == 1
    assert mq("subscribe", topic, "--group", "g", "--idle", "0.3s") == "d\n"
    assert mq("subscribe", topic, "--group", "g", "--idle", "0.1s") == ""
    assert lag(mq_json, topic) == 0


def test_each_form_prints_what_a_subscription_prints(mq: Mq, topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic, "--set", "key_type=string")
    large = tmp_path / "large"
    large.write_bytes(b"x" * 1_100_000)
    mq("publish", topic, "a", "--key", "ann", "--header", "Colour=red")
    mq("publish", topic, "--file", str(large), "--format", "raw")
    for form in ("lines", "raw", "ndjson", "json", "table"):
        expected = mq("subscribe", topic, "--until-end", "--format", form)
        assert mq("subscribe", topic, "-g", form, "--idle", "0.3s", "--format", form) == expected
    first = mq("subscribe", topic, "-g", "--json", "--idle", "0.3s", "--json").splitlines()[0]
    assert json.loads(first)["headers"] == {"Colour": "red"}


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM", "closed pipe"])
def test_a_member_that_is_stopped_commits_and_leaves(
    mq: Mq, mq_json: MqJson, topic: str, broker: BrokerProcess, how: str
) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a", "b")
    with member(broker, topic, "--member-id", "m1") as printing:
        assert (printing.stdout_line(), printing.stdout_line()) == (b"a\n", b"b\n")
        (told,) = mq_json("group", "describe", topic, "g")["members"]
        assert told["member_id"] == "m1"
        if how == "Ctrl-C":
            printing.interrupt()
        elif how == "SIGTERM":
            printing.terminate()
        else:
            printing.close_stdout()
        assert (printing.wait(30), printing.stderr()) == (0, b"")
    # It has left at once: nobody waits for the end of its session.
    assert lag(mq_json, topic) == 0


def test_two_members_divide_the_segments(mq: Mq, topic: str, broker: BrokerProcess) -> None:
    mq("topic", "create", topic, "--segments", "2")
    mq("group", "create", topic, "g", "--set", "mode=stream")
    with (
        member(broker, topic, "--member-id", "m1") as one,
        member(broker, topic, "--member-id", "m2") as other,
        Client(broker.url) as client,
    ):
        until = time.monotonic() + 30
        while sorted(len(each.segments) for each in client.group(topic, "g").describe().members) != [1, 1]:
            assert time.monotonic() < until
            time.sleep(0.05)
        told = mq("group", "describe", topic, "g")
        rows = {line.split()[0]: line.split()[1:] for line in told.splitlines() if line.startswith("m")}
        assert rows["member"] == ["epoch", "segments", "lag", "session", "ends", "in"]
        assert sorted((rows["m1"][1], rows["m2"][1])) == ["0", "1"]
        for each in (one, other):
            each.interrupt()
            assert each.wait(30) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ["--group", "g", "--from", "earliest"], ["--group", "g", "--tail", "1"], ["--group", "g", "--until-end"],
        ["--member-id", "m"], ["--idle", "1s"],
    ],
)  # fmt: skip
def test_wrong_use(mq: Mq, topic: str, wrong: list[str], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["subscribe", topic, *wrong]) == 2
    assert capfdbinary.readouterr().err.count(b"\n") == 1


def test_a_queue_group_has_no_members(mq: Mq, mq_fails: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    mq("group", "create", topic, "q")
    assert "queue" in mq_fails("subscribe", topic, "--group", "q")
