import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mq.cli.failures import CommandFailed
from mq.cli.publishing.batches import Batch, csv_batches, line_batches, ndjson_batches
from mq.cli.publishing.input_forms import Fields, format_of
from mq.cli.publishing.input_stream import InputStream, open_input


def stream(data: bytes, *, piece_bytes: int = 1 << 20, name: str = "in") -> InputStream:
    return InputStream(name, Dripping(data, piece_bytes), None)


class Dripping(io.RawIOBase):
    """Gives a few bytes at a time, as pipes do."""

    def __init__(self, data: bytes, piece_bytes: int) -> None:
        self._data, self._piece_bytes = io.BytesIO(data), piece_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._data.read(min(len(buffer), self._piece_bytes))
        buffer[: len(piece)] = piece
        return len(piece)


def values(batches: list[Batch]) -> list[bytes]:
    return [value for batch in batches for value in batch.table["value"].to_pylist()]


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"\n", [b""]),
        ("ä\r\n\x00x\n".encode(), ["ä\r".encode(), b"\x00x"]),
    ],
)
def test_lines_are_values_whatever_pieces_they_come_in(data: bytes, lines: list[bytes], piece_bytes: int) -> None:
    assert values(list(line_batches(stream(data, piece_bytes=piece_bytes)))) == lines


def test_a_line_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.cli.publishing.batches.MAX_LINE_BYTES", 10)
    monkeypatch.setattr("mq.cli.publishing.batches._CHUNK_BYTES", 4)
    with pytest.raises(CommandFailed, match=r"in, line 2: longer than 10 bytes.*--upload"):
        list(line_batches(stream(b"a\n" + b"b" * 20)))


def test_ndjson_goes_as_it_is_and_gives_keys() -> None:
    data = b'{"id": "x", "v": 1}\n\n {"id": null}\r\n{"id": 7}\n{}\n{"id": {"a": 1}}\n'
    (batch,) = ndjson_batches(stream(data), Fields(key="id"))
    assert batch.is_json
    assert batch.table["value"].to_pylist() == [
        b'{"id": "x", "v": 1}', b'{"id": null}', b'{"id": 7}', b"{}", b'{"id": {"a": 1}}',
    ]  # fmt: skip
    assert batch.key is not None
    assert batch.table[batch.key].to_pylist() == [b"x", None, b"7", None, b'{"a":1}']


def test_keys_and_values_that_are_numbers_keep_their_digits() -> None:
    numbers = [b"123456789012345678901", b"123456789012345678902"]
    data = b"".join(b'{"id": %s, "v": [%s]}\n' % (number, number) for number in numbers)
    (batch,) = ndjson_batches(stream(data), Fields(key="id", value="v"))
    assert batch.table["key"].to_pylist() == numbers
    assert values([batch]) == [b"[%s]" % number for number in numbers]


def test_ndjson_without_a_key_field_leaves_room_for_one_key() -> None:
    (batch,) = ndjson_batches(stream(b"1\n[2]\n"), Fields())
    assert batch.key is None and batch.table.column_names == ["value"]


def test_a_field_can_be_the_value() -> None:
    (batch,) = ndjson_batches(stream(b'{"v": "text"}\n{"v": [1]}\n{"v": null}\n'), Fields(value="v"))
    assert not batch.is_json
    assert batch.table["value"].to_pylist() == [b"text", b"[1]", None]


@pytest.mark.parametrize(
    ("data", "fields", "message"),
    [
        (b"1\n2\n{oops", Fields(), "in, line 3: "),
        (b'{"a":1}\n3\n', Fields(key="a"), "in, line 2: not a JSON object"),
    ],
)
def test_a_bad_line_is_named(data: bytes, fields: Fields, message: str) -> None:
    with pytest.raises(CommandFailed, match=message):
        list(ndjson_batches(stream(data), fields))


@pytest.mark.parametrize("fields", [Fields(key="id"), Fields(value="id")])
def test_a_field_that_no_line_of_a_file_has_is_refused(fields: Fields) -> None:
    data = b'{"it": 1}\n\n{"other": 2}\n'
    with pytest.raises(CommandFailed, match=r"in: unknown field 'id': did you mean 'it'\?"):
        list(ndjson_batches(stream(data), fields))
    # A stream gives a line at a time: the next one may have it.
    assert values(list(ndjson_batches(stream(data, name="stdin"), Fields(key="id")))) == [b'{"it": 1}', b'{"other": 2}']


