from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from braidmq.json_rows.decoding import rows_from_json
from braidmq.json_rows.encoding import rows_to_json
from tests.support.rows.arrow_tables import tables


@given(tables())
def test_any_table_comes_back_from_its_json_unchanged(table: pa.Table) -> None:
    texts = rows_to_json(table)
    again = rows_from_json(texts, table.schema)
    assert again.equals(table)
    assert rows_to_json(again).equals(texts)
    for each in texts.to_pylist():
        orjson.loads(each)


@given(tables())
def test_a_part_of_a_table_has_the_same_json(table: pa.Table) -> None:
    texts = rows_to_json(table).to_pylist()
    for row in range(table.num_rows):
        assert rows_to_json(table.slice(row, 1)).to_pylist() == [texts[row]]


def _run_ends(values: Any, kind: Any = None) -> Any:
    """Each of the values twice, as one run."""
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(2, 2 * len(array) + 1, 2), pa.int16()), array)


def _dictionary(values: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0, None, 0], pa.int8()), values)


LAYOUTS: dict[str, Any] = {
    "lists without items": pa.array([[], None], pa.list_(pa.int8(), 0)),
    "list views": pa.array([["x", None], None, []], pa.list_view(pa.string())),
    "large list views": pa.array([[1], None, []], pa.large_list_view(pa.int8())),
    "list views that overlap": pa.ListViewArray.from_arrays([0, 0, 1], [2, 1, 1], pa.array([1, 2])),
    "large lists of views": pa.array([[b"x"], None], pa.large_list(pa.binary_view())),
    "run ends of views": _run_ends(["x", None], pa.string_view()),
    "a part of run ends": _run_ends(["x", None, "y"], pa.binary_view()).slice(1, 4),
    "run ends of a dictionary": _run_ends(pa.array(["x", "y"]).dictionary_encode()),
    "run ends of structs": _run_ends([{"a": 1}, None]),
    "a dictionary of structs": _dictionary(pa.array([{"a": 1}])),
    "a dictionary of lists": _dictionary(pa.array([[1, None]])),
    "a dictionary of large decimals": _dictionary(pa.array([Decimal("1." + "2" * 40)], pa.decimal256(60, 40))),
    "a dictionary with a null": _dictionary(pa.nulls(1, pa.string())),
    "chunks with dictionaries of their own": pa.chunked_array(
        [pa.array(["x", "y"]).dictionary_encode(), pa.array(["z"]).dictionary_encode()]
    ),
    "the largest and smallest singles": pa.array([3.4028235e38, -3.4028235e38, 1e-45], pa.float32()),
    "the largest halves": pa.array([65_504.0, 0.1, 6e-8], pa.float16()),
    "bits that are not 1": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([5, 0, None], pa.int8())),
}


@pytest.mark.parametrize("column", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_comes_back_with_the_same_values(column: Any) -> None:
    table = pa.table({"c": column})
    again = rows_from_json(rows_to_json(table), table.schema)
    again.validate(full=True)
    assert again.schema == table.schema
    assert again.to_pylist() == table.to_pylist()


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
@example([0x15AE43FD])  # its shortest digits, read as a double, lie halfway to the next single
def test_each_single_comes_back_bit_by_bit(bits: list[int]) -> None:
    numbers = np.array(bits, np.uint32).view(np.float32)
    table = pa.table({"c": pa.array(numbers[np.isfinite(numbers)])})
    again = rows_from_json(rows_to_json(table), table.schema)["c"].to_numpy()
    assert again.view(np.uint32).tolist() == table["c"].to_numpy().view(np.uint32).tolist()
