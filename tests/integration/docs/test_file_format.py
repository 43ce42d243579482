"""docs/file-format.md: its snippets read each message once in every state of a roll-up, its tables are true."""

import asyncio
import base64
import json
import re
import zlib
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow.parquet as pq
import pytest

from filer import keys
from filer.clock import SystemClock
from filer.format.requests import RequestId
from filer.format.schema import KeyType, MessageSchema, ValueType
from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef
from filer.stores.local.local_store import LocalStore
from filer.stores.store import Store
from filer.topic.topic_config import TopicConfig
from filer.topic.topic_state import Segment, TopicState
from filer.upkeep.rollup import roll_up
from tests.support.format_snippets import (
    DOCUMENT,
    DuckDbQuery,
    DuckDbSnippets,
    PolarsQuery,
    PythonSnippets,
    Row,
    SparkQuery,
    SparkSnippets,
    check_digests,
    read_independently,
)
from tests.support.segment.segment_owners import owner, single
from tests.support.topic.damage import damaged
from tests.support.topic.segment_files import append, value_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "demo"
FILES, FILE_ROWS = 12, 100
SEALED_EMPTY, SEALED_WITH_ROWS, OPEN = SegmentRef(TOPIC, 0), SegmentRef(TOPIC, 1), SegmentRef(TOPIC, 12)
ROWS = {SEALED_EMPTY.segment: FILES * FILE_ROWS, SEALED_WITH_ROWS.segment: FILES * FILE_ROWS + 30, OPEN.segment: 7}
EXPECTED: list[Row] = [(segment, offset, value_of(offset)) for segment in ROWS for offset in range(ROWS[segment])]


class Files:
    """A topic of three segments, whose first two are rolled up step by step."""

    def __init__(self, root: Path) -> None:
        self.topic = root / "topics" / TOPIC
        self._clock = SystemClock()
        self._store: Store = LocalStore(root, clock=self._clock)
        self._written: dict[SegmentRef, list[FileFacts]] = {}
        self._rolled: dict[tuple[SegmentRef, int, int], FileFacts] = {}

    async def write(self) -> None:
        """Files as the owners write them, and topic.json."""
        for ref in (SEALED_EMPTY, SEALED_WITH_ROWS):
            index = SegmentIndex()
            self._written[ref] = [await append(self._store, ref, index, FILE_ROWS) for _ in range(FILES)]
            await append(self._store, ref, index, ROWS[ref.segment] - index.end, sealed=True)
        await append(self._store, OPEN, SegmentIndex(), ROWS[OPEN.segment])
        await self._store.create(keys.topic(TOPIC), topic_state().to_json())

    async def roll_up(self, first: int, stop: int, *, over: tuple[int, int] | None = None) -> None:
        """Roll up the owner's files `[first, stop)` of both, those of the earlier roll-up `over` by way of it."""
        for ref, written in self._written.items():
            run = written[first:stop]
            if over is not None:
                run = [*written[first : over[0]], self._rolled[ref, *over], *written[over[1] : stop]]
            with ThreadPoolExecutor(1) as executor:
                rolled = await roll_up(self._store, self._clock, ref, run, broker="b", executor=executor)
            self._rolled[ref, first, stop] = rolled

    async def delete(self, *names: FileName) -> None:
        """Delete those of both."""
        await self._store.delete([ref.key(name) for ref in self._written for name in names])


def topic_state() -> TopicState:
    bounds = [(0, 30_000), (30_000, 65_536)]
    sealed = [
        Segment(
            id=segment, start_slot=start, stop_slot=stop, brokers=("b",), opened_us=1, reason="create",
            successors=(OPEN.segment,), state="sealed", end_offset=ROWS[segment], sealed_us=2,
        )
        for segment, (start, stop) in enumerate(bounds)
    ]  # fmt: skip
    successor = Segment(
        id=OPEN.segment,
        start_slot=0,
        stop_slot=65_536,
        brokers=("b",),
        opened_us=2,
        reason="merge",
        predecessors=(0, 1),
    )
    return TopicState(
        topic=TOPIC, created_us=1, version=2, next_segment=13, config=TopicConfig(), segments=(*sealed, successor)
    )