def test_a_file_of_many_names_does_not_make_a_long_error() -> None:
    data = b"".join(b'{"%d": 1}\n' % number for number in range(10_000))
    with pytest.raises(CommandFailed) as refused:
        list(ndjson_batches(stream(data), Fields(key="name")))
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.csv", "csv"), ("A.CSV.GZ", "csv"), ("a.csv.zip", "csv"), ("a.parquet", "parquet"), ("a.ndjson", "ndjson"),
        ("x/a.jsonl.gz", "ndjson"), ("a.txt", "lines"), ("a.log", "lines"), ("a.json", "raw"),
    ],
)  # fmt: skip
def test_a_name_tells_the_format(name: str, form: str) -> None:
    assert format_of(name) == form


@pytest.mark.parametrize("name", ["a", "a.gz", "a.png", "csv"])
def test_a_name_that_tells_nothing_is_refused(name: str) -> None:
    with pytest.raises(CommandFailed, match="--format"):
        format_of(name)


def table_of(data: bytes, fields: Fields | None = None, *, text: bool = False) -> dict[str, list[Any]]:
    (batch,) = csv_batches(stream(data, piece_bytes=7), fields or Fields(), nulls=["", "NA"], as_text=text)
    columns: dict[str, list[Any]] = batch.table.to_pydict()
    return columns if batch.keys is None else {**columns, "key": batch.keys.to_pylist()}


def test_csv_columns_are_what_their_rows_say() -> None:
    data = b'int,float,bool,text,time,none\n1,1.5,true,x,2013-01-01T10:00:00Z,\n-2,,false,"a\nb",2013-01-02,NA\n'
    assert table_of(data) == {
        "int": [1, -2],
        "float": [1.5, None],
        "bool": [True, False],
        "text": ["x", "a\nb"],
        "time": ["2013-01-01T10:00:00Z", "2013-01-02"],
        "none": [None, None],
    }


def test_csv_numbers_that_would_not_come_back_stay_text() -> None:
    data = b"zip,long,half,zero\n01234,1,12345678901234567890,0\n99999,1234567890123456789,0.5,0.25\n"
    assert table_of(data) == {
        "zip": ["01234", "99999"],
        "long": [1, 1234567890123456789],
        "half": ["12345678901234567890", "0.5"],
        "zero": [0.0, 0.25],
    }


def test_csv_keys_are_text_as_written_beside_their_column_and_na_is_null() -> None:
    assert table_of(b"k,v\n1,2\nNA,3\n", Fields(key="k")) == {"k": [1, None], "v": [2, 3], "key": ["1", None]}


def test_csv_can_be_taken_as_text() -> None:
    assert table_of(b"a,b\n1,true\n", text=True) == {"a": ["1"], "b": ["true"]}


def test_csv_without_rows_or_at_all_empty() -> None:
    assert sum(b.table.num_rows for b in csv_batches(stream(b"a,b\n"), Fields(), nulls=[], as_text=False)) == 0
    assert list(csv_batches(stream(b""), Fields(), nulls=[], as_text=False)) == []


def test_csv_integers_may_turn_into_fractions_but_not_into_words(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b"a\n" + b"1\n" * 3_000_000

    def read(end: bytes) -> list[Any]:
        batches = csv_batches(stream(rows + end), Fields(), nulls=[""], as_text=False)
        return [value for batch in batches for value in batch.table["a"][-1:].to_pylist()]

    assert read(b"2.5\n")[-1] == 2.5
    with pytest.raises(CommandFailed, match=r"in, column 'a' began as int64: .*oops.*--text"):
        read(b"oops\n")


def test_csv_with_a_short_row_is_refused() -> None:
    with pytest.raises(CommandFailed, match=r"in: .*Expected 2 columns, got 1"):
        table_of(b"a,b\n1,2\n3\n")


@pytest.mark.parametrize("text", [False, True])
def test_csv_with_two_columns_of_a_name_is_refused(text: bool) -> None:
    with pytest.raises(CommandFailed, match="in: several columns are named 'a': rename all but one"):
        table_of(b"a,b,a\n1,2,3\n", text=text)


def zipped(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.txt", data)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.gz", gzip.compress(b"hello")), ("a.zip", zipped(b"hello")), ("a.txt", b"hello")],
    ids=["gzip", "zip", "not compressed"],
)
def test_compressed_files_are_unpacked(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with open_input(str(path)) as opened:
        assert opened.head(2) == b"he"
        assert opened.read() == b"hello"
        assert opened.size_bytes == path.stat().st_size
        assert 0 < opened.done_bytes <= opened.size_bytes


def test_a_zip_of_many_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "")
        archive.writestr("b", "")
    with pytest.raises(CommandFailed, match="holds 2 files"), open_input(str(tmp_path / "a.zip")):
        pass


@pytest.mark.parametrize("name", ["a.gz", "a.zip"])
def test_what_cannot_be_unpacked_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"plainly not compressed")
    with pytest.raises(CommandFailed, match="cannot be unpacked"), open_input(str(tmp_path / name)) as opened:
        opened.read()
