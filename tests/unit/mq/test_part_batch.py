"""Parts of requests come out as they went in, with the ids of their requests."""

import pyarrow as pa
import pytest

from filer.requests import RequestId
from mq.errors import Malformed
from mq.part_batch import Part, pack_parts, unpack_parts

SCHEMA = pa.schema([("value", pa.binary())])
ROWS = pa.table({"value": [b"a", b"b", b"c"]}, schema=SCHEMA)
PARTS = [Part(1, 10, RequestId("p", 7)), Part(2, 20)]


def test_there_and_back() -> None:
    unpacked = list(unpack_parts(bytes(pack_parts(ROWS, PARTS)), SCHEMA))
    assert [part for part, _ in unpacked] == PARTS
    assert [rows.column(0).to_pylist() for _, rows in unpacked] == [[b"a"], [b"b", b"c"]]
    assert isinstance(unpacked[0][0].request, RequestId)


def test_parts_that_do_not_add_up() -> None:
    with pytest.raises(Malformed, match="do not add up"):
        list(unpack_parts(bytes(pack_parts(ROWS, PARTS[:1])), SCHEMA))


def test_what_is_no_batch_of_parts() -> None:
    with pytest.raises(Malformed, match="not the parts of requests"):
        list(unpack_parts(b"no Arrow", SCHEMA))
