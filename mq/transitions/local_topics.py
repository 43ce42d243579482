"""The topics of the scaling controller of a broker without a cluster."""

import asyncio
from collections.abc import Iterator, Mapping

from filer.topic.topic_state import TopicState
from mq.topic.topic_runtime import TopicRuntime


class _States(Mapping[str, TopicState]):
    """The states of running topics. Each change looks at its own topic: a copy of all would take too long."""

    def __init__(self, topics: Mapping[str, TopicRuntime]) -> None:
        self._topics = topics

    def __getitem__(self, topic: str) -> TopicState:
        return self._topics[topic].state

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)


class LocalTopics:
    """The `LedTopics` of a broker that is a cluster of its own: `topics`, the running ones by name.

    It knows all of them in their newest state. Nothing new begins once `draining` is set.
    """

    def __init__(self, topics: Mapping[str, TopicRuntime], draining: asyncio.Event) -> None:
        self.states: Mapping[str, TopicState] = _States(topics)
        self._draining = draining

    def is_free(self, topic: str) -> bool:
        """As `LedTopics.is_free`. Other transitions of the topic wait for its lock."""
        return not self._draining.is_set()

    def request_read(self, topic: str) -> None:
        """As `LedTopics.request_read`: no topic is unknown here."""
