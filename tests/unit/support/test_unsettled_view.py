"""When a cluster has come to rest, as one of its brokers sees it."""

from typing import Any

import pytest

from tests.support.cluster.cluster import unsettled_view

URLS = {"http://a", "http://b"}
REST: dict[str, Any] = {
    "leader": "a.1",
    "brokers": [{"broker": "a.1", "url": "http://a"}, {"broker": "b.1", "url": "http://b"}],
    "transitions": [],
}


def topic(*brokers: str, state: str = "open") -> dict[str, Any]:
    return {"topic": "t", "segments": [{"segment": 3, "state": state, "brokers": list(brokers)}]}


def test_at_rest() -> None:
    assert unsettled_view(REST, [topic("a.1", "b.1")], URLS) == []
    # Who had a segment that is sealed no longer matters.
    assert unsettled_view(REST, [topic("a.0", state="sealed")], URLS) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"leader": "a.0"}, "its leader is a.0"),
        ({"leader": None}, "its leader is None"),
        ({"brokers": REST["brokers"][:1]}, "it sees ['a.1']"),
        ({"brokers": [*REST["brokers"], {"broker": "c.1", "url": "http://c"}]}, "it sees ['a.1', 'b.1', 'c.1']"),
        ({"transitions": [{"topic": "t"}]}, "under way: [{'topic': 't'}]"),
    ],
)
def test_not_at_rest(change: dict[str, Any], complaint: str) -> None:
    assert complaint in unsettled_view(REST | change, [], URLS)


@pytest.mark.parametrize("brokers", [("a.0",), ("a.1", "b.0")])
def test_a_segment_with_a_broker_that_is_gone(brokers: tuple[str, ...]) -> None:
    assert unsettled_view(REST, [topic(*brokers)], URLS) == [f"t: segment 3 is with {list(brokers)}"]
