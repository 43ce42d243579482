import io
import itertools
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidmq import Client, OutgoingMessage
from tests.support.broker.broker_process import BrokerProcess, broker_environment
from tests.support.process.processes import free_port
from tests.support.topic.flights import write_flights

Mq = Callable[..., str]


@pytest.fixture
def messages(mq: Mq) -> Callable[[str], list[dict[str, Any]]]:
    def read(topic: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in mq("subscribe", topic, "--until-end", "--json").splitlines()]

    return read


def piped(broker: BrokerProcess, data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """`mq publish` as a process, with that on its stdin."""
    return subprocess.run(
        [sys.executable, "-m", "mq.cli.main", "publish", *arguments, "--url", broker.url],
        env=broker_environment({}),
        input=data,
        capture_output=True,
        timeout=60,
    )


def test_arguments(mq: Mq, messages: Callable[[str], list[dict[str, Any]]], topic: str) -> None:
    mq("topic", "create", topic)
    assert mq("publish", topic, "hello") == "published 1 message at 0-0\n"
    assert "published 2 messages" in mq("publish", topic, "a", "", "--key", "k", "--header", "n=v=w")
    read = messages(topic)
    assert [(m["key"], m["value"], m["headers"]) for m in read] == [
        (None, "hello", {}),
        ("k", "a", {"n": "v=w"}),
        ("k", "", {"n": "v=w"}),
    ]


def test_arguments_that_are_not_utf_8_go_as_they_are(
    mq: Mq, messages: Callable[[str], list[dict[str, Any]]], topic: str
) -> None:
    mq("topic", "create", topic)
    key, value = os.fsdecode(b"k\xff"), os.fsdecode(b"v\xfe")
    mq("publish", topic, value, "--key", key, "--header", f"n={value}")
    (read,) = messages(topic)
    assert (read["key_base64"], read["value_base64"], read["headers"]) == ("a/8=", "dv4=", {"n": {"base64": "dv4="}})
    assert mq("subscribe", topic, "--until-end", "--key", key, "--json").count("\n") == 1
    assert "�" in mq("publish", topic, value, "--key", key, "--dry-run")


def test_lines_of_stdin(mq: Mq, broker: BrokerProcess, values: Callable[[str], list[str]], topic: str) -> None:
    mq("topic", "create", topic)
    done = piped(broker, "eins\nzwei ä\n\nvier".encode(), topic, "--key", "k", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    told = json.loads(done.stdout)
    assert (told["count"], told["positions"]) == (4, [{"segment": 0, "offset": 0, "count": 4}])
    assert values(topic) == ["eins", "zwei ä", "", "vier"]


def test_lines_arrive_while_stdin_is_still_open(mq: Mq, broker: BrokerProcess, topic: str) -> None:
    mq("topic", "create", topic)
    with subprocess.Popen(
        [sys.executable, "-m", "mq.cli.main", "publish", topic, "--url", broker.url],
        env=broker_environment({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as publisher:
        assert publisher.stdin is not None
        publisher.stdin.write(b"now\n")
        publisher.stdin.flush()
        assert mq("subscribe", topic, "--from", "earliest", "--limit", "1") == "now\n"
        publisher.stdin.close()
        assert publisher.wait(30) == 0


def test_stdin_whole(
    mq: Mq, broker: BrokerProcess, messages: Callable[[str], list[dict[str, Any]]], topic: str
) -> None:
    mq("topic", "create", topic)
    assert piped(broker, b"a\nb\n", topic, "--format", "raw").returncode == 0
    assert piped(broker, b"x" * 2_000_000, topic, "--format", "raw").returncode == 0
    small, large = messages(topic)
    assert small["value"] == "a\nb\n"
    assert large["ref"]["size"] == 2_000_000


def test_ndjson(mq: Mq, messages: Callable[[str], list[dict[str, Any]]], topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic)
    (tmp_path / "a.ndjson").write_text('{"id": "x", "n": 1}\n{"id": null}\n{"n": [2]}\n')
    mq("publish", topic, "--file", str(tmp_path / "a.ndjson"), "--key-field", "id")
    mq("publish", topic, "--file", str(tmp_path / "a.ndjson"), "--key", "k", "--value-field", "n")
    read = messages(topic)
    assert [(m["key"], m["value"]) for m in read] == [
        ("x", {"id": "x", "n": 1}), (None, {"id": None}), (None, {"n": [2]}), ("k", "1"), ("k", None), ("k", "[2]"),
    ]  # fmt: skip
    assert read[0]["headers"] == {"content-type": "application/json"}


def test_parquet(mq: Mq, messages: Callable[[str], list[dict[str, Any]]], topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic)
    table = pa.table({"id": pa.array(["x", None]), "n": pa.array([1, 2], pa.int16()), "b": pa.array([b"\0", None])})
    pq.write_table(table, tmp_path / "a.parquet")
    mq("publish", topic, "--file", str(tmp_path / "a.parquet"), "--key-field", "id")
    mq("publish", topic, "--file", str(tmp_path / "a.parquet"), "--value-field", "b")
    assert [(m["key"], m.get("value")) for m in messages(topic)] == [
        ("x", {"id": "x", "n": 1, "b": "AA=="}), (None, {"id": None, "n": 2, "b": None}), (None, "\0"), (None, None),
    ]  # fmt: skip


def test_a_dry_run_reads_everything_and_publishes_nothing(
    mq: Mq, values: Callable[[str], list[str]], topic: str, tmp_path: Path
) -> None:
    mq("topic", "create", topic)
    (tmp_path / "a.ndjson").write_text('{"id": 1}\n{"id": 2.50}\n')
    (tmp_path / "b.csv").write_text("id,v\n3,x\n4,y\n")
    (tmp_path / "c.json").write_text("[4]")
    files = [word for name in ("a.ndjson", "b.csv", "c.json") for word in ("--file", str(tmp_path / name))]
    assert json.loads(mq("publish", topic, *files, "--dry-run", "--json")) == {
        "dry_run": True,
        "topic": topic,
        "messages": 5,
        "bytes": 9 + 12 + 2 * 16 + 3,
        "first": [{"key": None, "value": v} for v in ('{"id": 1}', '{"id": 2.50}', '{"id":3,"v":"x"}')],
    }
    assert "would publish 2 messages" in mq("publish", topic, "a", "b", "--key", "k", "--dry-run")
    assert values(topic) == []


def test_several_files_each_by_its_name(mq: Mq, values: Callable[[str], list[str]], topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic)
    (tmp_path / "a.txt").write_text("1\n2\n")
    (tmp_path / "b.csv").write_text("v\n3\n")
    (tmp_path / "c.json").write_text("[4]")
    files = [word for name in ("a.txt", "b.csv", "c.json") for word in ("--file", str(tmp_path / name))]
    mq("publish", topic, *files)
    assert values(topic) == ["1", "2", '{"v":3}', "[4]"]


def test_uploads_are_published_by_reference(
    mq: Mq, messages: Callable[[str], list[dict[str, Any]]], topic: str, tmp_path: Path
) -> None:
    mq("topic", "create", topic)
    (tmp_path / "small").write_bytes(b"\x89PNG")
    mq(
        "publish",
        topic,
        "--upload",
        "--file",
        str(tmp_path / "small"),
        "--key",
        "k",
        "--header",
        "content-type=image/png",
    )
    (message,) = messages(topic)
    assert (message["ref"]["size"], message["key"], message["headers"]["content-type"]) == (4, "k", "image/png")


def damaged_parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [f"{number}" for number in range(10_000)]}), sink, use_dictionary=False)
    whole = sink.getvalue()
    return whole[:2000] + b"X" * 500 + whole[2500:]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.ndjson", b'{"a":1}\n{"b"', [], "a.ndjson, line 2: "),
        ("a.csv", b"a,b\n1,2\n3\n", [], "Expected 2 columns, got 1"),
        ("a.csv", b"a,b\n1,2\n", ["--key-field", "c"], "unknown column 'c'"),
        ("a.csv", b"a,b\n1,2\n", ["--key", "c"], "--key-field"),
        ("a.parquet", b"not parquet", [], "a.parquet: "),
        ("a.xyz", b"", [], "--format"),
        ("a.txt", b"", ["--key-field", "a"], "has no fields"),
        ("missing.csv", None, [], "missing.csv: No such file or directory"),
        ("missing.parquet", None, [], "missing.parquet: No such file or directory"),
        ("a.parquet", damaged_parquet(), [], "a.parquet: Corrupt snappy"),
    ],
)
def test_what_cannot_be_published_is_told(
    name: str, content: bytes | None, options: list[str], message: str, mq: Mq, mq_fails: Mq, topic: str, tmp_path: Path
) -> None:
    mq("topic", "create", topic)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert message in mq_fails("publish", topic, "--file", str(tmp_path / name), *options)


