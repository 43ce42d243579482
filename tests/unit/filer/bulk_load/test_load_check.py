"""What the check of a load's files refuses: whatever is not exactly what is said, and whatever would not fit memory."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filer.bulk_load.load_check import FileClaim, check_load_file
from filer.bulk_load.load_files import LoadFile, load_files
from filer.bulk_load.load_segment import LoadSegment
from filer.bulk_load.page_headers import parse_page_header
from filer.bulk_load.row_group_lots import Ranges
from filer.errors import LoadRefused
from filer.format.schema import MessageSchema, ValueType
from filer.slots import slot_of
from tests.support.topic.broken_load_files import rewritten, with_column

COUNT = 100
TIME_US = 1_700_000_000_000_000
HALF = LoadSegment("backfill", 7, 0, 32_768, TIME_US, digests=False)
"""Its files have no digests, which would refuse every file that these tests change before anything else is checked."""
CHECKED = replace(HALF, digests=True)
KEYS = [key for key in (b"key-%d" % n for n in range(400)) if slot_of(key) < 32_768][:COUNT]
STRAY = next(key for key in (b"key-%d" % n for n in range(400)) if slot_of(key) >= 32_768)


def messages(values: list[bytes] | None = None) -> pa.Table:
    return pa.table({"key": KEYS, "value": values or [b"value-%d" % n for n in range(COUNT)]})


def file_of(rows: pa.Table | None = None, segment: LoadSegment = HALF) -> LoadFile:
    (file,) = load_files([messages() if rows is None else rows], segment, file_bytes=1 << 40)
    return file


def check(data: bytes, segment: LoadSegment = HALF, **claim: int) -> list[tuple[int, int]]:
    """The ranges that were read."""
    asked: list[tuple[int, int]] = []

    def read(ranges: Ranges) -> list[bytes]:
        asked.extend(ranges)
        return [data[start:stop] for start, stop in ranges]

    check_load_file(read, replace(FileClaim(7, 0, COUNT, len(data)), **claim), segment)
    return asked


def test_what_the_library_writes_is_taken() -> None:
    check(file_of().data.to_pybytes())
    headers = pa.array([[("a", b"b")]] * COUNT, pa.map_(pa.string(), pa.binary()))
    times = pa.array(range(COUNT), pa.timestamp("us", "UTC"))
    check(file_of(messages().append_column("headers", headers).append_column("event_time", times)).data.to_pybytes())
    check(file_of(pa.table({"value": pa.nulls(COUNT, pa.binary())})).data.to_pybytes())


def test_a_file_with_digests_is_taken_and_refused_where_any_byte_is_another() -> None:
    """Also a byte of a value, which is not decoded."""
    data = file_of(messages([bytes([n]) * 200 for n in range(COUNT)]), CHECKED).data.to_pybytes()
    check(data)
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        with pytest.raises(LoadRefused):
            check(bytes(changed))


def test_a_file_with_digests_of_many_row_groups_is_taken() -> None:
    values = [bytes([n]) * 1_000_000 for n in range(COUNT)]
    file = file_of(messages(values), CHECKED)
    assert pq.read_metadata(pa.BufferReader(file.data)).num_row_groups > 5
    check(file.data.to_pybytes())


def test_the_digests_of_other_row_groups_are_refused() -> None:
    """The footer agrees with itself, and its digests with other bytes."""
    first, second = (file_of(messages([value] * COUNT), CHECKED).data.to_pybytes() for value in (b"a", b"b"))
    assert len(first) == len(second)
    footer_bytes = int.from_bytes(first[-8:-4], "little") + 8
    with pytest.raises(LoadRefused, match="row group 0 is damaged"):
        check(second[:-footer_bytes] + first[-footer_bytes:])


@pytest.mark.parametrize("value_type", ["string", "json"])
def test_text_is_taken_in_a_topic_of_text(value_type: ValueType) -> None:
    segment = replace(HALF, schema=MessageSchema.of("string", value_type))
    check(file_of(messages([b'"%d"' % n for n in range(COUNT)]), segment).data.to_pybytes(), segment)


def test_files_with_many_row_groups_and_pages_are_taken() -> None:
    check(rewritten(file_of(), rows_each=7))
    check(rewritten(file_of(), data_page_size=100, write_batch_size=10))


def test_the_pages_of_a_file_are_found_at_once() -> None:
    """A column of a row group is one page, also where Arrow by itself would begin another."""
    count = 50_000
    file = file_of(pa.table({"value": pa.array([b"%d" % n for n in range(count)], pa.binary())}))
    head_tail_and_around_the_values = 4
    assert len(check(file.data.to_pybytes(), count=count)) == head_tail_and_around_the_values


def test_binary_values_are_not_read() -> None:
    data = file_of(messages([bytes([n]) * 50_000 for n in range(COUNT)])).data.to_pybytes()
    plain = rewritten(file_of(messages([bytes([n]) * 50_000 for n in range(COUNT)])), compression="none")
    assert sum(stop - start for start, stop in check(data)) < 200_000
    assert len(plain) > 5_000_000
    assert sum(stop - start for start, stop in check(plain)) < 200_000


def test_a_file_beyond_the_first() -> None:
    first, second = load_files([messages()], HALF, file_bytes=3000)
    check(second.data.to_pybytes(), base_offset=second.base_offset, count=second.count)
    with pytest.raises(LoadRefused, match="base_offset"):
        check(second.data.to_pybytes(), count=second.count)
    with pytest.raises(LoadRefused, match="count"):
        check(first.data.to_pybytes())


def key_changed(table: pa.Table) -> list[bytes | None]:
    return [*table["key"].to_pylist()[:-1], STRAY]


def off_by_one(table: pa.Table) -> list[int]:
    return [offset + 1 for offset in table["_offset"].to_pylist()]


def without_a_value(table: pa.Table) -> list[list[tuple[str, bytes | None]]]:
    return [[("name", None)]] * len(table)


def with_a_name_twice(table: pa.Table) -> list[list[tuple[str, bytes]]]:
    return [[("a", b"1"), ("a", b"2")]] * table.num_rows


def with_no_time(table: pa.Table) -> list[list[tuple[str, bytes]] | None]:
    return [None, *[[("braid-deliver-at", b"soon")]] * (table.num_rows - 1)]


def with_footer(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The file with other bytes in its footer."""
    footer_bytes = int.from_bytes(data[-8:-4], "little")
    before = data[-8 - footer_bytes : -8]
    footer = change(before)
    assert footer != before
    return data[: -8 - footer_bytes] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def in_another_file(file: LoadFile) -> bytes:
    """Its first column chunk says so: field 1 of it, in front of field 2, which is 0."""
    return with_footer(file.data.to_pybytes(), lambda footer: footer.replace(b"\x26\0\x1c", b"\x18\1x\x16\0\x1c", 1))


