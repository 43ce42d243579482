"""`mq group` and `mq work` against a broker."""

import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidmq import Client
from mq.cli.main import run
from tests.support.broker.broker_process import BrokerProcess
from tests.support.process.mq import MqProcess, mq_process

STOPPING = b"mq: stopping: 1 of 1 commands run; Ctrl-C again ends them\n"
Mq = Callable[..., str]
MqJson = Callable[..., Any]


def test_the_life_of_a_group(mq: Mq, mq_json: MqJson, mq_fails: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a", "b", "c")
    assert mq("group", "list", topic).splitlines()[2:] == []
    made = mq("group", "create", topic, "billing", "--lease-seconds", "1m", "--set", "backoff_seconds=[1,2]")
    assert made == f"group billing of topic {topic}\n"
    again = mq("group", "create", topic, "billing", "--max-deliveries", "3", "--from", "latest")
    assert again == f"group billing of topic {topic}: it existed before; --from was ignored: it stays where it is\n"
    mq("group", "create", topic, "late", "--from", "latest", "--order", "key", "--set", "dead_letter=null")
    rows = [line.split() for line in mq("group", "list", topic).splitlines()[2:]]
    assert [row[:3] for row in rows] == [["billing", "queue", "3"], ["late", "queue", "0"]]
    assert [each["lag"]["messages"] for each in mq_json("group", "list", topic)] == [3, 0]
    described = mq("group", "describe", topic, "billing").splitlines()
    assert described[0].startswith(f"group billing of topic {topic}, coordinated by broker.")
    settings = dict(line.split(maxsplit=1) for line in described[7:])
    assert (settings["lease_seconds"], settings["backoff_seconds"]) == ("60.0", "[1.0,2.0]")
    assert (settings["max_deliveries"], settings["dead_letter.topic"]) == ("3", f"{topic}.dead")
    assert mq_json("group", "describe", topic, "late")["settings"]["order"] == "key"
    reset = mq("group", "reset", topic, "late", "--to", "earliest")
    assert reset == f"group late of topic {topic} begins anew: 3 messages are ahead of it\n"
    assert mq_json("group", "reset", topic, "late", "--to", "latest")["lag"]["messages"] == 0
    assert mq_json("group", "delete", topic, "late", "--yes") == {"deleted": "late"}
    told = f"topic '{topic}' has no group 'late': create it with mq group create {topic} late [group-not-found]"
    assert mq_fails("group", "describe", topic, "late") == told
    assert mq_fails("group", "reset", topic, "late", "--to", "latest") == told
    assert "has no group 'late'" in mq_fails("group", "delete", topic, "late", "--yes")


def test_wrong_use_of_groups(
    mq: Mq, mq_fails: Mq, topic: str, broker: BrokerProcess, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert topic in mq_fails("group", "list", topic)
    mq("topic", "create", topic)
    assert "did you mean 'lease_seconds'" in mq_fails("group", "create", topic, "g", "--set", "lease_second=5")
    mq("group", "create", topic, "g")
    mq("publish", topic, "a")
    with Client(broker.url) as client, client.worker(topic, group="g") as worker:
        next(iter(worker))
        assert "pass --force" in mq_fails("group", "reset", topic, "g", "--to", "latest")
    for wrong in (("--to", "yesterday"), (), ("--to", "latest", "--marker", "x")):
        assert run(["group", "reset", topic, "g", *wrong]) == 2
        assert capfdbinary.readouterr().err.count(b"\n") == 1
    assert "invalid-marker" in mq_fails("group", "reset", topic, "g", "--marker", "x")


def script(tmp_path: Path, text: str) -> list[str]:
    """A command that is a small Python program."""
    path = tmp_path / "command.py"
    path.write_text(text)
    # Without site-packages it starts in a tenth of the time.
    return [sys.executable, "-IS", str(path)]


def test_a_command_gets_each_message(mq: Mq, mq_json: MqJson, topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "value of a", "--key", "ann", "--header", "Colour=red")
    large = tmp_path / "large"
    large.write_bytes(b"x" * 3_000_000)
    mq("publish", topic, "--file", str(large), "--format", "raw")
    command = script(
        tmp_path,
        "import json, os, sys\n"
        "value = sys.stdin.buffer.read()\n"
        "told = {name: each for name, each in os.environ.items() if name.startswith('MQ_')}\n"
        "print(json.dumps({'value': value[:10].decode(), 'size': len(value), **told}))\n",
    )
    printed = mq("work", topic, "--group", "g", "--idle", "0.3s", "--", *command)
    first, second = sorted(map(json.loads, printed.splitlines()), key=lambda each: each["MQ_ID"])
    assert first.pop("MQ_TIMESTAMP").endswith("Z")
    assert first["value"] == "value of a" and json.loads(first["MQ_HEADERS"])["Colour"] == "red"
    assert (first["MQ_TOPIC"], first["MQ_GROUP"], first["MQ_ID"], first["MQ_KEY"]) == (topic, "g", "0-0", "ann")
    assert (first["MQ_DELIVERIES"], first["MQ_HEADER_COLOUR"]) == ("1", "red")
    assert second["size"] == 3_000_000 and "MQ_KEY" not in second
    assert mq_json("group", "describe", topic, "g")["lag"]["messages"] == 0


def test_what_fails_comes_again_and_becomes_a_dead_letter(
    mq: Mq, mq_json: MqJson, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    mq("topic", "create", topic)
    mq("group", "create", topic, "g", "--max-deliveries", "2", "--set", "backoff_seconds=[0]")
    mq("publish", topic, "good", "bad")
    check = "read value; echo looking >&2; test $value = good || { echo no such customer >&2; exit 3; }"
    assert run(["work", topic, "--group", "g", "--idle", "1s", "--", "sh", "-c", check]) == 0
    said = capfdbinary.readouterr().err.decode().splitlines()
    failed = [line for line in said if line.startswith("mq: ")]
    assert failed == [f"mq: message 0-1 has failed, delivery {n}: no such customer" for n in (1, 2)]
    assert said.count("looking") == 3
    described = mq_json("group", "describe", topic, "g")
    assert (described["dead"], described["lag"]["messages"]) == (1, 0)
    (letter,) = mq_json("dead-letters", topic, "--group", "g")
    assert (letter["id"], letter["origin"], letter["deliveries"]) == ("0-0", "0-1", 2)
    assert (letter["reason"], letter["value"]) == ("no such customer", "bad")
    assert mq("dead-letters", topic, "--group", "g").splitlines()[2].split()[:3] == ["0-0", "0-1", "2"]
    assert mq("group", "redrive", topic, "g", "--id", "0-0") == f"published 1 dead letter to {topic} again\n"
    assert mq_json("dead-letters", topic, "--group", "g") == []
    assert mq("work", topic, "--group", "g", "--idle", "0.5s", "--", "cat") == "bad"


def test_commands_of_a_key_run_one_after_the_other_also_behind_one_that_fails(
    mq: Mq, topic: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    mq("topic", "create", topic)
    mq("group", "create", topic, "g", "--order", "key", "--max-deliveries", "2", "--set", "backoff_seconds=[0]")
    for number in range(6):
        mq("publish", topic, str(number), "--key", "ann")
    mq("publish", topic, "0", "--key", "ben")
    check = (
        'mkdir "$MQ_KEY" || { echo two at a time >&2; exit 1; }; read value; echo "$value" >> "$MQ_KEY.log"; '
        'rmdir "$MQ_KEY"; test "$value" != 2 -o "$MQ_DELIVERIES" != 1'
    )
    command = ["sh", "-c", f"cd {shlex.quote(str(tmp_path))}; {check}"]
    assert run(["work", topic, "--group", "g", "--idle", "1s", "--concurrency", "3", "--", *command]) == 0
    assert b"two at a time" not in capfdbinary.readouterr().err
    assert (tmp_path / "ann.log").read_text().split() == list("0122345")
    assert (tmp_path / "ben.log").read_text().split() == ["0"]


def test_dead_letters_are_redriven_or_discarded(
    mq: Mq, mq_json: MqJson, mq_fails: Mq, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    mq("topic", "create", topic)
    mq("group", "create", topic, "g", "--max-deliveries", "1")
    mq("publish", topic, "a", "b", "c", "d")
    run(["work", topic, "--group", "g", "--idle", "0.5s", "-c", "4", "--", "false"])
    capfdbinary.readouterr()
    until = time.monotonic() + 20
    while mq_json("group", "describe", topic, "g")["dead"] < 4:
        assert time.monotonic() < until
    assert run(["dead-letters", topic, "--group", "g", "-n", "2"]) == 0
    shown = capfdbinary.readouterr()
    assert len(shown.out.splitlines()) == 4 and shown.err == b"mq: there are more than these 2: see --limit\n"
    assert mq_json("group", "redrive", topic, "g", "--limit", "1") == {"redriven": 1}
    assert mq("group", "redrive", topic, "g", "--limit", "1", "--discard") == "discarded 1 dead letter\n"
    assert mq("group", "redrive", topic, "g") == f"published 2 dead letters to {topic} again\n"
    assert mq("group", "redrive", topic, "g") == f"published 0 dead letters to {topic} again\n"
    assert "9-9" in mq_fails("group", "redrive", topic, "g", "--id", "9-9")
    mq("group", "create", topic, "h", "--set", "dead_letter=null")
    assert "keeps no dead letters: its dead_letter is null" in mq_fails("group", "redrive", topic, "h")


@pytest.mark.parametrize(
    ("command", "reason"),
    [("exit 7", "exit code 7"), ("kill -9 $$", "killed by SIGKILL"), ("printf 'no newline' >&2; exit 1", "no newline")],
)
def test_why_a_command_failed(
    mq: Mq, topic: str, command: str, reason: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a")
    assert run(["work", topic, "--group", "g", "--idle", "0.3s", "--", "sh", "-c", command]) == 0
    assert capfdbinary.readouterr().err.decode().endswith(f"mq: message 0-0 has failed, delivery 1: {reason}\n")


def test_wrong_use_of_work(mq: Mq, mq_fails: Mq, topic: str, broker: BrokerProcess) -> None:
    assert mq_fails("work", topic, "--group", "g", "--", "cat") == (
        f"there is no topic '{topic}': create it with mq topic create {topic} [topic-not-found]"
    )
    assert "no command 'no-such-command'" in mq_fails("work", topic, "--group", "g", "--", "no-such-command")
    assert "Connection refused" in mq_fails(
        "work", topic, "--group", "g", "--url", "http://127.0.0.1:9", "--timeout", "1", "--", "cat"
    )
    for wrong in (("work", topic, "--", "cat"), ("work", topic, "--group", "g")):
        assert run(list(wrong)) == 2


def working(broker: BrokerProcess, topic: str, command: str) -> MqProcess:
    return mq_process("work", topic, "--group", "g", "--url", broker.url, "--", "sh", "-c", command)


def test_commands_end_with_a_worker_that_is_killed(mq: Mq, topic: str, broker: BrokerProcess) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a")
    # What a command has started holds its stdout open as well. Its stderr is passed on once the guard is to end it.
    with working(broker, topic, "echo begun >&2; (sleep 60; echo went on); echo done") as worker:
        assert worker.stderr_line() == b"begun\n"
        worker.kill()
        assert worker.stdout() == b""


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_a_stop_lets_the_command_end(
    mq: Mq, mq_json: MqJson, topic: str, broker: BrokerProcess, tmp_path: Path, how: str
) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, *map(str, range(20)))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with working(broker, topic, f"echo begun; read line < {shlex.quote(str(gate))}; echo done") as worker:
        assert worker.stdout_line() == b"begun\n"
        if how == "Ctrl-C":
            worker.interrupt()
        else:
            worker.terminate()
        gate.write_text("go\n")
        assert (worker.wait(30), worker.stdout()) == (0, b"done\n")
        assert worker.stderr() == STOPPING
    assert mq_json("group", "describe", topic, "g")["lag"]["messages"] == 19
    # What it had claimed ahead is with others at once, and not only after a lease of 30 s.
    began = time.monotonic()
    assert len(mq("work", topic, "--group", "g", "--idle", "3s", "--", "echo", "x").splitlines()) == 19
    assert time.monotonic() - began < 25


def test_a_second_ctrl_c_ends_the_command_too(
    mq: Mq, mq_json: MqJson, topic: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a")
    ended = tmp_path / "ended"
    trap = f"trap 'echo ended > {shlex.quote(str(ended))}; exit 1' TERM; echo begun; while :; do sleep 0.1; done"
    with working(broker, topic, trap) as worker:
        assert worker.stdout_line() == b"begun\n"
        worker.interrupt()
        assert worker.stderr_line() == STOPPING
        worker.interrupt()
        assert worker.wait(30) == 130
        until = time.monotonic() + 30
        while not ended.exists():
            assert time.monotonic() < until
            time.sleep(0.02)
    assert mq("work", topic, "--group", "g", "--idle", "0.3s", "--", "cat") == "a"
