import zlib

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from filer.format.slot_columns import slots_of
from filer.slots import SLOTS, equal_ranges, slot_of, tile_exactly

KEYS = st.lists(st.none() | st.binary(max_size=10) | st.binary(min_size=60, max_size=70) | st.binary(max_size=300))


def expected(keys: list[bytes | None], null_slot: int) -> list[int]:
    return [null_slot if key is None else zlib.crc32(key) & 0xFFFF for key in keys]


@given(KEYS, st.integers(0, SLOTS - 1))
def test_slots_are_the_low_half_of_crc32(keys: list[bytes | None], null_slot: int) -> None:
    assert slots_of(pa.array(keys, pa.binary()), null_slot=null_slot).tolist() == expected(keys, null_slot)
    assert [slot_of(key) for key in keys if key is not None] == expected([k for k in keys if k is not None], 0)


@given(KEYS, st.integers(0, 20), st.integers(0, 20))
def test_slices_count_from_their_own_start(keys: list[bytes | None], start: int, length: int) -> None:
    part = pa.array(keys, pa.binary()).slice(start, length)
    assert slots_of(part, null_slot=7).tolist() == expected(keys[start : start + length], 7)


@given(st.lists(st.none() | st.text(max_size=100)))
def test_strings_are_hashed_as_utf8(keys: list[str | None]) -> None:
    encoded = [None if key is None else key.encode() for key in keys]
    assert slots_of(pa.array(keys, pa.string()), null_slot=1).tolist() == expected(encoded, 1)


@given(KEYS, st.integers(0, 20))
def test_large_types_are_hashed_alike(keys: list[bytes | None], start: int) -> None:
    large = pa.array(keys, pa.large_binary()).slice(start)
    assert slots_of(large, null_slot=5).tolist() == expected(keys[start:], 5)
    texts = [None if key is None else key.hex() for key in keys]
    text_slots = slots_of(pa.array(texts, pa.large_string()), null_slot=5).tolist()
    assert text_slots == expected([None if text is None else text.encode() for text in texts], 5)


def test_keys_without_a_byte() -> None:
    assert slots_of(pa.nulls(3, pa.binary()), null_slot=9).tolist() == [9, 9, 9]
    assert slots_of(pa.array([b"", b""]), null_slot=9).tolist() == [0, 0]
    assert slots_of(pa.array([], pa.binary()), null_slot=9).tolist() == []


def test_every_length_around_the_columnwise_limit() -> None:
    keys = [bytes([length % 251]) * length for length in range(200)]
    assert slots_of(pa.array(keys), null_slot=0).tolist() == expected(keys, 0)


def test_nulls_hide_what_lies_under_them() -> None:
    buffers = pa.array([b"abc", b"defg"]).buffers()
    array = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), *buffers[1:]])
    assert slots_of(array, null_slot=3).tolist() == [3, zlib.crc32(b"defg") & 0xFFFF]


def test_real_keys_spread_evenly() -> None:
    slots = slots_of(pa.array([b"user-%d" % n for n in range(20_000)]), null_slot=0)
    counts = np.bincount(slots // (SLOTS // 8), minlength=8)
    assert counts.min() > 2300


@given(st.integers(1, 5000))
def test_equal_ranges_tile(parts: int) -> None:
    ranges = equal_ranges(parts)
    assert len(ranges) == parts
    assert tile_exactly(ranges)
    widths = {stop - start for start, stop in ranges}
    assert max(widths) - min(widths) <= 1


def test_tiling_is_exact() -> None:
    assert tile_exactly([(30, SLOTS), (0, 30)])
    for ranges in ([], [(0, 30)], [(0, 30), (31, SLOTS)], [(0, 31), (30, SLOTS)], [(0, SLOTS), (0, SLOTS)]):
        assert not tile_exactly(ranges)
    assert not tile_exactly([(0, 30), (30, 30), (30, SLOTS)])
    assert not tile_exactly([(0, SLOTS), (SLOTS, SLOTS + 5)])
