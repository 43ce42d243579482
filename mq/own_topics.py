"""The topics of a broker that is a cluster of its own, as its leading side sees them."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from filer.topic_state import TopicState
from mq.topic_runtime import TopicRuntime


class Running(Protocol):
    """A broker with its running topics."""

    @property
    def topics(self) -> Mapping[str, TopicRuntime]:
        """By name, deleted ones included."""
        ...

    @property
    def draining(self) -> asyncio.Event:
        """Set once nothing new is to be begun."""
        ...


class OwnTopics:
    """The `LedTopics` of a broker whose every topic is its own: it knows them all, and their newest state."""

    def __init__(self, broker: Running) -> None:
        self._broker = broker

    @property
    def states(self) -> Mapping[str, TopicState]:
        """As `LedTopics.states`."""
        return {name: runtime.state for name, runtime in self._broker.topics.items()}

    def is_free(self, topic: str) -> bool:
        """As `LedTopics.is_free`; what else is done takes its turn by the topic's lock."""
        return not self._broker.draining.is_set()

    def look(self, topic: str) -> None:
        """There is nothing that is not known."""
