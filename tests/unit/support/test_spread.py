"""When segments are spread over brokers well enough, and when they have all the replicas they could have."""

from typing import Any

import pytest

from tests.support.cluster.cluster import overloaded, under_replicated_segments


@pytest.mark.parametrize(
    ("owned", "who"),
    [
        ({"a": 7}, []),
        ({"a": 3, "b": 3, "c": 1}, []),
        # 8 by 3, rounded up, plus one.
        ({"a": 4, "b": 4, "c": 0}, []),
        ({"a": 5, "b": 3, "c": 0}, ["a owns 5 segments, of at most 4"]),
        ({"a": 0, "b": 0}, []),
        ({"a": 2, "b": 0, "c": 0}, []),
        ({"a": 3, "b": 0, "c": 0}, ["a owns 3 segments, of at most 2"]),
    ],
)
def test_who_owns_too_much(owned: dict[str, int], who: list[str]) -> None:
    assert overloaded(owned) == who


def topic(replicas: int, *brokers: str, state: str = "open") -> dict[str, Any]:
    segment = {"segment": 3, "state": state, "brokers": list(brokers)}
    return {"topic": "t", "config": {"replicas": replicas}, "segments": [segment]}


def test_segments_that_lack_replicas() -> None:
    assert under_replicated_segments([topic(2, "a", "b"), topic(1, "a"), topic(3, "a", state="sealed")], 3) == []
    assert under_replicated_segments([topic(3, "a", "b")], 2) == []
    assert under_replicated_segments([topic(3, "a", "b")], 3) == ["t: segment 3 is with ['a', 'b'] only"]
