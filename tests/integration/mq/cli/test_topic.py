import asyncio
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mq.cli.main import run
from tests.support.broker.scripted_http import answer, scripted_server

Mq = Callable[..., str]


def test_the_life_of_a_topic(mq: Mq, mq_json: Callable[..., Any], mq_fails: Mq, topic: str) -> None:
    assert (
        mq("topic", "create", topic, "--segments", "3", "--key-type", "string") == f"topic {topic}: 3 open segments\n"
    )
    assert topic in mq("topic", "list")
    described = mq("topic", "describe", topic)
    assert "settings: key_type=string" in described
    assert [row.split()[:3] for row in described.splitlines()[4:7]] == [
        ["0", "0-21844", "open"],
        ["1", "21845-43689", "open"],
        ["2", "43690-65535", "open"],
    ]
    found = mq_json("topic", "describe", topic)
    assert [segment["range"] for segment in found["segments"]] == [[0, 21845], [21845, 43690], [43690, 65536]]
    assert mq_json("topic", "delete", topic, "--yes") == {"deleted": topic}
    assert topic not in mq("topic", "list")
    assert topic in mq_fails("topic", "describe", topic)


def test_splitting_and_merging(mq: Mq, mq_json: Callable[..., Any], mq_fails: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    table = mq("topic", "split", topic, "0", "--at", "1000", "--at", "2000").splitlines()
    assert [row.split()[:3] for row in table[2:]] == [
        ["1", "0-999", "open"], ["2", "1000-1999", "open"], ["3", "2000-65535", "open"],
    ]  # fmt: skip
    (merged,) = mq_json("topic", "merge", topic, "2", "1")["segments"]
    assert (merged["segment"], merged["range"], merged["predecessors"]) == (4, [0, 2000], [1, 2])
    assert len(mq_json("topic", "split", topic, "4", "--parts", "5")["segments"]) == 5
    assert mq("topic", "describe", topic).splitlines()[-3:] == [
        "0 split into 1, 2 and 3",
        "1 and 2 merged into 4",
        "4 split into 5, 6, 7, 8 and 9",
    ]
    assert "is followed by 5, 6, 7, 8, 9" in mq_fails("topic", "merge", topic, "4", "3")


def test_history(mq: Mq, mq_json: Callable[..., Any], topic: str) -> None:
    mq("topic", "create", topic)
    mq("publish", topic, "a", "b", "c")
    mq("topic", "split", topic, "0")
    rows = [line.split() for line in mq("topic", "history", topic).splitlines()[2:]]
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("0", "0-65535", "create"), ("1", "0-32767", "split"), ("2", "32768-65535", "split"),
    ]  # fmt: skip
    first, second, _ = mq_json("topic", "history", topic)
    assert (first["messages"], first["successors"], second["sealed"]) == (3, [1, 2], None)


@pytest.mark.parametrize(("name", "begin"), [("braid.png", b"\x89PNG"), ("braid.svg", b"<?xml")], ids=["png", "svg"])
def test_history_as_a_picture(name: str, begin: bytes, mq: Mq, topic: str, tmp_path: Path) -> None:
    mq("topic", "create", topic, "--segments", "3")
    path = tmp_path / name
    assert mq("topic", "history", topic, "--plot", str(path)) == f"drew 3 segments into {path}\n"
    assert path.read_bytes().startswith(begin)


