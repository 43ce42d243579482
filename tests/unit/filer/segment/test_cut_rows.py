"""Rows of a request that go to several segments: their files are those of their columns, and columns are made later."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filer.format.compression import are_compressed, owner_compression
from filer.format.digests import stated_footer_digest
from filer.format.plain.prefixed import Texts, prefixed
from filer.format.requests import Position, RequestId
from filer.format.schema import KeyType, MessageSchema, ValueType
from filer.format.segment_file import SegmentFileEncoder, encode
from filer.segment.cut_rows import CutRows, RequestRows
from filer.segment.deduplication import deduplicate
from filer.segment.later_table import LaterTable, picked_rows, table_of
from filer.segment.next_file import Accepted, NextFile, join
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_log import SegmentRef
from filer.segment.take_over import beyond
from tests.support.thoroughness import few_or_many

NOISE = np.random.default_rng(7).bytes(1024**2)
DAWN_US = 1_700_000_000_000_000
BASE = 70_000
REF = SegmentRef("birds", 3)


def columns(ref: SegmentRef, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> pa.RecordBatch:
    schema, count = ref.schema.rows, len(values)
    nulls = [pa.nulls(count, field.type) for field in schema][2:]
    arrays = [pa.array(keys, schema.field("key").type), pa.array(values, schema.field("value").type), *nulls]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def cut(rows: pa.RecordBatch, stops: Sequence[int], seed: int) -> list[CutRows]:
    """The rows in a random order, cut there."""
    whole = RequestRows(rows, np.random.default_rng(seed).permutation(rows.num_rows).astype(np.int32))
    return [CutRows(whole, start, stop) for start, stop in pairwise([0, *stops, rows.num_rows])]


def accepted(shares: Sequence[CutRows | pa.RecordBatch], gap_us: int = 7) -> list[Accepted]:
    batch, base = [], BASE
    for number, share in enumerate(shares):
        batch.append(Accepted(share, base, share.num_rows, 9, DAWN_US + number * gap_us))
        base += share.num_rows
    return batch


def file_of(ref: SegmentRef, batch: Sequence[Accepted]) -> NextFile:
    made = NextFile(ref, batch, BASE, "b/01J", "7" * 32)
    made()
    return made


@st.composite
def shares(draw: st.DrawFn) -> tuple[SegmentRef, list[CutRows | pa.RecordBatch]]:
    key_type: KeyType = draw(st.sampled_from(["binary", "string"]))
    value_type: ValueType = draw(st.sampled_from(["binary", "string", "json"]))
    ref = SegmentRef("birds", 3, MessageSchema.of(key_type, value_type))
    texts = st.text(max_size=12).map(str.encode) if value_type != "json" else st.just(b'{"at": "dawn"}')
    short = texts if value_type != "binary" else st.binary(max_size=40)
    long = st.integers(250, 900).map(lambda size: b'"' + b"v" * size + b'"')
    value = draw(st.sampled_from([short, long, short | long]))
    keys = draw(st.none() | st.just(st.text(max_size=20).map(str.encode)))
    found: list[CutRows | pa.RecordBatch] = []
    for seed in range(draw(st.integers(1, 3))):
        values = draw(st.lists(value, min_size=3, max_size=30))
        count = len(values)
        names = [None] * count if keys is None else draw(st.lists(keys, min_size=count, max_size=count))
        rows = columns(ref, names, values)
        if draw(st.booleans()):
            rows = rows.slice(1, count - 2)
        first, stop = sorted(draw(st.lists(st.integers(0, rows.num_rows), min_size=2, max_size=2)))
        pieces = [each for each in cut(rows, [first, stop], seed) if each.num_rows]
        found.append(draw(st.sampled_from([*pieces, rows, CutRows(RequestRows(rows), 0, rows.num_rows)])))
    return ref, found


@settings(max_examples=few_or_many(60, 300), deadline=None)
@given(shares())
def test_the_file_of_shares_is_the_one_of_their_columns(
    made: tuple[SegmentRef, list[CutRows | pa.RecordBatch]],
) -> None:
    ref, found = made
    batch = accepted(found)
    file, table = file_of(ref, batch), join(ref, batch, BASE)
    assert bytes(file()) == encode(ref.schema.in_file(table), file.footer).to_pybytes()
    assert file.link == stated_footer_digest(file()) and file.footer.count == table.num_rows
    assert table_of(file.rows).equals(table)
    table.validate(full=True)


@pytest.mark.parametrize(
    ("count", "size_bytes", "requests"),
    [
        pytest.param(1, 100, 1, id="one message"),
        pytest.param(500, 1024, 4, id="shares of batches"),
        pytest.param(3000, 1024, 2, id="pages end within a share"),
        pytest.param(90_000, 40, 1, id="pages end with their rows"),
        pytest.param(14_000, 100, 9, id="pages end with rows and bytes, within shares"),
    ],
)
def test_a_large_file_of_shares_is_the_one_that_arrow_writes(count: int, size_bytes: int, requests: int) -> None:
    keys = [b"user-%d" % (row % 1000) for row in range(count)]
    values = [NOISE[row % 1000 : row % 1000 + size_bytes] for row in range(count)]
    rows = columns(REF, keys, values)
    batch = accepted([cut(rows, [-(-count // 2)], seed)[0] for seed in range(requests)], 977)
    file, table = file_of(REF, batch), join(REF, batch, BASE)
    assert isinstance(file.rows, LaterTable)
    encoder = SegmentFileEncoder(table.schema, compression=owner_compression(table))
    encoder.add_row_group(table)
    assert bytes(file()) == encoder.finish(file.footer).to_pybytes()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("key", [b"heron", None], id="some keys"),
        pytest.param("value", [b"dawn", None], id="some values"),
        pytest.param("event_time", [DAWN_US, DAWN_US], id="event times"),
        pytest.param("headers", [[("seen", b"dawn")], None], id="headers"),
        pytest.param("_ref", [{"uri": "u", "size": 1, "etag": "e", "sha256": None}, None], id="a reference"),
        pytest.param("value", [b"dawn", NOISE], id="a long value"),
    ],
)
def test_whatever_is_not_plain_becomes_a_table(name: str, value: list[object]) -> None:
    plain = columns(REF, [b"a", b"b"], [b"c", b"d"])
    column = pa.array(value, plain.schema.field(name).type)
    rows = plain.set_column(plain.schema.get_field_index(name), plain.schema.field(name), column)
    batch = accepted([CutRows(RequestRows(rows, np.array([1, 0], np.int32)), 0, 2)])
    file = file_of(REF, batch)
    assert isinstance(file.rows, pa.Table)
    assert file.rows["value"].to_pylist() == rows["value"].to_pylist()[::-1]
    assert bytes(file()) == encode(REF.schema.in_file(join(REF, batch, BASE)), file.footer).to_pybytes()


def test_requests_with_keys_and_without_and_many_small_ones_become_a_table() -> None:
    with_keys, without = columns(REF, [b"a"], [b"v" * 50_000]), columns(REF, [None], [b"v" * 50_000])
    assert isinstance(file_of(REF, accepted([with_keys, with_keys])).rows, LaterTable)
    assert isinstance(file_of(REF, accepted([with_keys, without])).rows, pa.Table)
    small = columns(REF, [b"a"], [b"v"])
    assert isinstance(file_of(REF, accepted([small])).rows, LaterTable)
    assert isinstance(file_of(REF, accepted([small, small])).rows, pa.Table)


def test_what_files_are_made_of_is_made_once_and_not_kept_for_readers() -> None:
    rows = columns(REF, [b"a", b"b", b"c"], [b"d", b"e", b"f"])
    shares = cut(rows, [1, 2], 5)
    files = [file_of(REF, accepted([share])) for share in shares]
    assert len({id(share.texts().values.data.obj) for share in shares}) == 1
    for file in files:
        assert isinstance(file.rows, LaterTable)
        later = file.rows.to_make()
        assert later is not None
        ((cut_rows,),) = [[each.payload for each in later[1].requests]]
        assert isinstance(cut_rows, CutRows) and cut_rows.whole.rows is rows
        assert cut_rows.whole not in [share.whole for share in shares]


@pytest.mark.parametrize("filler", [NOISE, b"dawn" * 100_000], ids=["as it is", "compressed"])
@pytest.mark.parametrize("size_bytes", [40, 2000])
def test_values_are_compressed_where_those_of_a_column_are(filler: bytes, size_bytes: int) -> None:
    values = [filler[start : start + size_bytes] for start in range(0, 400_000, size_bytes)]
    rows, count = columns(REF, [None] * len(values), values), len(values)
    batch = accepted([CutRows(RequestRows(rows), 0, count // 3), CutRows(RequestRows(rows), count // 3, count)])
    texts = [each.payload.texts().values for each in batch if isinstance(each.payload, CutRows)]
    assert are_compressed(texts) == (owner_compression(join(REF, batch, BASE)) == "lz4") == (filler is not NOISE)


def in_turn(texts: Texts) -> list[bytes]:
    data = bytes(texts.data)
    places = pairwise(texts.ends.tolist())
    read = [(int.from_bytes(data[start : start + 4], "little"), data[start + 4 : stop]) for start, stop in places]
    assert all(size == len(text) for size, text in read)
    return [text for _, text in read]


@pytest.mark.parametrize("sizes", [[0, 0], [12, 13], [13, 900], [0, 4000], [300, 300, 300], [13, 13]])
def test_texts_behind_their_lengths_are_in_that_order(sizes: list[int]) -> None:
    texts = [NOISE[number : number + size] for number, size in enumerate(sizes)]
    array = pa.array([b"before", *texts, b"behind"], pa.binary()).slice(1, len(texts))
    assert in_turn(prefixed(array)) == texts
    backwards = np.arange(len(texts), dtype=np.int32)[::-1].copy()
    assert in_turn(prefixed(array, backwards)) == texts[::-1]
    assert in_turn(prefixed(array, backwards).between(1, 2)) == [texts[-2]]


def test_shares_are_recognised_and_taken_over_as_columns_are() -> None:
    rows = columns(REF, [b"a", b"b", b"c"], [b"d", b"e", b"f"])
    share = CutRows(RequestRows(rows, np.array([2, 0, 1], np.int32)), 0, 3)
    (rest,) = beyond(accepted([share]), BASE + 1)
    assert isinstance(rest.payload, CutRows) and (rest.base, rest.count) == (BASE + 1, 2)
    assert rest.payload.batch()["value"].to_pylist() == [b"d", b"e"]
    assert replace(rest, payload=share).payload is share

    windows, request = ProducerWindows(), RequestId("p", 1)
    assert deduplicate(windows, request, share) == ([], share)
    stored = Position(3, BASE, 3)
    windows.note(request, stored, DAWN_US)
    assert deduplicate(windows, request, share) == ([stored], None)


@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.parametrize("as_columns", [True, False], ids=["columns", "cut"])
def test_some_rows_are_picked_without_making_all(keys: bool, as_columns: bool) -> None:
    names = [b"k%d" % n if keys else None for n in range(300)]
    rows = columns(REF, names, [b"v" * n for n in range(300)])
    batch = accepted([rows] if as_columns else cut(rows, [7, 120], 5))
    made = file_of(REF, batch)
    assert isinstance(made.rows, LaterTable)
    numbers = np.array([0, 3, 6, 7, 119, 120, 299])
    picked = picked_rows(made.rows, numbers)
    assert made.rows.to_make() is not None, "the others are not made"
    assert picked.equals(table_of(made.rows).select(["key", "value"]).take(numbers))
    assert picked_rows(made.rows, numbers).select(["key", "value"]).equals(picked), "as columns"
