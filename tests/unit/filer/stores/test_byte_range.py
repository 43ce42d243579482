from hypothesis import given
from hypothesis import strategies as st

from filer.stores.byte_range import resolve_range


@given(st.integers(-30, 30), st.none() | st.integers(0, 30), st.binary(max_size=20))
def test_range_is_what_a_slice_would_be(start: int, stop: int | None, data: bytes) -> None:
    first, last = resolve_range(start, stop, len(data))
    assert 0 <= first <= last <= len(data)
    assert data[first:last] == data[start:stop]