def test_a_picture_without_what_draws_it(
    mq: Mq, mq_fails: Mq, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mq("topic", "create", topic)
    monkeypatch.delitem(sys.modules, "mq.cli.topics.braid_plot", raising=False)
    for name in [name for name in sys.modules if name.startswith("matplotlib.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = mq_fails("topic", "history", topic, "--plot", str(tmp_path / "braid.png"))
    assert said.startswith("--plot needs matplotlib") and said.endswith("pip install 'braidmq[plot]'")


def test_what_makes_no_sense(topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "history", topic, "--plot", str(tmp_path / "braid.gif")]) == 2
    assert "does not end in .png or .svg" in capfd.readouterr().err
    assert run(["topic", "split", topic, "0", "--at", "5", "--parts", "2"]) == 2
    assert "not both" in capfd.readouterr().err


def test_settings_by_flag_and_by_dotted_key(mq_json: Callable[..., Any], topic: str) -> None:
    made = mq_json(
        "topic", "create", topic, "--retention-seconds", "3600", "--set", "retention.bytes=5000000",
        "--overflow", "block", "--set", "scaling.enabled=false", "--value-type", "json",
    )["config"]  # fmt: skip
    assert made["retention"] == {"seconds": 3600.0, "bytes": 5000000}
    assert (made["overflow"], made["scaling"]["enabled"], made["value_type"]) == ("block", False, "json")
    changed = mq_json("topic", "config", topic, "--set", "retention.seconds=null")
    assert changed["retention"] == {"seconds": None, "bytes": 5000000}
    assert mq_json("topic", "config", topic) == changed


def test_config_as_a_table_can_be_given_back(mq: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    table = mq("topic", "config", topic, "--set", "rollup_bytes=1048576")
    assert ["rollup_bytes", "1048576"] in [line.split() for line in table.splitlines()]
    assert ["retention.seconds", "null"] in [line.split() for line in table.splitlines()]


def test_a_misspelt_setting_is_refused_with_the_nearest(mq_fails: Mq, topic: str) -> None:
    assert "did you mean 'retention'" in mq_fails("topic", "create", topic, "--set", "retenton.seconds=1")


def test_creating_again_changes_what_it_may_and_tells_the_rest(mq: Mq, mq_json: Mq, mq_fails: Mq, topic: str) -> None:
    assert mq("topic", "create", topic, "--segments", "2", "--new") == f"topic {topic}: 2 open segments\n"
    mq("topic", "split", topic, "0")
    again = ("topic", "create", topic, "--segments", "2", "--set", "rollup_bytes=2048")
    assert mq(*again) == (
        f"topic {topic}: 3 open segments; it existed before\n"
        "segments 2 was ignored: it counts only at creation, and the topic has 3\n"
    )
    found: Any = mq_json(*again)
    assert (found["created"], found["differs"]) == (False, {"segments": {"wanted": 2, "actual": 3}})
    assert found["config"]["rollup_bytes"] == 2048
    assert "exists: leave out --new to change its settings" in mq_fails(*again, "--new")
    assert "value_type" in mq_fails("topic", "create", topic, "--value-type", "json")


def test_config_takes_nothing_that_counts_only_at_creation(mq: Mq, topic: str) -> None:
    mq("topic", "create", topic)
    assert run(["topic", "config", topic, "--set", "segments=4"]) == 2


def test_config_does_not_create_a_topic(mq_fails: Mq, topic: str) -> None:
    assert topic in mq_fails("topic", "config", topic, "--set", "rollup_bytes=1048576")
    assert topic in mq_fails("topic", "describe", topic)


@pytest.mark.parametrize(("answer", "deleted"), [("y\n", True), ("n\n", False), ("", False)])
def test_deleting_asks(
    answer: str,
    deleted: bool,
    mq: Mq,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    mq("topic", "create", topic)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert run(["topic", "delete", topic]) == (0 if deleted else 1)
    assert b"with all its messages?" in capfdbinary.readouterr().err
    assert (topic not in mq("topic", "list")) is deleted


def test_a_wrong_port_fails_at_once_and_names_the_address(mq_fails: Mq) -> None:
    assert mq_fails("topic", "list", "--url", "http://127.0.0.1:9") == (
        "no connection to http://127.0.0.1:9: Connection refused; is a broker listening there?"
    )


async def test_describing_names_lost_objects(capfd: pytest.CaptureFixture[str]) -> None:
    """The last file of a segment is damaged, so nothing shows where the segment ends; another one is missing."""
    lost = [
        {"key": "topics/t/a", "what": "missing", "segment": 0, "offset": 3, "next_offset": 5},
        {"key": "topics/t/b", "what": "damaged", "segment": 1, "offset": 7, "next_offset": None},
    ]
    body = json.dumps({"topic": "t", "config": {}, "version": 1, "segments": [], "damaged": lost})
    async with scripted_server(lambda head: answer(200, body, Content_Type="application/json")) as server:
        assert await asyncio.to_thread(run, ["topic", "describe", "t", "--url", server.url]) == 0
    rows = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert ["topics/t/a", "missing", "0", "3", "4"] in rows
    assert ["topics/t/b", "damaged", "1", "7", "unknown"] in rows