def owners(first: int, stop: int) -> list[FileName]:
    return [FileName(number * FILE_ROWS) for number in range(first, stop)]


async def nothing_rolled_up(files: Files) -> None:
    pass


async def both_stand(files: Files) -> None:
    await files.roll_up(0, 4)


async def rolled_up_in_the_middle(files: Files) -> None:
    await files.roll_up(3, 7)


async def deleting_has_begun(files: Files) -> None:
    await files.roll_up(0, 4)
    await files.delete(*owners(1, 2), *owners(3, 4))


async def deleted(files: Files) -> None:
    await files.roll_up(0, 4)
    await files.delete(*owners(0, 4))


async def one_within_the_other(files: Files) -> None:
    await files.roll_up(0, 4)
    await files.roll_up(0, 8, over=(0, 4))


async def only_the_larger_left(files: Files) -> None:
    await one_within_the_other(files)
    await files.delete(FileName(0, 4 * FILE_ROWS), *owners(0, 8))


async def side_by_side(files: Files) -> None:
    await files.roll_up(0, 4)
    await files.roll_up(4, FILES)


async def overlapping(files: Files) -> None:
    await files.roll_up(0, 4)
    await files.roll_up(2, 8)


async def overlapping_and_deleted(files: Files) -> None:
    await overlapping(files)
    await files.delete(*owners(0, 8))


async def three_overlapping(files: Files) -> None:
    await files.roll_up(0, 5)
    await files.roll_up(2, 4)
    await files.roll_up(3, 9)


STATES = [
    nothing_rolled_up, both_stand, rolled_up_in_the_middle, deleting_has_begun, deleted, one_within_the_other,
    only_the_larger_left, side_by_side, overlapping, overlapping_and_deleted, three_overlapping,
]  # fmt: skip
# What comes about while a reader is between listing and reading: nothing goes before grace is over.
WITHOUT_DELETION = [both_stand, one_within_the_other, side_by_side, three_overlapping]
State = Callable[[Files], Awaitable[None]]
Reader = type[DuckDbSnippets | PythonSnippets | DuckDbQuery | PolarsQuery]
READERS = [DuckDbSnippets, PythonSnippets, DuckDbQuery, PolarsQuery]


@pytest.fixture
async def files(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    await files.write()
    return files


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("state", STATES)
async def test_list_and_read(files: Files, state: State, reader: Reader) -> None:
    await state(files)
    snippets = reader(files.topic)
    snippets.list_files()
    assert snippets.read() == EXPECTED


@pytest.mark.parametrize("state", STATES)
async def test_digests_and_the_chain(files: Files, state: State) -> None:
    await state(files)
    counts = check_digests(files.topic)
    assert sum(checked for checked, _ in counts.values()) == len(list(files.topic.glob("segments/*/*.parquet")))
    assert not any(unchecked for _, unchecked in counts.values())


async def test_every_damaged_byte_is_told_by_the_snippet(files: Files) -> None:
    path = min(files.topic.glob("segments/*/*.parquet"))
    good = path.read_bytes()
    for name, bad in damaged(good, step=11):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"damaged|\.parquet"):
            check_digests(files.topic)
            raise AssertionError(name)


async def test_a_file_taken_out_of_the_chain_is_told_by_the_snippet(files: Files) -> None:
    names = sorted(files.topic.glob("segments/*/*.parquet"))
    names[1].unlink()
    with pytest.raises(ValueError, match="does not follow the file before it"):
        check_digests(files.topic)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("state", WITHOUT_DELETION)
async def test_list_then_roll_up_then_read(files: Files, state: State, reader: Reader) -> None:
    snippets = reader(files.topic)
    snippets.list_files()
    await state(files)
    assert snippets.read() == EXPECTED


