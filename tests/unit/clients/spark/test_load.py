import pyarrow as pa

from braidmq.spark.load import by_part


def batch(*parts: int) -> pa.RecordBatch:
    return pa.record_batch({"_part": pa.array(parts, pa.int32()), "value": [str(part) for part in parts]})


def test_batches_are_cut_where_the_part_changes() -> None:
    batches = iter([batch(0, 0, 1), batch(), batch(1), batch(2, 2)])
    found = [(part, rows.to_pydict()) for part, rows in by_part(batches)]
    assert found == [
        (0, {"value": ["0", "0"]}),
        (1, {"value": ["1"]}),
        (1, {"value": ["1"]}),
        (2, {"value": ["2", "2"]}),
    ]
