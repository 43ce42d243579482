"""An index of topics by the brokers they name, so that a leader looks only at the topics that a change concerns."""

from collections.abc import Iterable, Set
from typing import Any

from filer.topic.topic_state import TopicState


class BrokerNames:
    """The brokers that the open segments of all topics name, and the topics whose segments have too few of them."""

    def __init__(self) -> None:
        self._brokers: dict[str, frozenset[str]] = {}
        self._topics: dict[str, set[str]] = {}
        self._fewest: dict[str, int] = {}
        self._under_replicated: dict[int, set[str]] = {}

    @property
    def named(self) -> Set[str]:
        """All brokers that are named."""
        return self._topics.keys()

    def brokers(self, topic: str) -> frozenset[str]:
        """The brokers that the topic names."""
        return self._brokers.get(topic, frozenset())

    def topics(self, brokers: Iterable[str]) -> set[str]:
        """The topics that name any of these brokers."""
        return {topic for broker in brokers for topic in self._topics.get(broker, ())}

    def under_replicated(self, brokers: int) -> set[str]:
        """Topics with a segment that has fewer replicas than the topic asks for, and fewer than there are brokers."""
        return {topic for fewest, topics in self._under_replicated.items() if fewest < brokers for topic in topics}

    def apply(self, state: TopicState) -> None:
        """Take a topic's newer state."""
        self.forget(state.topic)
        opened = state.open_segments
        self._brokers[state.topic] = named = frozenset(broker for s in opened for broker in s.brokers)
        for broker in named:
            self._topics.setdefault(broker, set()).add(state.topic)
        fewest = min((len(s.brokers) for s in opened), default=state.config.replicas)
        if fewest < state.config.replicas:
            self._fewest[state.topic] = fewest
            self._under_replicated.setdefault(fewest, set()).add(state.topic)

    def forget(self, topic: str) -> None:
        """Drop a topic."""
        for broker in self._brokers.pop(topic, ()):
            _drop(self._topics, broker, topic)
        if (fewest := self._fewest.pop(topic, None)) is not None:
            _drop(self._under_replicated, fewest, topic)


def _drop(sets: dict[Any, set[str]], key: Any, topic: str) -> None:
    sets[key].discard(topic)
    if not sets[key]:
        del sets[key]
