"""Reports of loads come out as they went in, or are refused."""

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.errors import InvalidInput
from filer.slots import SLOTS
from leader.policy.cut_points import SlotTraffic
from leader.traffic.traffic_averages import KnownAverages, RecentTraffic, SegmentTraffic
from mq.peers import traffic_report as subject
from mq.peers.traffic_report import (
    ShownTraffic,
    TrafficReport,
    pack_averages,
    pack_report,
    pack_shown,
    pack_slots,
    unpack_averages,
    unpack_report,
    unpack_shown,
    unpack_slots,
)

RATES = st.floats(0, 1e12)
LOADS = st.builds(
    SegmentTraffic, st.sampled_from(["t", "orders", "ü"]), st.integers(0, 2**53), *[RATES] * 10, st.integers(0, 2**53)
)


@given(st.lists(LOADS, max_size=20), st.integers(0, 2**53))
def test_a_report_comes_out_as_it_went_in(loads: list[SegmentTraffic], pending_bytes: int) -> None:
    report = TrafficReport("b.01", pending_bytes, loads)
    assert unpack_report(pack_report(report)) == report


SHOWN = st.builds(
    ShownTraffic, st.none() | st.builds(RecentTraffic, RATES, RATES, RATES), st.none() | st.integers(0, SLOTS - 1)
)


@given(st.dictionaries(st.integers(0, 2**53), SHOWN, max_size=20))
def test_what_is_shown_comes_out_as_it_went_in(loads: dict[int, ShownTraffic]) -> None:
    assert unpack_shown(pack_shown(loads)) == loads


@pytest.mark.parametrize(
    "data",
    [
        b"{}[",
        b"7",
        b"[7]",
        b'[{"segment": 1}]',
        b'[{"segment": 1, "traffic": {"x": 1}, "hot_slot": null}]',
        b'[{"segment": 1, "traffic": null, "hot_slot": "x"}]',
    ],
)
def test_what_nobody_can_be_shown_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        unpack_shown(data)


SUMS = st.dictionaries(st.floats(0.001, 1e12), st.tuples(RATES, RATES, st.floats(0, 1)), max_size=18)


@given(st.builds(KnownAverages, RATES, SUMS))
def test_averages_come_out_as_they_went_in(known: KnownAverages) -> None:
    assert unpack_averages(pack_averages(known)) == known


@pytest.mark.parametrize(
    "change",
    [
        {"age_seconds": -1},
        {"age_seconds": None},
        {"averages": None},
        {"averages": [[1, 2, 3]]},
        {"averages": [[1, 2, 3, "x"]]},
        {"averages": [[1, 2, -3, 1]]},
        {"averages": [[0, 2, 3, 1]]},
    ],
)
def test_what_is_no_average_is_refused(change: dict[str, object]) -> None:
    good = orjson.loads(pack_averages(KnownAverages(1, {2: (1, 1, 1)})))
    with pytest.raises(InvalidInput):
        unpack_averages(orjson.dumps(good | change))


def test_a_topics_name_is_in_it_once() -> None:
    load = SegmentTraffic("a long name", 0, 1, 1, 1, 1, 1, 1, 1, 1)
    assert pack_report(TrafficReport("b", 0, [load] * 100)).count(b"a long name") == 1


def test_many_segments_make_several_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MOST_SEGMENTS", 3)
    loads = [SegmentTraffic("t", n, 1, 1, 1, 1, 1, 1, 1, 1) for n in range(7)]
    batches = TrafficReport("b", 5, loads).batches()
    assert [len(batch.segments) for batch in batches] == [3, 3, 1]
    assert [load for batch in batches for load in batch.segments] == loads
    assert [(batch.broker, batch.pending_bytes) for batch in batches] == [("b", 5)] * 3
    assert TrafficReport("b", 5, []).batches() == [TrafficReport("b", 5, [])]


def test_the_largest_report_is_within_its_bound() -> None:
    names = [f"{n:0200}" for n in range(subject.MOST_SEGMENTS)]
    loads = [SegmentTraffic(name, 2**53, *[1e12 / 7] * 10, 2**53) for name in names]
    assert len(pack_report(TrafficReport("b", 5, loads))) < subject.MOST_REPORT_BYTES


def test_reports_of_older_and_newer_brokers_are_taken() -> None:
    """While a cluster is upgraded either may lead: what came later may be missing, or not be known yet."""
    load = SegmentTraffic("t", 0, *[1.0] * 10, 7)
    packed = orjson.loads(pack_report(TrafficReport("b", 5, [load])))
    newer = unpack_report(orjson.dumps(packed | {"later": ["x"]}))
    assert newer == TrafficReport("b", 5, [load])
    for name in ("read_messages_per_second", "read_bytes_per_second", "segment_pending_bytes"):
        del packed[name]
    older = unpack_report(orjson.dumps(packed))
    assert older == TrafficReport("b", 5, [SegmentTraffic("t", 0, *[1.0] * 8)])


@pytest.mark.parametrize(
    "change",
    [
        {"topic": [1]},
        {"topic": []},
        {"segment": []},
        {"segment": ["x"]},
        {"recent": ["x"]},
        {"recent": [None]},
        {"recent": []},
        {"topics": None},
        {"broker": None, "pending_bytes": "x"},
    ],
)
def test_what_is_no_report_is_refused(change: dict[str, object]) -> None:
    good = orjson.loads(pack_report(TrafficReport("b", 0, [SegmentTraffic("t", 0, *[1.0] * 8)])))
    with pytest.raises(InvalidInput, match="not a traffic report"):
        unpack_report(orjson.dumps(good | change))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff"])
def test_bytes_that_are_no_report_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        unpack_report(data)


def test_loads_per_slot_come_out_as_they_went_in() -> None:
    messages, size_bytes = np.zeros(65_536, np.float32), np.zeros(65_536, np.float32)
    messages[5], size_bytes[5] = 7, 70.5
    packed = pack_slots(SlotTraffic(messages, size_bytes, 9))
    assert len(packed) < 10_000, "long runs of slots take little"
    seen = unpack_slots(packed)
    assert seen is not None and seen.observations == 9
    np.testing.assert_array_equal(seen.messages, messages)
    np.testing.assert_array_equal(seen.size_bytes, size_bytes)


def test_an_owner_may_not_know() -> None:
    assert unpack_slots(pack_slots(None)) is None


def stream(**columns: list[object]) -> bytes:
    """An Arrow stream of these columns, with as much metadata as there is to be."""
    table = pa.table(columns).replace_schema_metadata({"observations": "7"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_columns_of_a_newer_broker_are_let_pass() -> None:
    seen = unpack_slots(stream(messages=[1.0], more=["x"], bytes=[2.0]))
    assert seen is not None and (seen.messages[0], seen.size_bytes[0], seen.observations) == (1, 2, 7)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 100,
        stream(messages=[1.0]),
        stream(bytes=[]),
        *(stream(messages=[each], bytes=[1.0]) for each in ("many", None, -1.0, float("inf"))),
    ],
)
def test_bytes_that_are_no_loads_per_slot_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        unpack_slots(data)
