"""Micro-batches over topics that split, merge and roll: every message once, predecessors first."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidmq.spark.errors import InvalidOption
from braidmq.spark.spans import Span
from braidmq.spark.streaming.stream_offset import StreamOffset, micro_batch, next_offset, share
from braidmq.spark.topic_snapshot import TopicSnapshot
from filer.topic.topic_state import Segment, TopicState, open_ranges_tile
from tests.support.topic.lineages import lineages

OPEN_MESSAGES = 2
LIMITS = st.one_of(st.none(), st.integers(1, 5))


def fetch_snapshot(state: TopicState) -> TopicSnapshot:
    ends = {s.id: OPEN_MESSAGES if s.end_offset is None else s.end_offset for s in state.segments}
    return TopicSnapshot(state, ends)


def earlier(state: TopicState, opened: int) -> TopicSnapshot:
    """The topic when its first `opened` segments had been opened. Segments open then had half of their messages."""
    ends = fetch_snapshot(state).ends
    segments = tuple(_as_it_was(each, opened) for each in state.segments if each.id < opened)
    then = state.model_copy(update={"segments": segments, "next_segment": opened})
    return TopicSnapshot(then, {each.id: ends[each.id] // (1 if each.state == "sealed" else 2) for each in segments})


def _as_it_was(segment: Segment, opened: int) -> Segment:
    if segment.successors and all(each < opened for each in segment.successors):
        return segment
    return segment.model_copy(update={"state": "open", "end_offset": None, "successors": ()})


def moments(state: TopicState) -> list[int]:
    """How many segments had been opened after each transition."""
    counts = range(1, len(state.segments) + 1)
    return [count for count in counts if open_ranges_tile(earlier(state, count).state)]


def batches(
    snapshot: TopicSnapshot, offset: StreamOffset, most_rows: int | None
) -> Iterator[tuple[StreamOffset, list[Span]]]:
    """All micro-batches of a topic that does not change."""
    while (end := next_offset(snapshot, offset, offset.positions, most_rows=most_rows)) is not offset:
        yield end, micro_batch(offset, end)
        offset = end


@given(lineages(), LIMITS)
def test_every_message_is_in_exactly_one_micro_batch(state: TopicState, most_rows: int | None) -> None:
    snapshot = fetch_snapshot(state)
    read: dict[int, int] = {}
    for _, spans in batches(snapshot, StreamOffset("t", snapshot.earliest(), initial=True), most_rows):
        assert most_rows is None or sum(span.count for span in spans) <= most_rows
        segments = {span.segment for span in spans}
        for span in spans:
            assert span.start == read.get(span.segment, 0)
            for before in _ancestors(state, span.segment):
                assert before not in segments, "a segment and one that it follows in the same micro-batch"
                assert read.get(before, 0) == snapshot.ends[before]
        for span in spans:
            read[span.segment] = span.stop
    assert {s: n for s, n in snapshot.ends.items() if n} == read


def _ancestors(state: TopicState, segment_id: int) -> set[int]:
    found: set[int] = set()
    waiting = [segment_id]
    while waiting:
        segment = state.segment(waiting.pop())
        assert segment is not None
        waiting += [each for each in segment.predecessors if each not in found]
        found.update(segment.predecessors)
    return found


@given(lineages(), LIMITS, st.data())
def test_transitions_under_a_running_query(state: TopicState, most_rows: int | None, data: st.DataObject) -> None:
    """Whatever state of the topic it sees at each trigger, with a restart after each micro-batch."""
    snapshots = [earlier(state, opened) for opened in moments(state)] + [fetch_snapshot(state)]
    offset = StreamOffset("t", snapshots[0].earliest(), initial=True)
    read: dict[int, int] = {}
    while snapshots:
        end = next_offset(snapshots[0], offset, offset.positions, most_rows=most_rows)
        if end is offset or (len(snapshots) > 1 and data.draw(st.booleans())):
            snapshots.pop(0)
        if end is offset:
            continue
        offset, before = StreamOffset.from_json(json.loads(json.dumps(end.to_json())), "t"), offset
        assert offset == end
        for span in micro_batch(before, offset):
            assert span.start == read.get(span.segment, 0)
            read[span.segment] = span.stop
    assert read == {segment: end for segment, end in fetch_snapshot(state).ends.items() if end}


def test_the_first_micro_batch_says_where_it_began() -> None:
    """If the first micro-batch runs again, Spark asks for the initial position again, which may differ by then."""
    snapshot = TopicSnapshot(_one_open(), {0: 7})
    first = next_offset(snapshot, StreamOffset("t", {0: 7}, initial=True), {0: 7}, most_rows=None)
    assert first == StreamOffset("t", {0: 7}, began={0: 7})
    later = StreamOffset("t", {0: 9}, initial=True)
    assert micro_batch(later, first) == []
    following = next_offset(TopicSnapshot(_one_open(), {0: 9}), first, {0: 7}, most_rows=None)
    assert micro_batch(first, following) == [Span(0, 7, 9)]


def test_nothing_new_is_the_same_offset() -> None:
    offset = StreamOffset("t", {0: 7})
    assert next_offset(TopicSnapshot(_one_open(), {0: 7}), offset, {0: 7}, most_rows=10) is offset


def test_a_broker_that_lags_behind_takes_nothing_back() -> None:
    offset = StreamOffset("t", {0: 7})
    assert next_offset(TopicSnapshot(_one_open(), {0: 5}), offset, {0: 7}, most_rows=None) is offset


def test_what_is_lost_is_written_down() -> None:
    """A micro-batch that skips lost messages does so again after a restart."""
    offset = StreamOffset("t", {0: 2})
    end = next_offset(TopicSnapshot(_one_open(), {0: 9}), offset, {0: 5}, most_rows=None)
    assert micro_batch(offset, end) == [Span(0, 5, 9)]


def test_a_limit_is_shared_in_proportion() -> None:
    assert share({0: 10, 1: 30}, 4) == {0: 1, 1: 3}
    assert share({0: 1, 1: 1, 2: 1}, 1) == {0: 0, 1: 0, 2: 1}
    assert share({0: 3, 1: 4}, 7) == {0: 3, 1: 4}
    assert share({0: 3, 1: 4}, None) == {0: 3, 1: 4}
    assert share({0: 1, 1: 1_000_000, 2: 0}, 100) == {0: 1, 1: 99, 2: 0}


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 50), max_size=6), st.integers(1, 40))
def test_no_segment_starves_and_no_limit_is_passed(waiting: dict[int, int], most: int) -> None:
    taken = share(waiting, most)
    assert sum(taken.values()) == min(sum(waiting.values()), most)
    assert all(0 <= taken[segment] <= count for segment, count in waiting.items())
    if sum(count > 0 for count in waiting.values()) <= most:
        assert all(taken[segment] > 0 for segment, count in waiting.items() if count)


def test_a_checkpoint_of_something_else_is_refused() -> None:
    written = StreamOffset("t", {0: 7}).to_json()
    with pytest.raises(InvalidOption, match="of topic 't', and the query reads 'u'"):
        StreamOffset.from_json(written, "u")
    with pytest.raises(InvalidOption, match="not written by this version"):
        StreamOffset.from_json({**written, "version": 2}, "t")
    with pytest.raises(InvalidOption, match="damaged"):
        micro_batch(StreamOffset("t", {0: 7}), StreamOffset("t", {1: 7}))


def _one_open() -> TopicState:
    segment = Segment(id=0, start_slot=0, stop_slot=65_536, brokers=("b",), opened_us=0, reason="create")
    return TopicState(topic="t", created_us=0, version=1, next_segment=1, config={}, segments=(segment,))
