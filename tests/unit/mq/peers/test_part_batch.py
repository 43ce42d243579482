"""Parts of requests come out as they went in, with the ids of their requests."""

import orjson
import pyarrow as pa
import pytest

from filer.format.requests import RequestId
from mq.base.errors import Malformed
from mq.peers.part_batch import Part, pack_parts, unpack_parts

SCHEMA = pa.schema([("value", pa.binary())])
ROWS = pa.table({"value": [b"a", b"b", b"c"]}, schema=SCHEMA)
PARTS = [Part(1, 10, RequestId("p", 7)), Part(2, 20)]


def test_there_and_back() -> None:
    unpacked = list(unpack_parts(bytes(pack_parts(ROWS, PARTS)), SCHEMA))
    assert [part for part, _ in unpacked] == PARTS
    assert [rows.column(0).to_pylist() for _, rows in unpacked] == [[b"a"], [b"b", b"c"]]
    assert isinstance(unpacked[0][0].request, RequestId)


def test_chunks_that_hold_whole_parts() -> None:
    """As batches and singles between them come: a chunk each, which is not copied."""
    chunks = pa.chunked_array([[b"a", b"b"], [b"c"], [b"d", b"e"]], pa.binary())
    parts = [Part(1, 10), Part(1, 10), Part(1, 10), Part(2, 20)]
    unpacked = list(unpack_parts(bytes(pack_parts(pa.table([chunks], schema=SCHEMA), parts)), SCHEMA))
    assert [(part, rows.column(0).to_pylist()) for part, rows in unpacked] == [
        (parts[0], [b"a"]),
        (parts[1], [b"b"]),
        (parts[2], [b"c"]),
        (parts[3], [b"d", b"e"]),
    ]


@pytest.mark.parametrize("counts", [[1], [1, 1, 1, 1], [1, 3], [1, 0, 2], [1, -1, 3], [4]])
def test_parts_that_do_not_add_up(counts: list[int]) -> None:
    parts = [Part(count, 10) for count in counts]
    with pytest.raises(Malformed, match="do not add up"):
        list(unpack_parts(bytes(pack_parts(ROWS, parts)), SCHEMA))


def test_other_columns_than_are_wanted() -> None:
    with pytest.raises(Malformed, match="not the parts of requests"):
        list(unpack_parts(bytes(pack_parts(ROWS.append_column("more", ROWS["value"]), PARTS)), SCHEMA))


def test_what_is_no_batch_of_parts() -> None:
    with pytest.raises(Malformed, match="not the parts of requests"):
        list(unpack_parts(b"no Arrow", SCHEMA))


def test_parts_tell_of_their_traces_and_older_brokers_find_what_they_know() -> None:
    traces = [{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}]
    parts = [Part(1, 10), Part(2, 20, traces=traces)]
    packed = bytes(pack_parts(ROWS, parts))
    assert [part for part, _ in unpack_parts(packed, SCHEMA)] == parts
    with pa.ipc.open_stream(packed) as reader:
        listed = orjson.loads(reader.schema.metadata[b"braidmq.parts"])
    assert listed == [[1, 10, None, False, 0], [2, 20, None, False, 0]]
    # What a broker without traces sends is as it ever was.
    with pa.ipc.open_stream(bytes(pack_parts(ROWS, PARTS))) as reader:
        assert list(reader.schema.metadata) == [b"braidmq.parts"]


def test_parts_tell_of_the_owners_of_producers_and_older_brokers_find_what_they_know() -> None:
    parts = [Part(1, 10, RequestId("p", 7)), Part(2, 20, RequestId("q", 8, "digest"))]
    packed = bytes(pack_parts(ROWS, parts))
    assert [part for part, _ in unpack_parts(packed, SCHEMA)] == parts
    with pa.ipc.open_stream(packed) as reader:
        listed = orjson.loads(reader.schema.metadata[b"braidmq.parts"])
    assert listed == [[1, 10, ["p", 7], False, 0], [2, 20, ["q", 8], False, 0]]
