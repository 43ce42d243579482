import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.errors import InvalidMarker
from filer.slots import SLOTS
from filer.topic.positions import (
    MARKER_MAX_CHARS,
    PositionExpired,
    Positions,
    advance,
    check_positions,
    earliest,
    from_marker,
    to_marker,
)
from filer.topic.topic_state import TopicState
from tests.support.topic.lineages import Lineage, lineages

POSITIONS = st.dictionaries(st.integers(0, 2**40), st.integers(0, 2**62), max_size=50)
OPEN_MESSAGES = 2


@given(POSITIONS)
def test_markers_name_positions(positions: Positions) -> None:
    marker = to_marker("t", positions)
    assert from_marker("t", marker) == positions
    assert marker.isascii() and not set(marker) & set("+/=&?# ")
    with pytest.raises(InvalidMarker, match="not a marker of topic 'u'"):
        from_marker("u", marker)


def test_markers_stay_short() -> None:
    assert len(to_marker("t", {0: 5})) <= 12
    assert len(to_marker("t", dict.fromkeys(range(1000), 1_000_000))) < 6000


@given(POSITIONS, st.data())
def test_changed_markers_are_refused(positions: Positions, data: st.DataObject) -> None:
    raw = bytearray(base64.urlsafe_b64decode(to_marker("t", positions) + "=="))
    index = data.draw(st.integers(0, len(raw) - 1))
    raw[index] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidMarker):
        from_marker("t", base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode())


@given(st.text() | st.text(alphabet="ABCabc019-_"))
def test_any_other_text_is_no_marker(text: str) -> None:
    with pytest.raises(InvalidMarker):
        from_marker("t", text)


def forged(body: bytes) -> str:
    check = zlib.crc32(b"t\0" + body).to_bytes(4, "big")
    return base64.urlsafe_b64encode(check + body).rstrip(b"=").decode()


@pytest.mark.parametrize("body", [b"", b"\x02", b"\x01\x80", b"\x01\x05", b"\x01" + b"\xff" * 20 + b"\x01\x01"])
def test_forgeries_with_the_right_checksum(body: bytes) -> None:
    with pytest.raises(InvalidMarker):
        from_marker("t", forged(body))


def test_marker_of_unbounded_length() -> None:
    with pytest.raises(InvalidMarker, match=str(MARKER_MAX_CHARS)):
        from_marker("t", "A" * (MARKER_MAX_CHARS + 1))


# -- moving along the lineage ----------------------------------------------------------------------------------


def end_of(state: TopicState, segment_id: int) -> int:
    segment = state.segment(segment_id)
    assert segment is not None
    return OPEN_MESSAGES if segment.end_offset is None else segment.end_offset


def covers(state: TopicState, positions: Positions) -> bool:
    ranges = sorted(s.range for s in state.segments if s.id in positions)
    reached = 0
    for start, stop in ranges:
        if start > reached:
            return False
        reached = max(reached, stop)
    return reached == SLOTS


@given(lineages(), st.data())
def test_reading_in_any_order_sees_each_message_once_after_its_predecessors(
    state: TopicState, data: st.DataObject
) -> None:
    """Whoever reads on, wherever: all messages come, once, and no successor's before its predecessors'."""
    by_id = {s.id: s for s in state.segments}
    seen: dict[int, int] = {}
    positions = advance(state, earliest(state))
    while ready := [s for s in positions if positions[s] < end_of(state, s)]:
        assert covers(state, positions)
        check_positions(state, positions)
        assert from_marker("t", to_marker("t", positions)) == positions
        chosen = data.draw(st.sampled_from(ready))
        for before in by_id[chosen].predecessors:
            assert seen.get(before, 0) == end_of(state, before)
        assert positions[chosen] == seen.get(chosen, 0)
        seen[chosen] = seen.get(chosen, 0) + 1
        positions[chosen] += 1
        if data.draw(st.booleans()):
            positions = advance(state, positions)
            assert advance(state, positions) == positions
    positions = advance(state, positions)
    while any(positions[s] < end_of(state, s) for s in positions):
        # Segments entered only now are read out as well.
        for segment_id in list(positions):
            seen[segment_id] = positions[segment_id] = end_of(state, segment_id)
        positions = advance(state, positions)
    assert covers(state, positions)
    assert set(positions) == {s.id for s in state.open_segments}
    assert {s: count for s, count in seen.items() if count} == {
        s.id: end_of(state, s.id) for s in state.segments if end_of(state, s.id)
    }


@given(lineages(), st.data())
def test_a_reader_that_continues_within_a_page_misses_nothing(state: TopicState, data: st.DataObject) -> None:
    """Such a marker is that before the page, with the messages so far laid over: what was left since is still in it."""
    marker = earliest(state)
    given: list[tuple[int, int]] = []
    while page := read_page(state, marker, data):
        taken = page[: data.draw(st.integers(1, len(page)))]
        given += taken
        marker = marker | {segment: offset + 1 for segment, offset in taken}
        assert covers(state, advance(state, marker))
    everything = [(s.id, offset) for s in state.segments for offset in range(end_of(state, s.id))]
    assert sorted(given) == everything
    assert set(advance(state, marker)) == {s.id for s in state.open_segments}


