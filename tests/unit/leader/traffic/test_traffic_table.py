"""The table of loads against a naive one: dictionaries that are thrown away and made anew."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import TopicState
from leader.traffic import segment_rows, traffic_table
from leader.traffic.traffic_averages import SegmentTraffic
from leader.traffic.traffic_table import TrafficTable
from leader.transitions import (
    SealedEnd,
    begin_deletion,
    begin_merge,
    begin_replacement,
    begin_split,
    finished,
    new_topic,
)


def brokers_for(number: int) -> tuple[str, ...]:
    return ("abc"[number % 3],)


def topic(name: str, segments: int, **settings: int) -> TopicState:
    return new_topic(name, TopicConfig(**settings), segments, brokers_for, now_us=1)


def load(name: str, segment: int, average: float = 0.0) -> SegmentTraffic:
    return SegmentTraffic(name, segment, 0, 0, average, average, average, average, average, 10)


def rolled(state: TopicState, segment: int, owner: str) -> TopicState:
    return done(state, begin_replacement(state, [segment], lambda n: (owner,), "roll", now_us=2))


def done(state: TopicState, begun: TopicState | None) -> TopicState:
    """Over, as a newer record; the state as it is where nothing began."""
    if begun is None or begun.transition is None:
        return state
    after = finished(begun, begun.transition, dict.fromkeys(begun.transition.seal, SealedEnd(0)), now_us=2)
    assert after is not None
    return after.model_copy(update={"version": state.version + 2})


def rows(table: TrafficTable, name: str) -> list[tuple[int, float, float]]:
    """Segment, recent load and when it was heard of, in the order of the topic's rows."""
    numbers = [n for n in range(len(table.topics)) if table.topic_name(n) == name and table.topics["open"][n]]
    found = table.segments[np.isin(table.segments["topic"], numbers)]
    return [(int(row["segment"]), float(row["recent"]), float(row["reported_seconds"])) for row in found]


def owners(table: TrafficTable, name: str) -> list[str]:
    found = table.segments[table.segments["topic"] == table.topic_number(name)]
    return [table.owners[number] for number in found["owner"]]


def work(table: TrafficTable, name: str) -> list[float]:
    """What each open segment is expected to cost just now."""
    found = table.segments[table.segments["topic"] == table.topic_number(name)]
    return [float(each) for each in found["work"]]


@dataclass
class Both:
    """The table, and what it is to say."""

    table: TrafficTable = field(default_factory=TrafficTable)
    states: dict[str, TopicState] = field(default_factory=dict)
    heard: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    seconds: float = 0.0

    def apply(self, state: TopicState) -> None:
        self.states[state.topic] = state
        self.table.apply(state)

    def report(self, name: str, segment: int, average: float) -> None:
        self.seconds += 1
        self.table.record([load(name, segment, average)], now_seconds=self.seconds)
        if any(s.id == segment for s in self.states[name].open_segments):
            self.heard[name, segment] = (average, self.seconds)

    def roll(self, name: str, segment: int, *, times: int, owner: str) -> None:
        """The table sees the last of several rolls only."""
        for _ in range(times):
            state = self.states[name] = rolled(self.states[name], segment, owner)
            if (name, segment) in self.heard:
                self.heard[name, state.next_segment - 1] = self.heard[name, segment]
            segment = state.next_segment - 1
        self.apply(self.states[name])

    def check(self) -> None:
        topics = self.table.topics
        for name, state in self.states.items():
            unheard = (0.0, -np.inf)
            opened = state.open_segments
            assert rows(self.table, name) == [(s.id, *self.heard.get((name, s.id), unheard)) for s in opened]
        living = {name: len(state.open_segments) for name, state in self.states.items() if not state.deleted}
        numbers = {self.table.topic_name(n): n for n in range(len(topics)) if topics["open"][n]}
        assert {name: int(topics["open"][n]) for name, n in numbers.items()} == living
        for name, number in numbers.items():
            first = int(topics["first_row"][number])
            assert int(self.table.segments["segment"][first]) == self.states[name].open_segments[0].id
        assert (self.table.segments["topic"] >= 0).sum() == sum(living.values())
        assert {name: owners(self.table, name) for name in living} == {
            name: [s.owner for s in self.states[name].open_segments] for name in living
        }


STEPS = st.tuples(
    st.sampled_from(["split", "merge", "roll", "report", "report", "delete"]),
    st.sampled_from("abc"),
    st.integers(0, 5),
)


