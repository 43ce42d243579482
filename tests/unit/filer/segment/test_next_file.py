"""The next file of a segment: of a few single messages it is made without a table, and has the same bytes."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filer.format.digests import stated_footer_digest
from filer.format.plain import few_messages
from filer.format.requests import RequestId
from filer.format.schema import KeyType, MessageSchema, ValueType
from filer.format.segment_file import encode
from filer.segment import next_file
from filer.segment.later_table import LaterTable, Rows, table_of, tables_of
from filer.segment.next_file import Accepted, NextFile, Single, Singles, in_places, join
from filer.segment.producer_windows import ProducerWindows
from filer.segment.segment_log import SegmentRef
from tests.support.thoroughness import few_or_many

DAWN_US = 1_700_000_000_000_000
BASE = 70_000


def file_of(ref: SegmentRef, batch: Sequence[Accepted], *, sealed: bool = False) -> NextFile:
    made = NextFile(ref, batch, BASE, "b/01J", "7" * 32)
    if sealed:
        made.seal_with(ProducerWindows(), DAWN_US, DAWN_US)
    made()
    return made


def check_same(ref: SegmentRef, batch: Sequence[Accepted], *, sealed: bool = False) -> None:
    """The file is the one that is made of a table."""
    made, table = file_of(ref, batch, sealed=sealed), join(ref, batch, BASE)
    assert isinstance(made.rows, LaterTable) and made.rows.num_rows == table.num_rows
    assert bytes(made()) == encode(ref.schema.in_file(table), made.footer).to_pybytes()
    assert made.link == stated_footer_digest(made())
    assert table_of(made.rows).equals(table) and made.footer.count == table.num_rows


@st.composite
def plain_batches(draw: st.DrawFn) -> tuple[SegmentRef, list[Accepted]]:
    key_type: KeyType = draw(st.sampled_from(["binary", "string"]))
    value_type: ValueType = draw(st.sampled_from(["binary", "string", "json"]))
    texts = st.text(max_size=12).map(str.encode) if value_type != "json" else st.just(b'{"at": "dawn"}')
    values = texts if value_type != "binary" else st.binary(max_size=40)
    keys = None if draw(st.booleans()) else draw(st.lists(st.text(max_size=6).map(str.encode), min_size=1, max_size=3))
    some = draw(st.lists(values, min_size=1, max_size=5))
    batch: list[Accepted] = []
    base, stamp_us = BASE, DAWN_US
    for number, count in enumerate(draw(st.lists(st.integers(1, 9) | st.integers(250, 270), min_size=1, max_size=3))):
        steps = draw(st.lists(st.integers(0, 3) | st.integers(0, 2**40), min_size=1, max_size=5))
        messages, stamps_us = [], []
        for row in range(count):
            stamp_us += steps[row % len(steps)]
            stamps_us.append(stamp_us)
            key = None if keys is None else keys[row % len(keys)]
            messages.append(Single(key, some[row % len(some)], None, None))
        if count == 1 and draw(st.booleans()):
            batch.append(Accepted(messages[0], base, 1, 9, stamp_us, draw(st.none() | st.just(RequestId("p", number)))))
        else:
            batch.append(Accepted(Singles(messages, stamps_us), base, count, 9 * count, stamps_us[0]))
        base += count
    return SegmentRef("birds", 3, MessageSchema.of(key_type, value_type)), batch


@settings(max_examples=few_or_many(40, 200), deadline=None)
@given(plain_batches(), st.booleans())
def test_a_file_of_single_messages_is_the_one_of_their_table(
    made: tuple[SegmentRef, list[Accepted]], sealed: bool
) -> None:
    check_same(*made, sealed=sealed)


def singles(*messages: Single) -> list[Accepted]:
    return [Accepted(Singles([*messages], [DAWN_US] * len(messages)), BASE, len(messages), 9, DAWN_US)]


REF = SegmentRef("birds", 3)


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([Single(b"k", b"v", (("seen", b"dawn"),), None)], id="headers"),
        pytest.param([Single(b"k", None, None, None)], id="no value"),
        pytest.param([Single(b"k", b"v", None, DAWN_US)], id="an event time"),
        pytest.param([Single(b"k", b"v", None, None), Single(None, b"v", None, None)], id="some keys"),
        pytest.param([Single(None, b"v" * few_messages.MOST_BYTES + b"v", None, None)], id="much"),
        pytest.param([Single(None, b"", None, None)] * (few_messages.MOST_MESSAGES + 1), id="many"),
    ],
)
def test_whatever_is_not_plain_or_few_becomes_a_table(messages: list[Single]) -> None:
    made = file_of(REF, singles(*messages))
    assert not isinstance(made.rows, LaterTable)
    assert table_of(made.rows).equals(join(REF, singles(*messages), BASE))


def test_the_most_that_is_few_has_the_same_bytes() -> None:
    size_bytes = few_messages.MOST_BYTES // few_messages.MOST_MESSAGES
    check_same(REF, singles(*[Single(None, b"v" * size_bytes, None, None)] * few_messages.MOST_MESSAGES))


def test_a_table_is_made_once_and_only_if_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(next_file, "in_places", lambda *arguments: made.append(arguments) or in_places(*arguments))
    file = file_of(REF, singles(Single(b"k", b"v", None, None)))
    assert not made
    assert table_of(file.rows) is table_of(file.rows)
    assert len(made) == 1


def test_files_that_follow_each_other_become_columns_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[Rows] = []
    tables, base = [], BASE
    keys_of: list[list[bytes | None]] = [[b"a"], [b"b", b"c"], [None], [None, None], [b"d"], [b"e"]]
    for number, keys in enumerate(keys_of):
        stamps_us = [DAWN_US + number] * len(keys)
        batch = [Accepted(Singles([Single(key, b"v", None, None) for key in keys], stamps_us), base, len(keys), 9, 0)]
        file = NextFile(REF, batch, base, "b/01J", "7" * 32)
        file()
        files.append(file.rows)
        tables.append(join(REF, batch, base))
        base += len(keys)
    files[3] = tables[3]
    table_of(files[4])
    made: list[int] = []

    def counted(*arguments: Any) -> pa.Table:
        made.append(arguments[-1])
        return in_places(*arguments)

    monkeypatch.setattr(next_file, "in_places", counted)
    found = tables_of(files)
    assert pa.concat_tables(found).equals(pa.concat_tables(tables))
    assert [table.num_rows for table in found] == [4, 2, 1, 1]
    assert made == [BASE, BASE + 7], "the first three together, the last by itself; the others are columns already"
    assert isinstance(files[0], LaterTable) and files[0].to_make() is not None, "nobody holds both"
    assert tables_of([]) == []
