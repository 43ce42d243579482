"""Topics under synthetic traffic and a virtual clock: the real averages, policy, cut points, transitions and placement.

A tick is the report interval: owners count what came, the leader hears of it and decides, and its transitions are over
before the next tick. Then it spreads what brokers carry, as often as it looks in that time.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState, broken_invariants
from leader.membership.coordinator import BrokerInfo
from leader.policy.cut_points import Cut, cut_hot
from leader.policy.even_cuts import even_cut_points
from leader.policy.placement import choose, replacements
from leader.policy.rebalancing import rebalance
from leader.policy.scaling import ScalingDecision, SplitDecision, decide
from leader.policy.successors import begin_split_or_merge
from leader.traffic.broker_traffic import carried, weights_of
from leader.traffic.traffic_averages import SegmentTraffic, TrafficAverages, goes_on_for
from leader.traffic.traffic_table import TrafficTable
from leader.transitions import SealedEnd, begin_replacement, finished, new_topic
from tests.simulation.traffic import Traffic

STALE_TICKS = 5
SPREAD_SECONDS = 3.0
"""How often a leader looks at what brokers carry; one that has just moved something looks sooner."""
HOLD_SECONDS = 60.0
MESSAGE_BYTES = 100
OBSERVED_MESSAGES = 100_000
"""In how many messages the load per slot is seen: many, so that it is what the traffic says."""


@dataclass(frozen=True, slots=True)
class Change:
    """A transition that was carried out."""

    seconds: float
    topic: str
    reason: str
    sealed: int
    opened: int


@dataclass
class Braid:
    """Topics, their traffic, and the brokers that own their segments.

    `by_number`: placement and rebalancing know no traffic.
    """

    traffic: Mapping[str, Traffic]
    config: TopicConfig
    segments: int = 1
    brokers: int = 3
    tick_seconds: float = 1.0
    by_number: bool = False
    seconds: float = 0.0
    changes: list[Change] = field(default_factory=list)
    requests: int = 0
    hot_slots: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = [BrokerInfo(f"b{n:04}", f"http://b{n}", f"zone {n % 3}", "1") for n in range(self.brokers)]
        self.states: dict[str, TopicState] = {}
        self.averages: dict[str, dict[int, TrafficAverages]] = defaultdict(dict)
        owned: Counter[str] = Counter()
        for topic in self.traffic:
            placed = choose(self.members, owned, [1] * self.segments, replicas=1, salt=topic)
            owned.update(owner for owner, *_ in placed)
            self._take(new_topic(topic, self.config, self.segments, placed.__getitem__, now_us=self._now_us))
        self.new_leader()

    @property
    def _now_us(self) -> int:
        return int(self.seconds * 1e6)

    def new_leader(self) -> None:
        """It knows what the store says, and nothing of the load."""
        self.table = TrafficTable()
        for state in self.states.values():
            self.table.apply(state)

    def configure(self, topic: str, config: TopicConfig) -> None:
        state = self.states[topic]
        self._take(state.model_copy(update={"config": config, "version": state.version + 1}))
        self.table.apply(self.states[topic])
        for averages in self.averages[topic].values():
            averages.configure(config)

    def restart_broker(self, number: int, *, away_seconds: float) -> None:
        """All it owned gets successors elsewhere, whose owners know nothing of the load; then it is back, with nothing.

        It is another broker then: its id has changed.
        """
        gone = self.members.pop(number)
        for state in list(self.states.values()):
            self._fail_over(state, gone.id)
        self.run(away_seconds)
        self.members.append(replace(gone, id=f"{gone.id}'"))

    def roll(self, topic: str) -> None:
        """All its segments have successors at the same brokers."""
        state = self.states[topic]
        opened = state.open_segments
        begun = begin_replacement(
            state, [s.id for s in opened], lambda n: opened[n].brokers, "roll", now_us=self._now_us
        )
        self._carry_out(begun)

    def _fail_over(self, state: TopicState, gone: str) -> None:
        lost = [s for s in state.open_segments if s.owner == gone]
        for segment in lost:
            del self.averages[state.topic][segment.id]
        weights = weights_of(self.table, state.topic, [s.id for s in lost])
        placed = replacements(state, lost, self.members, carried(self.table), weights)
        begun = begin_replacement(
            state, [s.id for s in lost], lambda n: placed[lost[n].id], "failover", now_us=self._now_us
        )
        self._carry_out(begun)

    # -- time ----------------------------------------------------------------------------------------------

    def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """That long, or until something is so at the end of a tick."""
        end = self.seconds + seconds
        while self.seconds < end - 1e-9:
            self.tick()
            if until():
                return

    def tick(self) -> None:
        self.seconds += self.tick_seconds
        heard = [load for topic in self.traffic for load in self._heard(topic)]
        if self.by_number:
            heard = [replace(load, messages_per_second=0.0, bytes_per_second=0.0) for load in heard]
        self.table.record(heard, now_seconds=self.seconds)
        self.act(decide(self.table, now_seconds=self.seconds, stale_seconds=STALE_TICKS * self.tick_seconds))
        self._rebalance()

    def _rebalance(self) -> None:
        """Nothing is heard in between: once nothing moves, nothing would until the next tick."""
        for _ in range(max(int(self.tick_seconds / SPREAD_SECONDS), 1)):
            plan = rebalance(self.table, self.members)
            if not plan:
                return
            for topic, owners in plan.items():
                self._move(self.states[topic], owners)

    def _heard(self, topic: str) -> list[SegmentTraffic]:
        traffic, averages = self.traffic[topic], self.averages[topic]
        heard = []
        for segment in self.states[topic].open_segments:
            messages = traffic.rate(self.seconds - self.tick_seconds, *segment.range) * self.tick_seconds
            averages[segment.id].tick(self.seconds, messages, messages * MESSAGE_BYTES)
            heard.append(averages[segment.id].load(topic, segment.id))
        return heard

    def act(self, decisions: Sequence[ScalingDecision]) -> None:
        for decision in decisions:
            state = self.states[decision.topic]
            cuts = {s.segment: cut for s in decision.splits if (cut := self._cut(state, s)).points}
            pairs = [(merge.left, merge.right) for merge in decision.merges]
            sealing = [*cuts, *(segment for pair in pairs for segment in pair)]
            weights = weights_of(self.table, decision.topic, sealing)
            begun = begin_split_or_merge(
                state, cuts, pairs, brokers=self.members, carried=carried(self.table), weights=weights,
                now_us=self._now_us,
            )  # fmt: skip
            self._carry_out(begun)

    def _cut(self, state: TopicState, split: SplitDecision) -> Cut:
        segment = state.segment(split.segment)
        assert segment is not None
        seen = self.traffic[state.topic].slot_rates(self.seconds, *segment.range)
        if not split.by_traffic:
            return Cut(even_cut_points(seen, *segment.range, split.parts, observations=OBSERVED_MESSAGES))
        cut = cut_hot(seen, *segment.range, split.parts, most_parts=split.most_parts, observations=OBSERVED_MESSAGES)
        if cut.hot_slot is not None:
            self.hot_slots[state.topic, segment.id] = cut.hot_slot
            self.table.hold(state.topic, segment.id, cut.hot_slot, until_seconds=self.seconds + HOLD_SECONDS)
        return cut

    def _move(self, state: TopicState, owners: Mapping[int, str]) -> None:
        """Their new owners go on with what the former ones know of the load."""
        moving = [segment for segment in state.open_segments if segment.id in owners]
        brokers_for = [(owners[segment.id],) for segment in moving].__getitem__
        self._carry_out(begin_replacement(state, [s.id for s in moving], brokers_for, "move", now_us=self._now_us))

    def _carry_out(self, begun: TopicState | None) -> None:
        if begun is None or begun.transition is None:
            return
        record = begun.transition
        assert broken_invariants(begun) == []
        after = finished(begun, record, dict.fromkeys(record.seal, SealedEnd(0)), now_us=self._now_us)
        assert after is not None and broken_invariants(after) == []
        # topic.json is read and replaced twice, and there are the seals; successors' first files are as any.
        self.requests += 4 + len(record.seal)
        self.changes.append(Change(self.seconds, after.topic, record.reason, len(record.seal), len(record.open)))
        # Versions as the two compare-and-swaps would leave them.
        self._take(after.model_copy(update={"version": after.version + 2}))
        self.table.apply(self.states[after.topic])

    def _take(self, state: TopicState) -> None:
        known, opened = self.averages[state.topic], state.open_segments
        segments = {s.id: s for s in state.segments}
        self.averages[state.topic] = {}
        for segment in opened:
            before = goes_on_for(segment, segments)
            averages = known.get(segment.id) or (known.get(before.id) if before is not None else None)
            self.averages[state.topic][segment.id] = averages or TrafficAverages(state.config, now_seconds=self.seconds)
        # Sealed ones are of no more use here, and a week of them would only take time.
        self.states[state.topic] = state.model_copy(
            update={"segments": tuple(s for s in state.segments if s in opened)}
        )

    # -- what came of it -----------------------------------------------------------------------------------

    def open(self, topic: str) -> list[Segment]:
        return self.states[topic].open_segments

    def segment_rates(self, topic: str) -> list[float]:
        """Messages a second of each open segment, in the order of slots."""
        return [self.traffic[topic].rate(self.seconds, *s.range) for s in self.open(topic)]

    def groups(self, reason: str) -> int:
        """Splits or merges carried out, several of one transition counted one by one."""
        return sum(c.sealed if reason == "split" else c.opened for c in self.changes if c.reason == reason)

    def moves(self) -> int:
        """Segments that were moved only to spread the load."""
        return sum(c.sealed for c in self.changes if c.reason == "move")

    def splits_and_merges(self) -> list[Change]:
        """Splits and merges."""
        return [c for c in self.changes if c.reason in ("split", "merge")]

    def imbalance(self) -> float:
        """The load of the busiest broker over what it must be: the mean of all, or the largest segment's load."""
        rates: Counter[str] = Counter({broker.id: 0.0 for broker in self.members})
        largest = 0.0
        for topic in self.traffic:
            for segment, rate in zip(self.open(topic), self.segment_rates(topic), strict=True):
                rates[segment.owner] += rate
                largest = max(largest, rate)
        least = max(sum(rates.values()) / len(rates), largest)
        return max(rates.values()) / least if least else 1.0
