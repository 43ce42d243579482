"""The topics that the scaling controller of a broker without a cluster looks after."""

import asyncio
from collections.abc import Mapping

from filer.topic.topic_state import TopicState
from mq.topic.topic_runtime import TopicRuntime


class LocalTopics:
    """The `LedTopics` of a broker that is a cluster of its own: `topics`, the running ones by name.

    It knows all of them in their newest state. Nothing new begins once `draining` is set.
    """

    def __init__(self, topics: Mapping[str, TopicRuntime], draining: asyncio.Event) -> None:
        self._topics, self._draining = topics, draining

    @property
    def states(self) -> Mapping[str, TopicState]:
        """As `LedTopics.states`."""
        return {name: runtime.state for name, runtime in self._topics.items()}

    def is_free(self, topic: str) -> bool:
        """As `LedTopics.is_free`. Other transitions of the topic wait for its lock."""
        return not self._draining.is_set()

    def request_read(self, topic: str) -> None:
        """As `LedTopics.request_read`: no topic is unknown here."""
