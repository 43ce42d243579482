"""Any Arrow table that has a form in JSON, for property tests."""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from filer.times import EARLIEST_US, LATEST_US

_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_NS = 86_400 * 10**9
_INT64 = st.integers(-(2**63), 2**63 - 1)
_BINARIES: tuple[pa.DataType, ...] = (pa.binary(), pa.large_binary(), pa.binary_view())
_STRINGS: tuple[pa.DataType, ...] = (pa.string(), pa.large_string(), pa.string_view())
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8)


def tables(types: st.SearchStrategy[pa.DataType] | None = None, *, min_rows: int = 0) -> st.SearchStrategy[pa.Table]:
    """Tables of one to four columns and up to eight rows, of any type and any values, null ones included."""
    columns = st.dictionaries(NAMES, arrow_types() if types is None else types, min_size=1, max_size=4)
    return columns.flatmap(lambda kinds: _tables_of(kinds, min_rows))


def _tables_of(columns: dict[str, pa.DataType], min_rows: int) -> st.SearchStrategy[pa.Table]:
    def table(rows: list[tuple[Any, ...]]) -> pa.Table:
        arrays = [array_of([row[index] for row in rows], kind) for index, kind in enumerate(columns.values())]
        return pa.table(dict(zip(columns, arrays, strict=True)))

    return st.lists(st.tuples(*map(values_of, columns.values())), min_size=min_rows, max_size=8).map(table)


def arrow_types() -> st.SearchStrategy[pa.DataType]:
    """Every kind of type that has a form in JSON."""
    return st.recursive(leaf_types(), nested_types, max_leaves=4)


def leaf_types() -> st.SearchStrategy[pa.DataType]:
    """Types without others in them."""
    plain: list[pa.DataType] = [
        *(pa.null(), pa.bool_(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.uuid(), pa.bool8()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(*_BINARIES, *_STRINGS, pa.binary(3), pa.dictionary(pa.int32(), pa.string()), pa.json_()),
        *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    ]
    units = st.sampled_from(list(_UNIT_NS))
    return st.one_of(
        st.sampled_from(plain),
        units.map(pa.duration),
        st.tuples(units, st.sampled_from([None, "UTC", "Europe/Paris"])).map(lambda each: pa.timestamp(*each)),
        st.integers(1, 38).flatmap(
            lambda digits: st.integers(0, digits).map(lambda scale: pa.decimal128(digits, scale))
        ),
        st.just(pa.decimal256(60, 12)),
    )


def nested_types(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    """Lists, structs and maps of others."""
    fields = st.dictionaries(NAMES, inner, max_size=3)
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.list_(kind, 2)),
        fields.map(lambda kinds: pa.struct(list(kinds.items()))),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        inner.map(lambda kind: pa.map_(pa.int16(), kind)),
    )


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type as `array_of` takes them. Times and durations are counts of the type's unit."""
    return st.none() | _present_values_of(kind)


def _present_values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_null(kind):
        return st.none()
    for is_of, values in _VALUES:
        if is_of(kind):
            return values(kind)
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    if pa.types.is_map(kind):
        entries = st.tuples(_present_values_of(kind.key_type), values_of(kind.item_type))
        return st.lists(entries, max_size=3, unique_by=lambda entry: entry[0])
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    return st.lists(values_of(kind.value_type), min_size=size or 0, max_size=3 if size is None else size)


def array_of(values: list[Any], kind: pa.DataType) -> Any:
    """An array of values as `values_of` makes them."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    if pa.types.is_struct(kind):
        there = [{} if value is None else value for value in values]
        columns = [array_of([value.get(field.name) for value in there], field.type) for field in kind]
        mask = pa.array([value is None for value in values], pa.bool_())
        if not columns:
            return pa.array(values, kind)
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        entries = [entry for value in values for entry in value or ()]
        keys = array_of([key for key, _ in entries], kind.key_type)
        items = array_of([item for _, item in entries], kind.item_type)
        return pa.MapArray.from_arrays(_offsets(values), keys, items, kind, mask=_mask(values))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = array_of([item for value in values for item in value or ()], kind.value_type)
        layout = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
        return layout.from_arrays(_offsets(values), items, kind, mask=_mask(values))
    if pa.types.is_fixed_size_list(kind):
        full = [[None] * kind.list_size if value is None else value for value in values]
        items = array_of([item for value in full for item in value], kind.value_type)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=_mask(values))
    return pa.array(values, kind)


def _offsets(values: list[Any]) -> Any:
    return pa.array(np.concatenate([[0], np.cumsum([len(value or ()) for value in values])]), pa.int32())


def _mask(values: list[Any]) -> Any:
    return pa.array([value is None for value in values], pa.bool_())


def _times_of_day(kind: pa.DataType) -> st.SearchStrategy[Any]:
    return st.integers(0, _DAY_NS // _UNIT_NS[kind.unit] - 1)


def _timestamps(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind.unit == "ns":
        return _INT64
    per_us = _UNIT_NS[kind.unit] // 1000
    return st.integers(-(-EARLIEST_US // per_us), LATEST_US // per_us)


def _decimals(kind: pa.DataType) -> st.SearchStrategy[Any]:
    most = 10**kind.precision - 1
    return st.integers(-most, most).map(
        lambda digits: Decimal((digits < 0, tuple(map(int, str(abs(digits)))), -kind.scale))
    )


def _integers(kind: pa.DataType) -> st.SearchStrategy[Any]:
    bits = kind.bit_width
    signed = pa.types.is_signed_integer(kind)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


def _is_binary(kind: pa.DataType) -> bool:
    return kind in _BINARIES


def _is_string(kind: pa.DataType) -> bool:
    return kind in _STRINGS or pa.types.is_dictionary(kind)


_VALUES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], st.SearchStrategy[Any]]], ...] = (
    (pa.types.is_boolean, lambda _: st.booleans()),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, lambda kind: st.floats(allow_nan=False, allow_infinity=False, width=kind.bit_width)),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_date, lambda _: st.dates(date(1, 1, 1), date(9999, 12, 31))),
    (pa.types.is_time, _times_of_day),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_duration, lambda _: _INT64),
    (_is_string, lambda _: st.text(max_size=8)),
    (_is_binary, lambda _: st.binary(max_size=8)),
    (pa.types.is_fixed_size_binary, lambda kind: st.binary(min_size=kind.byte_width, max_size=kind.byte_width)),
    (lambda kind: isinstance(kind, pa.UuidType), lambda _: st.binary(min_size=16, max_size=16)),
    (lambda kind: isinstance(kind, pa.Bool8Type), lambda _: st.integers(0, 1)),
    (lambda kind: isinstance(kind, pa.BaseExtensionType), lambda _: st.text(max_size=8)),
)
