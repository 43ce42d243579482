"""Nulls of an array, of slices of it and of one that has none."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from filer.nulls import nulls_of


@given(st.lists(st.none() | st.integers(0, 9), max_size=40), st.integers(0, 40))
def test_as_arrow_has_it(values: list[int | None], start: int) -> None:
    array = pa.array(values, pa.int64()).slice(min(start, len(values)))
    assert nulls_of(array).tolist() == array.is_null().to_pylist()
    assert (
        nulls_of(array.slice(0, len(array) // 2)).tolist()
        == [each is None for each in array.to_pylist()][: len(array) // 2]
    )