def test_an_unknown_topic_is_told_before_anything_is_read(mq_fails: Mq, topic: str) -> None:
    assert topic in mq_fails("publish", topic, "--file", "/dev/null", "--format", "lines")


def test_what_was_stored_before_an_error_is_told(mq: Mq, mq_fails: Mq, topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic)
    (tmp_path / "a.txt").write_text("1\n2\n")
    (tmp_path / "b.ndjson").write_text("oops")
    told = mq_fails("publish", topic, "--file", str(tmp_path / "a.txt"), "--file", str(tmp_path / "b.ndjson"))
    assert told.endswith("; 2 messages were stored before that: --skip 2 leaves out what is stored")


def test_real_rows_keep_their_values_and_each_keys_order(
    mq: Mq, mq_json: Callable[..., Any], messages: Callable[[str], list[dict[str, Any]]], topic: str, tmp_path: Path
) -> None:
    flights = write_flights(tmp_path / "flights.csv", count=20_000)
    mq("topic", "create", topic, "--segments", "4")
    told = mq_json("publish", topic, "--file", str(flights.path), "--key-field", "tailnum")
    assert told["count"] == 20_000 and {each["segment"] for each in told["positions"]} == {0, 1, 2, 3}
    read = messages(topic)
    assert sorted((m["value"] for m in read), key=lambda row: row["row"]) == flights.table.to_pylist()
    assert all(m["key"] == m["value"]["tailnum"] for m in read)
    newest: dict[str, int] = {}
    for message in read:
        if message["key"] is not None:
            assert newest.get(message["key"], -1) < message["value"]["row"]
            newest[message["key"]] = message["value"]["row"]


