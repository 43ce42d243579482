"""Chooses the brokers of new segments by the load of each broker."""

from collections.abc import Iterable, Mapping, Sequence

from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from leader.membership.coordinator import BrokerInfo, Coordinator
from leader.membership.refusing_brokers import RefusingBrokers
from leader.policy.cut_points import Cut
from leader.policy.placement import choose, owned, replacements
from leader.policy.successors import begin_split_or_merge
from leader.traffic.broker_traffic import carried, weights_of
from leader.traffic.traffic_table import TrafficTable
from leader.transitions import BrokersFor
from mq.topic.topic_runtime import TopicRuntime


class SegmentPlacement:
    """Assigns brokers to new segments.

    While this broker leads, brokers and segments are weighed by their traffic in `table`. Otherwise every segment
    weighs 1, and a broker carries as many as it owns in `topics`, the topics known here by name. As the leader, this
    broker gives none to brokers that it knows to be unfit.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        table: TrafficTable,
        topics: Mapping[str, TopicRuntime],
        refusing: RefusingBrokers,
    ) -> None:
        self._coordinator, self._table, self._topics, self._refusing = coordinator, table, topics, refusing

    def brokers_for(self, topic: str, config: TopicConfig, count: int) -> BrokersFor:
        """Return the brokers of each of `count` new segments of a topic."""
        # New segments have no ids yet. Ids that no segment has make each of them weigh as much as the average one.
        brokers, weights = self._brokers(), self._weights(topic, range(-count, 0))
        chosen = choose(brokers, self._carried(), list(weights.values()), replicas=config.replicas, salt=topic)
        return chosen.__getitem__

    def brokers_for_successors(
        self, state: TopicState, sealing: Sequence[Segment], owners: Mapping[int, str] | None = None
    ) -> BrokersFor | None:
        """Return the brokers of a successor for each of the `sealing` segments; None if no broker can take some.

        A live owner that does not drain keeps its segment, unless `owners` names another broker for it.
        """
        weights = self._weights(state.topic, [s.id for s in sealing])
        found = replacements(state, sealing, self._brokers(), self._carried(), weights, owners=owners)
        return (lambda index: found[sealing[index].id]) if len(found) == len(sealing) else None

    def begin_split_or_merge(
        self, state: TopicState, cuts: Mapping[int, Cut], pairs: Sequence[tuple[int, int]], *, now_us: int
    ) -> TopicState | None:
        """As `leader.policy.successors.begin_split_or_merge`, with the live brokers and their load."""
        sealing = [*cuts, *(segment for pair in pairs for segment in pair)]
        return begin_split_or_merge(
            state,
            cuts,
            pairs,
            brokers=self._brokers(),
            carried=self._carried(),
            weights=self._weights(state.topic, sealing),
            now_us=now_us,
        )

    def _brokers(self) -> Sequence[BrokerInfo]:
        return [broker for broker in self._coordinator.brokers() if broker.id not in self._refusing.unfit]

    def _is_alone(self) -> bool:
        """Whether there is one broker: it gets everything, and a pass over all segments is of no use."""
        return len(self._coordinator.brokers()) == 1

    def _knows_traffic(self) -> bool:
        return not self._is_alone() and self._coordinator.leads() and bool(self._table.owners)

    def _carried(self) -> dict[str, float]:
        if self._is_alone():
            return {}
        if self._knows_traffic():
            return carried(self._table)
        return dict(owned(runtime.state for runtime in self._topics.values()))

    def _weights(self, topic: str, segments: Iterable[int]) -> dict[int, float]:
        """Return each segment's weight, in the unit of `_carried`. Unknown segments weigh as much as the average."""
        return weights_of(self._table, topic, segments) if self._knows_traffic() else dict.fromkeys(segments, 1.0)
