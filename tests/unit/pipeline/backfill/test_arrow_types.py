import pyarrow as pa
import pytest

from pipeline.backfill.arrow_types import unseen

LASTS = pa.duration("us")


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        (pa.int64(), []),
        (pa.timestamp("us", "UTC"), []),
        (pa.map_(pa.string(), pa.list_(pa.struct([("a", pa.string())]))), []),
        (LASTS, ["c"]),
        (pa.bool8(), ["c"]),
        (pa.list_(LASTS), ["c[]"]),
        (pa.large_list(pa.list_(LASTS, 2)), ["c[][]"]),
        (pa.map_(LASTS, pa.struct([("a", pa.int8()), ("b", LASTS)])), ["c{key}", "c{}.b"]),
        (pa.dictionary(pa.int8(), LASTS), ["c"]),
    ],
)
def test_types_that_parquet_has_no_name_for_are_found(kind: pa.DataType, paths: list[str]) -> None:
    assert [path for path, _ in unseen(pa.schema([("n", pa.int64()), ("c", kind)]))] == paths