def test_a_killed_broker_and_one_that_is_gone_do_not_end_the_command(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path, port=free_port()) as own, Client(own.url) as client:
        client.create_topic("t")
        environment = broker_environment({"BRAIDMQ_URL": f"http://127.0.0.1:{free_port()},{own.url}"})
        command = [sys.executable, "-m", "mq.cli.main", "publish", "t", "--key", "k", "--json"]
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as publishing:
            assert publishing.stdin is not None
            assert publishing.stdout is not None
            restarting = threading.Thread(target=own.restart)
            numbers = itertools.count()
            publishing.stdin.write(b"%d\n" % next(numbers))
            publishing.stdin.flush()
            while next(iter(client.browse("t")), None) is None:
                pass
            restarting.start()
            while restarting.is_alive():
                publishing.stdin.write(b"%d\n" % next(numbers))
                publishing.stdin.flush()
            publishing.stdin.close()
            told = json.loads(publishing.stdout.read())
            assert publishing.wait(60) == 0
        stored = [message.value for message in client.browse("t")]
    assert stored == [b"%d" % n for n in range(next(numbers))]
    assert told["count"] == len(stored) > 1


def copied(broker: BrokerProcess, mq: Mq, source: str, target: str) -> None:
    printed = mq("subscribe", source, "--until-end", "--json").encode()
    ended = piped(broker, printed, target, "--format", "messages")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("value_type", ["binary", "json"])
def test_what_subscribe_prints_is_published_as_it_was(
    broker: BrokerProcess, mq: Mq, topic: str, value_type: str
) -> None:
    """Values, keys, headers, times, nulls, and payloads beside the log."""
    copy = f"{topic}.copy"
    for name in (topic, copy):
        mq("topic", "create", name, "--set", f"value_type={value_type}")
    moment = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)
    json_header = {"content-type": "application/json"}
    with Client(broker.url) as client:
        values = ["123", "text", b'"true"', {"a": [1.50, None]}, b"[1,2]", 5, None, "é"]
        given = [OutgoingMessage(value, key="k", event_time=moment) for value in values]
        given += [
            OutgoingMessage(b'"12"', headers=json_header),
            OutgoingMessage(b"7", b"\xff", {"h": b"\xfe", "i": "j"}),
        ]
        given += [OutgoingMessage(b"1", expires_at=datetime(2999, 1, 1, tzinfo=UTC))]
        given += [OutgoingMessage(json.dumps("large" * 300_000).encode(), "k", {"a": "b"}), OutgoingMessage(b"8")]
        client.publish_many(topic, given)
        copied(broker, mq, topic, copy)
        wanted, found = (
            [(m.key, m.value, dict(m.headers), m.event_time, m.ref and m.ref.sha256) for m in client.browse(name)]
            for name in (topic, copy)
        )
    assert found == wanted
    assert found[-2][4] is not None


def test_lines_that_are_no_messages_are_named(broker: BrokerProcess, mq: Mq, topic: str) -> None:
    mq("topic", "create", topic, "--set", "value_type=json")
    for line, says in (
        (b"{", "line 3"),
        (b"[]", "line 3: a message is a JSON object"),
        (b'{"valeu": 1}', "line 3: unkn"),
    ):
        ended = piped(broker, b'{"value": 1}\n\n' + line, topic, "--format", "messages")
        assert ended.returncode == 1
        assert says in ended.stderr.decode()