@given(st.lists(STEPS, max_size=40), st.integers(1, 8))
def test_any_changes_of_shape_keep_what_was_heard_of_what_stays(
    steps: list[tuple[str, str, int]], least_rows: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_rows, "_LEAST_ROWS", least_rows)
        both = Both()
        for name in "abc":
            both.apply(topic(name, 2))
        for what, name, number in steps:
            state = both.states[name]
            opened = state.open_segments
            if state.deleted:
                continue
            segment = opened[number % len(opened)]
            middle = (segment.start_slot + segment.stop_slot) // 2
            match what:
                case "split" if middle > segment.start_slot:
                    both.apply(done(state, begin_split(state, {segment.id: [middle]}, brokers_for, now_us=2)))
                case "merge" if segment is not opened[-1]:
                    right = opened[opened.index(segment) + 1]
                    both.apply(done(state, begin_merge(state, [(segment.id, right.id)], brokers_for, now_us=2)))
                case "roll":
                    both.roll(name, segment.id, times=1 + number % 2, owner=f"{name}{number}")
                case "report":
                    both.report(name, segment.id + number % 2, float(number))
                case "delete" if number == 0:
                    both.apply(done(state, begin_deletion(state, now_us=2)))
            both.check()


def test_a_roll_neither_ends_a_hold_nor_hides_its_hot_slot() -> None:
    table = TrafficTable()
    state = topic("a", 2)
    table.apply(state)
    table.record([load("a", 0, 3), load("a", 1, 3)], now_seconds=5)
    table.hold("a", 1, 40_000, until_seconds=65)
    table.apply(done(state, begin_replacement(state, [0, 1], brokers_for, "roll", now_us=2)))
    assert table.segments["held_until_seconds"][table.segments["topic"] >= 0].tolist() == [-np.inf, 65]
    assert table.hot_slot("a", 3, since_seconds=5) == 40_000
    assert table.hot_slot("a", 2, since_seconds=5) is None, "it was not held"
    table.record([load("a", 3, 0.9)], now_seconds=6)
    assert table.hot_slot("a", 3, since_seconds=5) == 40_000
    assert table.hot_slot("a", 3, since_seconds=6) is None, "nothing presses any more"
    table.record([load("a", 3, 3)], now_seconds=70)
    assert table.hot_slot("a", 3, since_seconds=66) is None, "nobody has looked again"


def test_an_older_record_changes_nothing() -> None:
    table = TrafficTable()
    old = topic("a", 2)
    new = done(old, begin_split(old, {0: [5]}, brokers_for, now_us=2))
    table.apply(new)
    table.apply(old)
    assert [row[0] for row in rows(table, "a")] == [2, 3, 1]


def test_a_changed_configuration_is_taken_and_loads_stay() -> None:
    table = TrafficTable()
    state = topic("a", 2)
    table.apply(state)
    table.record([load("a", 1, 0.7)], now_seconds=5)
    table.apply(state.model_copy(update={"config": TopicConfig(max_segments=7), "version": 2}))
    assert int(table.topics["max_segments"][0]) == 7
    assert rows(table, "a") == [(0, 0.0, -np.inf), (1, 0.7, 5.0)]


def test_a_topic_made_again_begins_unknown() -> None:
    table = TrafficTable()
    table.apply(topic("a", 1))
    table.record([load("a", 0, 3)], now_seconds=5)
    table.forget("a")
    table.forget("a")
    assert rows(table, "a") == [] and bool(table.topics["busy"].all())
    table.apply(topic("b", 1))
    table.apply(topic("a", 1))
    assert rows(table, "a") == rows(table, "b") == [(0, 0.0, -np.inf)]


def test_what_nobody_knows_is_no_concern() -> None:
    table = TrafficTable()
    table.apply(topic("a", 1))
    table.record([load("zzz", 0), load("a", 99)], now_seconds=5)
    table.hold("zzz", 0, 7, until_seconds=9)
    table.hold("a", 99, 7, until_seconds=9)
    assert table.hot_slot("a", 99, since_seconds=0) is None
    assert rows(table, "a") == [(0, 0.0, -np.inf)]


def test_years_of_changes_take_no_more_room() -> None:
    table = TrafficTable()
    state = topic("a", 200)
    for life in range(200):
        state = state.model_copy(update={
            "segments": tuple(
                s.model_copy(update={"id": s.id + 200, "brokers": (f"b{s.id % 20}.{life}",)}) for s in state.segments
            ),
            "version": state.version + 1,
        })  # fmt: skip
        table.apply(state)
    assert table.bytes_held < 10 * segment_rows._LEAST_ROWS * segment_rows.SEGMENT_COLUMNS.itemsize
    assert len(table.owners) < 20 * 20, "brokers that are gone are forgotten"
    assert owners(table, "a")[:2] == ["b0.199", "b1.199"]


# -- what a segment costs its owner ------------------------------------------------------------------------


def heard(segment: int, messages: float, size_bytes: float = 0.0, *, age_seconds: float = 1e6) -> SegmentTraffic:
    return SegmentTraffic("a", segment, messages, size_bytes, 1, 0, 0, 1, 0.5, age_seconds=age_seconds)


def test_messages_and_bytes_cost_whatever_the_topic_s_own_target() -> None:
    table = TrafficTable()
    table.apply(topic("a", 2))
    assert np.isnan(work(table, "a")).all()
    table.record([heard(0, 5_000, 2**21), heard(1, 0, 0)], now_seconds=1)
    assert work(table, "a") == pytest.approx([1.0, 0.0])


