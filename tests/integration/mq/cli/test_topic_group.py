import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

Mq = Callable[..., str]


def check_files(mq: Mq, mq_fails: Mq, group: str, one: str, other: str) -> None:
    """Other engines get a member's messages alone, and of the whole each message's topic."""
    shown: list[tuple[str, str, list[tuple[str, ...]]]] = [(one, "value", [("a",), ("b",)]), (other, "value", [("c",)])]
    shown += [(group, "value, _topic", [("a", one), ("b", one), ("c", other)])]
    with duckdb.connect() as connection:
        for name, columns, rows in shown:
            connection.execute(mq("files", "sql", name))
            assert connection.sql(f'SELECT {columns} FROM "{name}" ORDER BY _offset').fetchall() == rows
    for name, values in ((one, ["a", "b"]), (group, ["a", "b", "c"])):
        names: dict[str, Any] = {}
        exec(mq("files", "sql", name, "--engine", "polars"), names)
        assert names["messages"].collect()["value"].to_list() == values
    for command in (("files", "ls", one), ("files", "cat", one)):
        assert f"WHERE _topic = '{one}'" in mq_fails(*command)
    assert len(mq("files", "ls", group).splitlines()) > 2
    # A member has no files that could be checked, and to find none damaged would say nothing.
    assert f"lie in the files of topic group '{group}': check that" in mq_fails("verify", one)
    assert "sound" in mq("verify", group) and "sound" in mq("verify", "--all")


def check_readings(mq: Mq, folder: Path, group: str, one: str, other: str) -> None:
    """Who reads the whole as a table, as a file, or in a consumer group sees each message's topic too."""
    table = [line.split()[2:] for line in mq("subscribe", group, "--until-end", "--format", "table").splitlines()]
    assert table == [["topic", "key", "value"], [one, "a"], [one, "b"], [other, "c"]]
    for name, column in ((group, [one, one, other]), (one, None)):
        path = folder / f"{name}.parquet"
        mq("subscribe", name, "--until-end", "--format", "parquet", "--output", str(path))
        written = pq.read_table(path)
        assert (written["_topic"].to_pylist() if "_topic" in written.column_names else None) == column
        assert written["value"].to_pylist() == (["a", "b", "c"] if column else ["a", "b"])
    claimed = mq("subscribe", group, "--group", "s", "--limit", "3", "--json")
    assert [json.loads(line)["topic"] for line in claimed.splitlines()] == [one, one, other]


def test_the_life_of_a_topic_group(
    mq: Mq,
    mq_json: Callable[..., Any],
    mq_fails: Mq,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    group, one, other = f"{topic}-group", f"{topic}-a", f"{topic}-b"
    created = mq("topic-group", "create", group, one, "--set", "value_type=string")
    assert created == f"topic group {group}: 1 topic, 1 open segment\n"
    assert mq("topic-group", "create", group, other) == (
        f"topic group {group}: 2 topics, 1 open segment; it existed before\n"
    )
    mq("publish", one, "a", "b")
    mq("publish", other, "c")
    read = mq("subscribe", other, "--from", "earliest", "--until-end", "--json")
    assert [json.loads(line)["value"] for line in read.splitlines()] == ["c"]
    whole = mq("subscribe", group, "--from", "earliest", "--until-end", "--json")
    assert [json.loads(line)["value"] for line in whole.splitlines()] == ["a", "b", "c"]
    assert [json.loads(line)["topic"] for line in whole.splitlines()] == [one, one, other]
    assert group in mq("topic-group", "list") and one in mq("topic", "list")
    listed = {row[0]: row[3:] for row in map(str.split, mq("topic", "list").splitlines())}
    assert listed["topic"] == ["version", "topic", "group"]
    assert listed[one] == listed[other] == listed[group] == [group]
    assert {each["topic"]: each["group"] for each in mq_json("topic", "list")}[one] == group
    assert mq("topic", "describe", one).startswith(f"topic {one} of topic group {group}, version 2\n")
    assert mq("topic", "describe", group).startswith(f"topic {group}, version 2\n")
    described = mq("topic-group", "describe", group)
    assert described.startswith(
        f"topic group {group}, version 2, one order: 2 topics, 1 open segment\n  {one}\n  {other}\n"
    )
    (segment,) = mq_json("topic-group", "describe", group)["segments"]
    assert segment["end_offset"] == 3
    assert "member of topic group" in mq_fails("topic", "delete", one, "--yes")
    check_files(mq, mq_fails, group, one, other)
    check_readings(mq, tmp_path, group, one, other)
    # The consumers of a group of a member are told by name.
    assert mq("work", one, "--group", "g", "--idle", "0.5s", "--", "cat") == "ab"
    assert "lag" in mq("group", "describe", one, "g")
    assert "has one segment" in mq_fails("topic-group", "create", group, "--set", "max_segments=3")
    assert mq("topic-group", "delete", group, "--yes") == f"topic group {group} is deleted\n"
    assert "no topic group" in mq_fails("topic-group", "describe", group)
    assert one not in mq("topic", "list")
