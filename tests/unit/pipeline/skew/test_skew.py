import numpy as np
import pyarrow as pa
import pytest

from filer.errors import InvalidInput
from filer.slots import SLOTS, slot_of
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from pipeline.skew.skew import report_skew
from pipeline.skew.slot_counts import SlotCounts, count_batch


def state_of(*ranges: tuple[int, int]) -> TopicState:
    segments = tuple(
        Segment(id=index, start_slot=start, stop_slot=stop, brokers=("b",), opened_us=1, reason="create")
        for index, (start, stop) in enumerate(ranges)
    )
    return TopicState(
        topic="t", created_us=1, version=1, next_segment=len(ranges), config=TopicConfig(), segments=segments
    )


def loads_of(**by_slot: tuple[int, int]) -> SlotCounts:
    loads = SlotCounts.empty()
    for slot, (messages, size_bytes) in by_slot.items():
        loads.messages[int(slot[1:])], loads.size_bytes[int(slot[1:])] = messages, size_bytes
    return loads


def test_messages_and_bytes_are_counted_in_the_slot_of_their_key() -> None:
    keys = pa.array([b"a", b"bb", b"a", None, b""], pa.binary())
    values = pa.array([b"xyz", None, b"", b"four", b"1"], pa.binary())
    loads = count_batch(pa.record_batch({"key": keys, "value": values}))
    found = {int(slot): (loads.messages[slot], loads.size_bytes[slot]) for slot in np.flatnonzero(loads.messages)}
    assert found == {slot_of(b"a"): (2, 5), slot_of(b"bb"): (1, 2), slot_of(b""): (1, 1)}
    assert (loads.keyless_messages, loads.keyless_bytes) == (1, 4)


def test_a_slice_of_json_rows_is_counted_as_the_text_it_is() -> None:
    values = pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(['{"a":1}', "[]", "2"]))
    batch = pa.record_batch({"key": pa.array(["a", "b", "é"]), "value": values}).slice(1)
    loads = count_batch(batch)
    assert loads.messages.sum() == 2 and loads.size_bytes[slot_of("é".encode())] == 3


def test_sums_of_parts_are_those_of_the_whole() -> None:
    whole = loads_of(s1=(1, 10), s2=(4, 40)) + loads_of(s2=(1, 2), s9=(1, 1))
    assert (whole.messages[2], whole.size_bytes[2], whole.messages.sum()) == (5, 42, 7)


def test_suggested_parts_share_the_load_and_tile_the_slots() -> None:
    loads = loads_of(s10=(500, 1), s20=(500, 1), s30=(500, 1), s40_000=(500, 9_000))
    report = report_skew(state_of((0, 30_000), (30_000, SLOTS)), loads, parts=4, hottest=2, by="messages")
    assert [part.share for part in report.parts] == [0.25] * 4
    assert (report.parts[0].start, report.parts[-1].stop) == (0, SLOTS)
    assert report.cut_points == tuple(part.stop for part in report.parts[:-1])
    assert [(segment, load.share) for segment, load in report.segments] == [(0, 0.75), (1, 0.25)]
    assert [each.start for each in report.hottest] == [10, 20]


def test_by_bytes_the_heavy_slot_gets_a_part_of_its_own() -> None:
    loads = loads_of(s10=(5000, 1000), s40_000=(10, 9_000))
    report = report_skew(state_of((0, SLOTS)), loads, parts=2, hottest=1, by="bytes")
    assert report.hottest[0].start == 40_000 and report.hottest[0].share == 0.9
    assert report.parts[1].share == 0.9 and report.parts[1].start > 10


def test_without_messages_the_parts_are_of_equal_width() -> None:
    report = report_skew(state_of((0, SLOTS)), SlotCounts.empty(), parts=4, hottest=10, by="messages")
    assert report.hottest == () and report.cut_points == (16_384, 32_768, 49_152)


def test_more_parts_than_slots_are_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be cut into 65537 parts"):
        report_skew(state_of((0, SLOTS)), SlotCounts.empty(), parts=SLOTS + 1, hottest=1, by="messages")