@pytest.mark.parametrize("reader", READERS)
async def test_list_then_what_was_superseded_goes_then_read(files: Files, reader: Reader) -> None:
    """What does not count when a list is taken is not in it: it may go at any moment."""
    await one_within_the_other(files)
    snippets = reader(files.topic)
    snippets.list_files()
    await files.delete(FileName(0, 4 * FILE_ROWS), *owners(0, 8))
    assert snippets.read() == EXPECTED


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("reader", [SparkSnippets, SparkQuery])
@pytest.mark.parametrize("state", [both_stand, deleting_has_begun, only_the_larger_left, three_overlapping])
async def test_spark(
    files: Files, state: State, reader: type[SparkSnippets | SparkQuery], spark: "SparkSession"
) -> None:
    await state(files)
    snippets = reader(files.topic, spark)
    snippets.list_files()
    assert snippets.read() == EXPECTED


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("reader", [SparkSnippets, SparkQuery])
async def test_spark_reads_a_list_taken_before_a_roll_up(
    files: Files, reader: type[SparkSnippets | SparkQuery], spark: "SparkSession"
) -> None:
    snippets = reader(files.topic, spark)
    snippets.list_files()
    await three_overlapping(files)
    assert snippets.read() == EXPECTED


@pytest.mark.xdist_group("spark")
async def test_the_printed_queries_find_a_folder_whose_name_looks_like_a_pattern(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    files = Files(tmp_path / "a [b] {c}")
    await files.write()
    await three_overlapping(files)
    for query in (DuckDbQuery(files.topic), PolarsQuery(files.topic), SparkQuery(files.topic, spark)):
        query.list_files()
        assert query.read() == EXPECTED


@pytest.mark.parametrize("state", STATES)
async def test_whole_reader(files: Files, state: State) -> None:
    await state(files)
    assert read_independently(files.topic) == EXPECTED


async def test_whole_reader_stops_at_a_gap_and_begins_at_start_offset(files: Files) -> None:
    record = files.topic / "topic.json"
    record.write_text(record.read_text().replace('"start_offset": 0', '"start_offset": 300', 1))
    await files.delete(FileName(500))
    read = read_independently(files.topic)
    assert [offset for segment, offset, _ in read if segment == 0] == list(range(300, 500))


def documented(heading: str) -> Iterator[list[str]]:
    """The cells of the first table under a heading, without its head."""
    section = DOCUMENT.split(f"\n## {heading}\n")[1]
    lines = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert lines is not None
    for line in lines[0].splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture(params=[("binary", "binary"), ("string", "string"), ("string", "json")])
async def typed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[SegmentRef, list[Path]]:
    """A topic of such a key and value type: an owner's file, a roll-up and an empty seal."""
    key_type: KeyType
    value_type: ValueType
    key_type, value_type = request.param
    clock = SystemClock()
    store = LocalStore(tmp_path, clock=clock)
    ref, index = SegmentRef(TOPIC, 0, MessageSchema.of(key_type, value_type)), SegmentIndex()
    for uris in ((), ("uploads/a",)):
        await append(store, ref, index, FILE_ROWS, uris=uris)
    with ThreadPoolExecutor(1) as executor:
        await roll_up(store, clock, ref, index.files, broker="b", executor=executor)
    await append(store, ref, index, 0, sealed=True)
    names = (FileName(0), FileName(0, 2 * FILE_ROWS), FileName(2 * FILE_ROWS))
    return ref, [tmp_path / ref.key(name) for name in names]


async def test_columns_are_as_documented(typed: tuple[SegmentRef, list[Path]]) -> None:
    ref, paths = typed
    chosen = {"key": ref.schema.key_type.upper(), "value": ref.schema.value_type.upper()}
    columns = [
        (name.strip("`"), physical, logical, needed) for name, physical, logical, needed, _ in documented("Columns")
    ]
    for path in paths:
        rows = duckdb.execute(
            "SELECT name, type, coalesce(logical_type, ''), repetition_type FROM parquet_schema(?)", [str(path)]
        ).fetchall()
        top = [row for row in rows[1:] if row[0] not in ("key_value", "uri", "size", "etag", "sha256")]
        # The map's own key and value come after `headers`.
        top = [row for index, row in enumerate(top) if index not in (6, 7)]
        assert [row[0] for row in top] == [name for name, *_ in columns]
        for (name, physical, logical, needed), (_, kind, marked, repetition) in zip(columns, top, strict=True):
            assert (kind or "group") == physical
            assert repetition.lower() == needed
            expected = chosen.get(name, logical.partition("(")[0]).removeprefix("BINARY")
            assert marked.partition("Type")[0].upper() == expected


async def test_encodings_are_as_documented(typed: tuple[SegmentRef, list[Path]]) -> None:
    owners_file, rolled, seal = typed[1]
    for path, compression in ((owners_file, "LZ4_RAW"), (rolled, "ZSTD")):
        assert compression in next(line for line in DOCUMENT.splitlines() if line.startswith("| compression"))
        for name, codec, encodings, least in duckdb.execute(
            "SELECT path_in_schema, compression, encodings, stats_min_value FROM parquet_metadata(?)", [str(path)]
        ).fetchall():
            delta = name in ("_offset", "_timestamp")
            assert codec == compression
            assert set(encodings.split(", ")) == {"RLE", "DELTA_BINARY_PACKED" if delta else "PLAIN"}
            assert (least is not None) == delta
    assert pq.read_metadata(seal).num_row_groups == 0


async def test_footers_are_as_documented(typed: tuple[SegmentRef, list[Path]]) -> None:
    names = {name for first, *_ in documented("Footer") for name in re.findall(r"braidmq\.\w+", first)}
    for path in typed[1]:
        metadata = pq.read_metadata(path).metadata
        is_seal = path == typed[1][-1]
        optional = {"braidmq.requests", "braidmq.owners", "braidmq.windows"} | (
            set() if is_seal else {"braidmq.sealed"}
        )
        optional |= set() if "-" in path.name else {"braidmq.last_original"}
        assert {name.decode() for name in metadata} == names - optional
        assert metadata[b"braidmq.version"] == b"1"
        assert int(metadata[b"braidmq.count"]) == pq.read_metadata(path).num_rows


async def test_requests_and_windows_are_as_documented(tmp_path: Path) -> None:
    clock = SystemClock()
    store, ref, index = LocalStore(tmp_path, clock=clock), SegmentRef(TOPIC, 4), SegmentIndex()
    writer = owner(store, clock, ref, index)
    await writer.inheritance.wait()
    await writer.append(single(b"x"), 1, RequestId("till-7", 41))
    await writer.append(single(b"x"), 1)
    waiting = [writer.append(single(b"x"), 1, RequestId("till-7", sequence)) for sequence in (43, 42)]
    await writer.seal()
    await asyncio.gather(*waiting)
    footers = [pq.read_metadata(tmp_path / ref.key(facts.name)).metadata for facts in index.files]
    said = [json.loads(footer.get(b"braidmq.requests", b"{}")) for footer in footers]
    assert said == [{"till-7": [41, 0, 1]}, {}, {"till-7": [43, 0, 1, 42, 1, 1]}]
    assert [b"braidmq.windows" in footer for footer in footers] == [False, False, True]
    windows = json.loads(zlib.decompress(base64.b64decode(footers[-1][b"braidmq.windows"])))
    assert (windows["version"], windows["range"]) == (1, [0, 65_536])
    seen_us = int(footers[-1][b"braidmq.last_timestamp"])
    # Sequences 41 to 43, of segment 4, at offsets 0, 3 and 2, one message each.
    ranges = [[0, 65_536, [41, 1, 1], [4, 0, 0], [0, 3, -1], [1, 0, 0]]]
    assert windows["producers"] == [["till-7", seen_us, ranges]]