def with_values_fewer(column: str) -> Callable[[LoadFile], bytes]:
    """The footer says that a column has 99 values: fields 3 to 5 of it are its path, codec (zstd) and values."""
    before = len(column).to_bytes() + column.encode() + b"\x15\x0c\x16"
    return lambda file: with_footer(
        file.data.to_pybytes(), lambda footer: footer.replace(before + b"\xc8\1", before + b"\xc6\1")
    )


def with_levels(column: int) -> Callable[[LoadFile], bytes]:
    """The header of a column's first page says that its levels are encoded in another way than RLE (3)."""

    def changed(file: LoadFile) -> bytes:
        data = file.data.to_pybytes()
        index = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(column).data_page_offset
        header = data[index : index + 40]
        assert header.count(b"\x15\0\x15\6\x15\6") == 1
        return data[:index] + header.replace(b"\x15\0\x15\6\x15\6", b"\x15\0\x15\x08\x15\6") + data[index + 40 :]

    return changed


LIES: dict[str, tuple[Callable[[LoadFile], bytes], str]] = {
    "a gap": (lambda f: rewritten(f, with_column("_offset", lambda t: [*range(50), *range(51, 101)])), "consecutive"),
    "shifted": (lambda f: rewritten(f, with_column("_offset", off_by_one)), "consecutive"),
    "shifted in the second row group": (
        lambda f: rewritten(f, with_column("_offset", lambda t: [*range(50), *range(51, 101)]), rows_each=50),
        "51 stands where 50 is expected",
    ),
    "a stray key": (lambda f: rewritten(f, with_column("key", key_changed)), "the key of offset 99 has slot"),
    "other times": (
        lambda f: rewritten(f, with_column("_timestamp", lambda t: [*[TIME_US] * 99, 5])),
        "time of the bulk load",
    ),
    "fewer messages": (lambda f: rewritten(f, lambda t: t.slice(0, 99)), "it has 99 messages"),
    "a column less": (lambda f: rewritten(f, lambda t: t.drop_columns(["headers"])), "columns"),
    "a column more": (lambda f: rewritten(f, lambda t: t.append_column("more", pa.array([1] * COUNT))), "columns"),
    "a wrong type": (lambda f: rewritten(f, lambda t: t.set_column(3, "value", pa.array(range(COUNT)))), "columns"),
    "text for bytes": (lambda f: rewritten(f, lambda t: t.set_column(2, "key", t["key"].cast("string"))), "columns"),
    "nullable offsets": (
        lambda f: rewritten(f, lambda t: t.set_column(0, "_offset", pa.array(range(COUNT)))),
        "columns",
    ),
    "a dictionary": (lambda f: rewritten(f, use_dictionary=True), "write it plain"),
    "pages of version 2": (lambda f: rewritten(f, data_page_version="2.0"), "not plain data pages"),
    "brotli": (lambda f: rewritten(f, compression="brotli"), "compressed with BROTLI"),
    "an arrow schema": (lambda f: rewritten(f, store_schema=True), "ARROW:schema"),
    "another segment": (lambda f: rewritten(f, pairs={"braidmq.segment": "8"}), "braidmq.segment"),
    "another writer": (lambda f: rewritten(f, pairs={"braidmq.writer": "load:other"}), "braidmq.writer"),
    "another version": (lambda f: rewritten(f, pairs={"braidmq.version": "2"}), "braidmq.version"),
    "no count": (lambda f: rewritten(f, pairs={"braidmq.count": None}), "braidmq.count"),
    "a seal": (lambda f: rewritten(f, pairs={"braidmq.sealed": "true"}), "sealed"),
    "requests": (lambda f: rewritten(f, pairs={"braidmq.requests": '{"p":[1,0,1]}'}), "requests"),
    "windows": (lambda f: rewritten(f, pairs={"braidmq.windows": "eJw="}), "windows"),
    "references": (
        lambda f: rewritten(f, with_column("_ref", lambda t: [{"uri": "uploads/x", "size": 1}, *[None] * 99])),
        "references",
    ),
    "a header twice": (lambda f: rewritten(f, with_column("headers", with_a_name_twice)), "'a' is given twice"),
    "no time": (
        lambda f: rewritten(f, with_column("headers", with_no_time)),
        "offset 1: the header 'braid-deliver-at'",
    ),
    "a header without a value": (lambda f: rewritten(f, with_column("headers", without_a_value)), "header without"),
    "a time that cannot be shown": (
        lambda f: rewritten(f, with_column("event_time", lambda t: [2**62, *[None] * 99])),
        "event_time of offset 0",
    ),
    "statistics of offsets": (
        lambda f: f.data.to_pybytes().replace((99).to_bytes(8, "little"), (98).to_bytes(8, "little")),
        "_offset state 0 to 98 and 0 nulls for a row group that has 0 to 99",
    ),
    "statistics of times": (
        lambda f: f.data.to_pybytes().replace(TIME_US.to_bytes(8, "little"), (TIME_US + 1).to_bytes(8, "little")),
        "statistics of column _timestamp",
    ),
    "statistics of nulls": (
        lambda f: f.data.to_pybytes().replace(
            TIME_US.to_bytes(8, "little") + b"\x16\0", TIME_US.to_bytes(8, "little") + b"\x16\2"
        ),
        "_timestamp state .* 1 nulls",
    ),
    "statistics of keys": (lambda f: rewritten(f, write_statistics=["key"]), "column key has statistics"),
    "a column in another file": (in_another_file, "column _offset is in another file, 'x'"),
    "fewer times than messages": (with_values_fewer("event_time"), "column event_time has 99 values for 100 messages"),
    "fewer hashes than messages": (with_values_fewer("sha256"), "column _ref.sha256 has 99 values"),
    "levels of values": (with_levels(3), "not plain data pages"),
    "levels of nulls": (with_levels(4), "read"),
    "a page index": (lambda f: rewritten(f, write_page_index=True), "page index"),
    "a Bloom filter": (lambda f: rewritten(f, bloom_filter_options={"key": True}), "column key has a Bloom filter"),
    "truncated": (lambda f: f.data.to_pybytes()[:-100], "PAR1"),
    "no head": (lambda f: b"xxxx" + f.data.to_pybytes()[4:], "does not begin with PAR1"),
    "no Parquet": (lambda f: b"x" * 100_000, "PAR1"),
    "one byte": (lambda f: b"x", "PAR1"),
    "encrypted": (lambda f: f.data.to_pybytes()[:-4] + b"PARE", "encrypted"),
    "a footer of gigabytes": (
        lambda f: f.data.to_pybytes()[:-8] + (2**31).to_bytes(4, "little") + b"PAR1",
        "claims a footer of 2147483656 bytes",
    ),
    "a footer that is none": (lambda f: f.data.to_pybytes()[:-300] + bytes(292) + f.data.to_pybytes()[-8:], "read"),
    "another name within a column": (lambda f: f.data.to_pybytes().replace(b"\x04_ref", b"\x04_rex"), "columns"),
    "no pages": (lambda f: b"PAR1" + bytes(396) + f.data.to_pybytes()[400:], "read|header"),
    "many row groups": (lambda f: rewritten(file_of(pa.table({"value": [b""] * 1025})), rows_each=1), "row groups"),
    "many pages": (lambda f: rewritten(f, data_page_size=1, write_batch_size=1), "pages"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_not_as_said_is_refused(lie: str) -> None:
    make, reason = LIES[lie]
    with pytest.raises(LoadRefused, match=reason):
        check(make(file_of()))


BAD_TEXTS = [("string", b"\xff" * 8, "(?i)utf8"), ("json", b'{"Q7Q7Q7', "offset 0 is not JSON")]


@pytest.mark.parametrize(("value_type", "bad", "reason"), BAD_TEXTS)
def test_text_that_is_none_is_refused(value_type: ValueType, bad: bytes, reason: str) -> None:
    """Bytes put in place of others, since Arrow would not write them as text."""
    segment, good = replace(HALF, schema=MessageSchema.of("binary", value_type)), b'"Q7Q7Q7"'
    data = rewritten(file_of(pa.table({"value": [good]}), segment), segment.schema.in_file, compression="none")
    check(data, segment, count=1)
    assert data.count(good) == 1 and len(good) == len(bad)
    with pytest.raises(LoadRefused, match=reason):
        check(data.replace(good, bad), segment, count=1)


def test_what_readers_decode_whole_may_inflate_to_so_much() -> None:
    """Two hundred megabytes in row groups of fifty: more of them make a file that is refused, small as it lies."""
    fifty = [bytes(10 * 2**20)] * 5
    check(rewritten(file_of(pa.table({"value": fifty * 4})), rows_each=5), count=20)
    data = rewritten(file_of(pa.table({"value": fifty * 6})), rows_each=5)
    assert len(data) < 1_000_000
    with pytest.raises(LoadRefused, match="bytes before compression"):
        check(data, count=30)


@pytest.mark.parametrize("repeated", [True, False])
def test_a_stray_key_is_told_by_its_offset(repeated: bool) -> None:
    """Whether many messages have the same few keys, or each one its own."""
    mine = [key for key in (b"own-%d" % n for n in range(12_000)) if slot_of(key) < 32_768][:5000]
    keys = [KEYS[n % 7] for n in range(5000)] if repeated else mine
    file = file_of(pa.table({"key": keys, "value": keys}))
    check(file.data.to_pybytes(), count=5000)
    lying = rewritten(file, with_column("key", lambda t: [*keys[:4000], STRAY, *keys[4001:4500], STRAY, *keys[4501:]]))
    with pytest.raises(LoadRefused, match="the key of offset 4000 has slot"):
        check(lying, count=5000)


def test_pages_larger_than_the_footer_says_are_refused() -> None:
    """What a page inflates to is read in its own header, whatever the footer claims."""
    data = bytearray(file_of(messages([bytes(1000)] * COUNT)).data.to_pybytes())
    index = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(0).column(3).data_page_offset
    before = parse_page_header(bytes(data[index : index + 256]))
    assert 100_000 < before.uncompressed_bytes < 110_000
    assert data[index : index + 3] == b"\x15\x00\x15"
    data[index + 3 : index + 6] = b"\xfe\xff\x7f"
    assert parse_page_header(bytes(data[index : index + 256])).uncompressed_bytes == 2**20 - 1
    with pytest.raises(LoadRefused, match="pages of column value are larger than the footer says"):
        check(bytes(data))


@settings(derandomize=True)
@given(st.data())
def test_whatever_is_broken_is_refused_or_taken_and_nothing_else(chosen: st.DataObject) -> None:
    data = bytearray(file_of().data.to_pybytes())
    for _ in range(chosen.draw(st.integers(1, 4))):
        data[chosen.draw(st.integers(0, len(data) - 1))] = chosen.draw(st.integers(0, 255))
    try:
        check(bytes(data))
    except LoadRefused as error:
        assert str(error)