def read_page(state: TopicState, marker: Positions, data: st.DataObject) -> list[tuple[int, int]]:
    """Some of the messages behind a marker, in some order in which a reader may come upon them."""
    positions = advance(state, marker)
    page: list[tuple[int, int]] = []
    while (ready := [s for s in positions if positions[s] < end_of(state, s)]) and len(page) < 10:
        chosen = data.draw(st.sampled_from(ready))
        page.append((chosen, positions[chosen]))
        positions[chosen] += 1
        positions = advance(state, positions)
    return page


def test_a_reader_past_an_empty_segment_enters_all_its_successors() -> None:
    """The marker was made within a page, so 0 is still in it, and the empty 1 never was."""
    lineage = Lineage()
    lineage.add(0, SLOTS)
    lineage.split(lineage.open[0], [], end_offset=3)
    lineage.split(lineage.open[0], [100, 200], end_offset=0)
    assert advance(lineage.state(), {0: 3, 2: 5}) == {2: 5, 3: 0, 4: 0}


def test_a_marker_that_is_ahead_of_itself_gets_no_further_ahead() -> None:
    """Nobody gives out such a one: 2 was entered, and 0 before it is not drained."""
    lineage = Lineage()
    lineage.add(0, 100)
    lineage.add(100, SLOTS)
    lineage.cut_anew(lineage.open, [50], [3, 3])
    ahead = {0: 2, 1: 3, 2: 0}
    assert advance(lineage.state(), ahead) == ahead
    assert advance(lineage.state(), ahead | {0: 3}) == {2: 0, 3: 0}


def test_many_generations_take_no_longer_than_there_are_segments() -> None:
    """The ways from one to another through splits and merges double with each generation."""
    lineage = Lineage()
    lineage.add(0, SLOTS)
    for _ in range(200):
        lineage.split(lineage.open[0], [100], end_offset=1)
        lineage.merge(lineage.open, [0, 0])
    newest = lineage.open[0].id
    assert advance(lineage.state(), {0: 1, newest: 2}) == {newest: 2}
    assert advance(lineage.state(), {0: 1, 3: 1, 6: 1}) == {9: 0}


def test_a_split_is_entered_when_its_parent_is_drained() -> None:
    lineage = Lineage()
    lineage.add(0, SLOTS)
    lineage.split(lineage.open[0], [100, 200], end_offset=5)
    state = lineage.state()
    assert advance(state, {0: 4}) == {0: 4}
    assert advance(state, {0: 5}) == {1: 0, 2: 0, 3: 0}
    assert advance(state, {0: 5, 2: 7}) == {1: 0, 2: 7, 3: 0}


def test_a_merge_is_entered_when_all_its_parents_are_drained() -> None:
    lineage = Lineage()
    lineage.add(0, 100)
    lineage.add(100, SLOTS)
    lineage.merge(lineage.open, [3, 4])
    state = lineage.state()
    assert advance(state, {0: 3, 1: 3}) == {0: 3, 1: 3}
    assert advance(state, {0: 2, 1: 4}) == {0: 2, 1: 4}
    assert advance(state, {0: 3, 1: 4}) == {2: 0}


def test_empty_generations_are_passed_through() -> None:
    lineage = Lineage()
    lineage.add(0, SLOTS)
    for _ in range(50):
        lineage.split(lineage.open[0], [], end_offset=0)
    assert advance(lineage.state(), {0: 0}) == {50: 0}


def test_a_drained_parent_stays_until_all_its_successors_are_entered() -> None:
    """1 splits, one half merges with 0's: until 0 is drained too, the other half alone can be read."""
    lineage = Lineage()
    lineage.add(0, 100)
    lineage.add(100, SLOTS)
    lineage.split(lineage.segments[1], [200], end_offset=1)
    lineage.merge([lineage.segments[0], lineage.segments[2]], [1, 0])
    state = lineage.state()
    moved = advance(state, {0: 0, 1: 1})
    assert moved == {0: 0, 2: 0, 3: 0}
    assert advance(state, moved | {0: 1}) == {3: 0, 4: 0}


def test_segments_that_retention_took_meanwhile_stay() -> None:
    lineage = Lineage()
    lineage.add(0, SLOTS)
    lineage.split(lineage.open[0], [], end_offset=1)
    state = lineage.state()
    trimmed = state.model_copy(update={"segments": state.segments[1:]})
    assert advance(trimmed, {0: 1}) == {0: 1}
    with pytest.raises(PositionExpired, match="removed by retention"):
        check_positions(trimmed, {0: 1})


def rolled_topic() -> TopicState:
    """Segment 0 was rolled at offset 5 into segment 2; segment 1 has the other slots."""
    lineage = Lineage()
    lineage.add(0, 100)
    lineage.add(100, SLOTS)
    lineage.split(lineage.segments[0], [], end_offset=5)
    return lineage.state()


@pytest.mark.parametrize(
    "positions",
    [{}, {1: 0}, {2: 0}, {0: 6, 1: 0}, {1: 0, 2: 0, 9: 0}],
    ids=["none", "slots missing", "other slots missing", "beyond an end", "unknown segment"],
)
def test_impossible_positions_are_refused(positions: dict[int, int]) -> None:
    with pytest.raises(InvalidMarker):
        check_positions(rolled_topic(), positions)


def test_positions_before_the_start_have_expired() -> None:
    state = rolled_topic()
    check_positions(state, {1: 10**9, 2: 0})
    late = state.segments[1].model_copy(update={"start_offset": 3})
    state = state.model_copy(update={"segments": (state.segments[0], late, state.segments[2])})
    with pytest.raises(PositionExpired, match="from 3 on"):
        check_positions(state, {1: 2, 2: 0})
