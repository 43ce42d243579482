import json
from collections.abc import Callable
from typing import Any

Mq = Callable[..., str]


def test_the_life_of_a_topic_group(mq: Mq, mq_json: Callable[..., Any], mq_fails: Mq, topic: str) -> None:
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
    assert group in mq("topic-group", "list") and one in mq("topic", "list")
    described = mq("topic-group", "describe", group)
    assert described.startswith(
        f"topic group {group}, version 2, one order: 2 topics, 1 open segment\n  {one}\n  {other}\n"
    )
    (segment,) = mq_json("topic-group", "describe", group)["segments"]
    assert segment["end_offset"] == 3
    assert "member of topic group" in mq_fails("topic", "delete", one, "--yes")
    assert "has one segment" in mq_fails("topic-group", "create", group, "--set", "max_segments=3")
    assert mq("topic-group", "delete", group, "--yes") == f"topic group {group} is deleted\n"
    assert "no topic group" in mq_fails("topic-group", "describe", group)
    assert one not in mq("topic", "list")