@pytest.mark.parametrize("options", [[], ["--dry-run"]], ids=["published", "dry run"])
@pytest.mark.parametrize(
    ("given", "says", "typed"),
    [
        (["now"], "the value is not JSON (", "'\"now\"'"),
        (["it's"], "the value is not JSON (", """'"it'"'"'s"'"""),
        (["1", ""], "value 2 is not JSON (", "'\"\"'"),
        (["{n: 1}"], "put it in single quotes", "'{\"n\": 1}'"),
    ],
)
def test_a_text_for_a_topic_of_json_is_told_how_to_type_it(
    mq: Mq, mq_fails: Mq, topic: str, given: list[str], says: str, typed: str, options: list[str]
) -> None:
    """The quotes of `mq publish T "now"` are the shell's, and do not arrive."""
    mq("topic", "create", topic, "--set", "value_type=json")
    told = mq_fails("publish", topic, *given, *options)
    assert says in told and told.endswith(f": mq publish {topic} {typed}")
    assert mq("subscribe", topic, "--until-end") == ""
    # What is told to type is what a shell makes JSON of.
    mq("publish", topic, *shlex.split(typed))


def test_a_bad_line_of_a_topic_of_json_is_named_by_its_line(broker: BrokerProcess, mq: Mq, topic: str) -> None:
    mq("topic", "create", topic, "--set", "value_type=json")
    lines = b"".join(b"%d\n" % number for number in range(150_000))
    ended = piped(broker, lines + b"now\n", topic)
    assert ended.returncode == 1
    assert "line 150001: the topic's values must be JSON" in ended.stderr.decode()
    stored = int(ended.stderr.decode().rpartition("--skip ")[2].split()[0])
    ended = piped(broker, lines + b"now\n7\n", topic, "--skip", "150001")
    assert ended.returncode == 0
    assert 0 < stored <= 150_000


def test_a_key_is_as_it_is_written_and_the_row_as_without_it(
    mq: Mq, messages: Callable[[str], list[dict[str, Any]]], topic: str, tmp_path: Path
) -> None:
    mq("topic", "create", topic, "--set", "value_type=json")
    file = tmp_path / "k.csv"
    file.write_text("id,name\n1.50,a\n2,b\n")
    mq("publish", topic, "--file", str(file), "--key-field", "id")
    mq("publish", topic, "--file", str(file))
    found = [(m["key"], m["value"]) for m in messages(topic)]
    rows = [{"id": 1.5, "name": "a"}, {"id": 2.0, "name": "b"}]
    assert found == [("1.50", rows[0]), ("2", rows[1]), (None, rows[0]), (None, rows[1])]


def test_a_value_field_that_is_text_is_a_json_string_in_a_topic_of_json(
    broker: BrokerProcess, mq: Mq, messages: Callable[[str], list[dict[str, Any]]], topic: str
) -> None:
    mq("topic", "create", topic, "--set", "value_type=json")
    lines = b'{"v": "123"}\n{"v": 5}\n{"v": null}\n'
    assert piped(broker, lines, topic, "--format", "ndjson", "--value-field", "v").returncode == 0
    assert [m["value"] for m in messages(topic)] == ["123", 5, None]


def test_times_of_delivery(mq: Mq, messages: Callable[[str], list[dict[str, Any]]], topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic)
    file = tmp_path / "lines.txt"
    file.write_text("a\n")
    at = "2999-01-31T12:00:00Z"
    mq("publish", topic, "x", "--deliver-at", at)
    mq("publish", topic, "--file", str(file), "--expires-at", at)
    mq("publish", topic, "y", "--delay", "5m")
    found = [m["headers"] for m in messages(topic)]
    shown = "2999-01-31T12:00:00.000000Z"
    assert found[:2] == [{"braid-deliver-at": shown}, {"braid-expires-at": shown}]
    assert found[2].keys() == {"braid-deliver-at"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--delay", "5x"], "a number with a unit"),
        (["--delay", "-5s"], "number with a unit"),
        (["--deliver-at", "tomorrow"], "an RFC 3339 time"),
        (["--expires-at", "2026-01-31T12:00:00"], "an RFC 3339 time"),
        (["--delay", "5s", "--deliver-at", "2999-01-01T00:00:00Z"], "not both"),
        (["--header", "a=1", "--header", "a=2"], "given twice"),
        (["--header", "Braid-Deliver-At=soon"], "RFC 3339"),
    ],
)
def test_wrong_times_and_headers_are_refused(broker: BrokerProcess, topic: str, options: list[str], says: str) -> None:
    ended = piped(broker, b"", topic, "x", *options)
    assert ended.returncode == 2
    assert says in " ".join(ended.stderr.decode().replace("│", " ").split())
