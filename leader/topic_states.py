"""The states of all topics as a leader has read them, and the topics that it has to check."""

import asyncio
from collections.abc import Iterable, Mapping, Set

from filer.errors import BraidError, UnreadableObject
from filer.event_log import EventLog
from filer.topic.catalogue import Catalogue
from filer.topic.topic_state import TopicState
from leader.broker_names import BrokerNames
from leader.traffic.traffic_table import TrafficTable

READS_AT_ONCE = 16

_log = EventLog(__name__)


class TopicStates:
    """The newest known state of each topic. Each newer state also goes to `table` and to `names`.

    `unsettled` are the topics that may need something: the leader's loop adds and removes them.
    """

    def __init__(self, catalogue: Catalogue, table: TrafficTable) -> None:
        self._catalogue, self._table = catalogue, table
        self._states: dict[str, TopicState] = {}
        self._changed: set[str] = set()
        self.names = BrokerNames()
        self.unsettled: set[str] = set()

    @property
    def by_name(self) -> Mapping[str, TopicState]:
        """The states by topic."""
        return self._states

    def request_read(self, topic: str) -> None:
        """Read that topic's record in the next round. The result of a read under way may be older than the change."""
        self.unsettled.add(topic)
        self._changed.add(topic)

    async def read_all(self) -> Set[str]:
        """As `read`, of every topic."""
        # The listing may be a moment old: topics that changed since and are not in it must not count as read.
        return await self.read(dict.fromkeys((*await self._catalogue.names(), *self.unsettled)))

    async def read(self, topics: Iterable[str]) -> Set[str]:
        """Read the records of these topics; returns the topics that have to be read again.

        Those are the topics that could not be read, and those that changed meanwhile. They delay no other topic.
        """
        gate = asyncio.Semaphore(READS_AT_ONCE)
        unread: set[str] = set()
        self._changed.clear()

        async def one(topic: str) -> None:
            async with gate:
                try:
                    record = await self._catalogue.read(topic)
                except BraidError as error:
                    _log.warning("topic_unreadable", topic=topic, error=error)
                    unread.add(topic)
                    # Such a record stays as it is, so only the regular reads of all topics read it again.
                    if not isinstance(error, UnreadableObject):
                        self.unsettled.add(topic)
                    return
            if record is not None:
                self.apply(record.state)
            else:
                self._forget(topic)

        await asyncio.gather(*(one(topic) for topic in list(topics)))
        return unread | self._changed

    def apply(self, state: TopicState) -> None:
        """Take a topic's state, unless a newer one is known."""
        known = self._states.get(state.topic)
        if known is None or known.version < state.version:
            self._states[state.topic] = state
            self._table.apply(state)
            self.names.apply(state)
            if state.transition is not None:
                self.unsettled.add(state.topic)

    def _forget(self, topic: str) -> None:
        self._states.pop(topic, None)
        self._table.forget(topic)
        self.names.forget(topic)
        self.unsettled.discard(topic)

    def clear(self) -> None:
        """Forget everything."""
        self._states.clear()
        self._changed.clear()
        self.names = BrokerNames()
        self.unsettled.clear()
