import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from filer.format.schema import MessageSchema
from filer.slots import SLOTS, equal_ranges, slot_of
from mq.topic.routing import Route

KEYS = st.lists(st.none() | st.binary(max_size=6), min_size=1, max_size=200)


def rows(keys: list[bytes | None]) -> pa.RecordBatch:
    columns = [
        {"key": key, "value": b"%d" % n, "headers": [("n", b"x")] if n % 3 else None} for n, key in enumerate(keys)
    ]
    return pa.RecordBatch.from_pylist(columns, schema=MessageSchema.of().rows)


@given(KEYS, st.integers(1, 12), st.integers(0, SLOTS - 1))
def test_each_row_goes_where_its_key_says_in_order(keys: list[bytes | None], parts: int, null_slot: int) -> None:
    ranges = equal_ranges(parts)
    route = Route([(10 + n, start, None) for n, (start, _) in enumerate(ranges)])
    assert route.ids == list(range(10, 10 + parts))
    shares = route.cut(rows(keys), null_slot=null_slot)
    assert [index for index, _ in shares] == sorted({index for index, _ in shares})
    seen: list[int] = []
    for index, cut in shares:
        (start, stop), share = ranges[index], cut.batch()
        numbers = [int(value) for value in share["value"].to_pylist()]
        assert numbers == sorted(numbers)
        assert share["key"].to_pylist() == [keys[n] for n in numbers]
        assert share["headers"].to_pylist() == [[("n", b"x")] if n % 3 else None for n in numbers]
        for n in numbers:
            key = keys[n]
            slot = null_slot if key is None else slot_of(key)
            assert start <= slot < stop
            assert route.segment_index(slot) == index
        seen += numbers
    assert sorted(seen) == list(range(len(keys)))


@given(KEYS, st.integers(0, 50), st.integers(1, 50))
def test_slices_are_cut_like_copies(keys: list[bytes | None], start: int, length: int) -> None:
    whole = rows(keys)
    part = whole.slice(start, length)
    if part.num_rows:
        route = Route([(n, begin, None) for n, (begin, _) in enumerate(equal_ranges(4))])
        copy = rows(keys[start : start + length])
        cut = [(index, share.batch()["key"].to_pylist()) for index, share in route.cut(part, null_slot=5)]
        assert cut == [(index, share.batch()["key"].to_pylist()) for index, share in route.cut(copy, null_slot=5)]
