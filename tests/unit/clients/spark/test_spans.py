from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidmq.models import SegmentFile
from braidmq.spark.partitions.planning import narrowed_by_time, partitions_for
from braidmq.spark.spans import Span, only_segments, spans_between, split_spans
from braidmq.spark.topic_snapshot import TopicSnapshot
from filer.topic.positions import advance
from filer.topic.topic_state import TopicState
from tests.support.topic.lineages import lineages

OPEN_MESSAGES = 2
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(lineages(), st.data())
def test_two_positions_cut_a_topic_in_three(state: TopicState, data: st.DataObject) -> None:
    """The parts before the first, between them and after the second are the whole topic, without an overlap."""
    snapshot = TopicSnapshot(
        state, {s.id: OPEN_MESSAGES if s.end_offset is None else s.end_offset for s in state.segments}
    )
    first = _further(snapshot, snapshot.earliest(), data)
    second = _further(snapshot, first, data)
    seen: dict[int, int] = {}
    for start, end in ((snapshot.earliest(), first), (first, second), (second, snapshot.latest())):
        for span in spans_between(snapshot, start, end):
            assert span.start == seen.get(span.segment, 0)
            seen[span.segment] = span.stop
    assert seen == {segment: end for segment, end in snapshot.ends.items() if end}


def _further(snapshot: TopicSnapshot, positions: dict[int, int], data: st.DataObject) -> dict[int, int]:
    for _ in range(data.draw(st.integers(0, 4))):
        read = {s: data.draw(st.integers(offset, snapshot.ends[s])) for s, offset in positions.items()}
        positions = advance(snapshot.state, read)
    return positions


@given(st.lists(st.integers(1, 100), min_size=1, max_size=5), st.integers(1, 40))
def test_pieces_are_the_whole(counts: list[int], parts: int) -> None:
    spans = [Span(segment, 5, 5 + count) for segment, count in enumerate(counts)]
    pieces = split_spans(spans, parts)
    assert len(pieces) >= min(parts, sum(counts))
    for span in spans:
        own = only_segments(pieces, [span.segment])
        assert [own[0].start, *(each.stop for each in own)] == [*(each.start for each in own), span.stop]
    assert all(piece.count > 0 for piece in pieces)


def file(start: int, stop: int, first_seconds: int, last_seconds: int) -> SegmentFile:
    return SegmentFile(
        uri=f"file:///data/segment=0/{start:020d}.parquet",
        segment=0,
        base_offset=start,
        end_offset=stop,
        count=stop - start,
        bytes=1000,
        first_timestamp=EPOCH + timedelta(seconds=first_seconds),
        last_timestamp=EPOCH + timedelta(seconds=last_seconds),
    )


FILES = [file(0, 10, 100, 109), file(10, 20, 110, 119), file(20, 30, 120, 129)]


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (None, None, (0, 35)),
        (100, None, (0, 35)),
        (110, None, (10, 35)),
        (119, 120, (10, 20)),
        (130, None, (30, 35)),
        (None, 110, (0, 10)),
        (None, 130, (0, 35)),
        (None, 90, (0, 0)),
        (115, 105, (10, 10)),
    ],
)
def test_files_of_another_time_are_left_out(since: int | None, until: int | None, expected: tuple[int, int]) -> None:
    """The times of messages in no file are unknown: they stay, unless they are certainly too late."""
    bounds = [None if each is None else each * 1_000_000 for each in (since, until)]
    assert narrowed_by_time(Span(0, 0, 35), FILES, *bounds) == Span(0, *expected)


def test_partitions_have_their_own_files() -> None:
    partitions = partitions_for([Span(0, 5, 35)], [FILES], 3)
    assert [(each.span.start, each.span.stop) for each in partitions] == [(5, 15), (15, 25), (25, 35)]
    assert [[each.start for each in partition.files] for partition in partitions] == [[0, 10], [10, 20], [20]]


def test_nothing_to_read_is_no_partition() -> None:
    assert partitions_for([Span(0, 5, 5)], [[]], 4) == []
