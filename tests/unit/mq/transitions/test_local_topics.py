"""The topics of a broker without a cluster, as the scaling controller sees them."""

import asyncio
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from mq.transitions.local_topics import LocalTopics


class Running(Mapping[str, Any]):
    """Running topics, of which nobody may look at all."""

    def __init__(self, **topics: Any) -> None:
        self._topics = topics

    def __getitem__(self, name: str) -> Any:
        return self._topics[name]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("each new topic would look at all others")

    def __len__(self) -> int:
        return len(self._topics)


def test_a_topic_is_looked_up_without_a_look_at_the_others() -> None:
    topics = LocalTopics(Running(t=SimpleNamespace(state="newest")), asyncio.Event())
    assert topics.states["t"] == "newest" and "t" in topics.states
    assert topics.states.get("unknown") is None
    with pytest.raises(KeyError):
        topics.states["unknown"]


def test_all_are_there_in_their_newest_state() -> None:
    running: dict[str, Any] = {"t": SimpleNamespace(state=1)}
    states = LocalTopics(running, asyncio.Event()).states
    running["t"] = SimpleNamespace(state=2)
    running["u"] = SimpleNamespace(state=3)
    assert dict(states) == {"t": 2, "u": 3} and len(states) == 2
