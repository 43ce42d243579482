"""Takes the owners' reports of their traffic to the leader, and answers operators' questions about them.

Everything here may be lost: a new leader gets a report of every segment within a report interval.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from filer.clock import Clock
from filer.topic.topic_state import TopicState
from leader.membership.coordinator import Coordinator
from leader.policy.brokers_wanted import brokers_wanted
from leader.traffic.traffic_averages import RecentTraffic, SegmentTraffic
from leader.traffic.traffic_table import TrafficTable

STALE_INTERVALS = 5
"""A report that is older than so many report intervals counts as none."""
COMPARED_IN_ROUNDS = 10
"""The states of all topics are compared once in so many rounds: there may be thousands."""


class LedTopics(Protocol):
    """The topics that the leader looks after."""

    @property
    def states(self) -> Mapping[str, TopicState]:
        """The topics' states by name, as far as they are known here."""
        ...

    def is_free(self, topic: str) -> bool:
        """Whether no other work on that topic is under way or has to come first."""
        ...

    def request_read(self, topic: str) -> None:
        """Read that topic's record soon: it has segments that are not known here."""
        ...


class TrafficReports:
    """Puts reports into `table` while this broker leads. All methods belong to the event loop's thread."""

    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        topics: LedTopics,
        table: TrafficTable,
        *,
        interval_seconds: float,
        segments_per_broker: float,
    ) -> None:
        self._coordinator, self._clock, self._topics, self._table = coordinator, clock, topics, table
        self._stale_seconds, self._segments_per_broker = STALE_INTERVALS * interval_seconds, segments_per_broker
        # As in the states that the table has.
        self._known_topics: dict[str, TopicState] = {}
        self._until_compared = 0
        self._pending_bytes: dict[str, int] = {}

    @property
    def stale_seconds(self) -> float:
        """A report that is older counts as none."""
        return self._stale_seconds

    # -- from owners ---------------------------------------------------------------------------------------

    def record(
        self,
        broker: str,
        pending_bytes: int,
        segments: Sequence[SegmentTraffic],
        repeated: Sequence[SegmentTraffic] = (),
    ) -> bool:
        """Take a broker's report; returns False, and keeps nothing, if this broker does not lead.

        For segments in `repeated`, its last report was the same.
        """
        if not self._coordinator.leads():
            return False
        now_seconds = self._clock.monotonic_seconds()
        segments = [*segments, *self._table.record_again(repeated, now_seconds=now_seconds)]
        self._read_unknown(segments)
        self._table.record(segments, now_seconds=now_seconds)
        self._pending_bytes[broker] = pending_bytes
        return True

    def _read_unknown(self, segments: Sequence[SegmentTraffic]) -> None:
        """Take the states read since the last round, for topics with segments that the table does not know."""
        if unknown := self._unknown_topics(segments):
            states = self._topics.states
            for topic in unknown & states.keys():
                self._apply(states[topic])
            for topic in self._unknown_topics(segments):
                self._topics.request_read(topic)

    def _unknown_topics(self, segments: Sequence[SegmentTraffic]) -> set[str]:
        return {each.topic for each in segments if self._table.row(each.topic, each.segment) is None}

    def changed(self, state: TopicState) -> None:
        """Take a topic's newest state at once: hundreds of changed topics would keep the next round for long.

        Does nothing before the first round: with only some topics, the load of brokers would be wrong.
        """
        if self._known_topics and self._coordinator.leads():
            self._apply(state)

    def refresh(self) -> None:
        """Take the newest states of all topics, and forget topics and brokers that are gone.

        `changed` reports changes, so that most times only the names of topics are looked at.
        """
        states = self._topics.states
        self._until_compared -= 1
        if self._until_compared <= 0 or set(states) != self._known_topics.keys():
            self._until_compared = COMPARED_IN_ROUNDS
            self._compare(states)
        live = {broker.id for broker in self._coordinator.brokers()}
        for broker in self._pending_bytes.keys() - live:
            del self._pending_bytes[broker]

    def _compare(self, states: Mapping[str, TopicState]) -> None:
        for topic in self._known_topics.keys() - states.keys():
            self._table.forget(topic)
            del self._known_topics[topic]
        for state in [each for topic, each in states.items() if self._known_topics.get(topic) is not each]:
            self._apply(state)

    def _apply(self, state: TopicState) -> None:
        self._table.apply(state)
        self._known_topics[state.topic] = state

    def clear(self) -> None:
        """Forget everything: unknown traffic is neither hot nor cold."""
        self._table.clear()
        self._known_topics.clear()
        self._pending_bytes.clear()

    # -- for operators -------------------------------------------------------------------------------------

    def pending_bytes(self, broker: str) -> int | None:
        """The bytes that waited in that broker's front store when it reported last; None as in `traffic`."""
        return self._pending_bytes.get(broker)

    def traffic(self, topic: str, segment: int) -> RecentTraffic | None:
        """The last report of an open segment; None if there is none, or this broker does not lead."""
        since_seconds = self._clock.monotonic_seconds() - self._stale_seconds
        return self._table.recent(topic, segment, since_seconds=since_seconds)

    def hot_slot(self, topic: str, segment: int) -> int | None:
        """The slot that has so much of a segment's traffic that no split helps, while that traffic is above target."""
        # A hold that has ended is renewed a round later, and traffic in bursts is above the target now and then.
        since_seconds = self._clock.monotonic_seconds() - self._stale_seconds
        return self._table.hot_slot(topic, segment, since_seconds=since_seconds)

    def brokers_wanted(self) -> int:
        """How many brokers the traffic needs; 0 if this broker does not lead."""
        if not self._coordinator.leads():
            return 0
        return brokers_wanted(
            self._table,
            now_seconds=self._clock.monotonic_seconds(),
            stale_seconds=self._stale_seconds,
            brokers=sum(not broker.draining for broker in self._coordinator.brokers()),
            segments_per_broker=self._segments_per_broker,
        )