def test_successors_carry_what_their_predecessors_had_until_they_have_said_more() -> None:
    table, state = TrafficTable(), topic("a", 2)
    table.apply(state)
    table.record([heard(0, 40_000), heard(1, 10_000)], now_seconds=1)
    state = done(state, begin_split(state, {0: [5, 100, 20_000]}, brokers_for, now_us=2))
    table.apply(state)
    assert work(table, "a") == pytest.approx([1, 1, 1, 1, 1])
    lasting = table.segments["lasting"][table.segments["topic"] >= 0]
    assert lasting.tolist() == pytest.approx([0.5] * 5), "that too is shared"
    table.record([heard(2, 0, age_seconds=1), heard(3, 30_000, age_seconds=traffic_table.YOUNG_SECONDS)], now_seconds=2)
    assert work(table, "a") == pytest.approx([1, 3, 1, 1, 1]), "its first second was a pause"
    state = done(state, begin_merge(state, [(3, 4)], brokers_for, now_us=3))
    table.apply(state)
    assert work(table, "a") == pytest.approx([1, 4, 1, 1])
    state = done(state, begin_replacement(state, [6], brokers_for, "move", now_us=3))
    table.apply(state)
    assert work(table, "a") == pytest.approx([1, 4, 1, 1])


def test_what_lasts_follows_slowly_and_begins_with_the_owner_s_long_average() -> None:
    table, lasting = TrafficTable(), []
    table.apply(topic("a", 1))
    for number in range(3):
        table.record([heard(0, 10_000 * (1 + number))], now_seconds=number * traffic_table.LASTING_SECONDS)
        lasting.append(float(table.segments["lasting"][0]))
    assert lasting[0] == pytest.approx(0.5), "half of it was there for as long as the merge rule looks back"
    kept = np.exp(-1)
    assert lasting[1] == pytest.approx(kept * 0.5 + (1 - kept) * 2)
    assert lasting[2] == pytest.approx(kept * lasting[1] + (1 - kept) * 3)


def test_what_a_transition_is_about_to_open_is_expected_until_it_is_seen_or_came_to_nothing() -> None:
    table, state = TrafficTable(), topic("a", 2)
    table.apply(state)
    table.record([heard(0, 40_000), heard(1, 10_000)], now_seconds=1)
    begun = begin_split(state, {0: [100]}, lambda n: ("xy"[n],), now_us=2)
    assert begun is not None
    table.expect(begun)
    assert table.segments["leaving"].tolist() == [True, False]
    assert [(table.owners[each.owner], each.work) for each in table.opening] == [("x", 2.0), ("y", 2.0)]
    table.release("a")
    assert table.opening == [] and not table.segments["leaving"].any()
    table.apply(begun.model_copy(update={"version": 2}))
    assert len(table.opening) == 2 and bool(table.topics["busy"][0])
    table.apply(done(state, begun))
    assert table.opening == [] and not table.segments["leaving"].any()
    table.expect(topic("unknown", 1))
    table.release("unknown")


def test_of_several_topics_what_is_about_to_be_sealed_is_told_apart() -> None:
    table, other = TrafficTable(), topic("b", 3)
    for state in (topic("a", 2), other):
        table.apply(state)
    begun = begin_merge(other, [(1, 2)], brokers_for, now_us=2)
    assert begun is not None
    table.expect(begun)
    assert table.segments["leaving"].tolist() == [False, False, False, True, True]


def test_a_table_that_is_cleared_knows_nothing() -> None:
    table = TrafficTable()
    table.apply(topic("a", 3))
    table.clear()
    assert not len(table.segments) and not table.owners and table.row("a", 0) is None


def test_a_report_that_is_repeated_is_as_good_as_the_same_report_again() -> None:
    repeated, reported = TrafficTable(), TrafficTable()
    for table in (repeated, reported):
        table.apply(topic("t", 2))
        table.record([load("t", 0, 0.3), load("t", 1)], now_seconds=100.0)
    for now_seconds in (103.0, 106.0):
        assert not repeated.record_again([load("t", 0, 0.3), load("t", 1)], now_seconds=now_seconds)
        reported.record([load("t", 0, 0.3), load("t", 1)], now_seconds=now_seconds)
    assert rows(repeated, "t") == [(0, 0.3, 106.0), (1, 0.0, 106.0)]
    assert np.array_equal(repeated.segments, reported.segments, equal_nan=False)


def test_what_was_never_reported_here_cannot_be_repeated() -> None:
    """Another broker may have led until now."""
    table = TrafficTable()
    table.apply(topic("t", 2))
    table.record([load("t", 1)], now_seconds=100.0)
    told = [load("t", 0), load("t", 1), load("t", 9), load("gone", 0)]
    assert table.record_again(told, now_seconds=103.0) == [told[0], told[2], told[3]]
    assert rows(table, "t") == [(0, 0.0, -np.inf), (1, 0.0, 103.0)]
    assert not table.record_again([], now_seconds=106.0)
