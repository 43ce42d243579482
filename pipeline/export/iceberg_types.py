"""The types of columns in an Iceberg table: the same values, by types that Iceberg has.

A type whose values Iceberg cannot store exactly is refused; the error names the column.
"""

from collections.abc import Callable

import pyarrow as pa

from pipeline.errors import JobFailed

_INSTANT, _WALL_CLOCK, _TIME = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.time64("us")
_UINT64 = pa.decimal128(20, 0)
_MOST_DIGITS = 38
Kind = Callable[[pa.DataType], bool]


def read_types(schema: pa.Schema) -> pa.Schema:
    """Return the types to read values by: no unit is finer than Iceberg's, so more digits do not fit."""
    return _each(schema, _read_type)


def stored_types(schema: pa.Schema) -> pa.Schema:
    """Return Iceberg's types for the values of `read_types`. Raises `JobFailed`, which names the column."""
    return _each(schema, _stored_type)


def _each(schema: pa.Schema, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    fields = []
    for field in schema:
        try:
            fields.append(pa.field(field.name, _changed(field.type, leaf), nullable=field.nullable))
        except ValueError as error:
            raise JobFailed(f"--schema: column {field.name!r}: {error}") from error
    return pa.schema(fields)


def _changed(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type with each of its leaves changed. How values are encoded in memory does not count."""

    def inner(field: pa.Field) -> pa.Field:
        return pa.field(field.name, _changed(field.type, leaf), nullable=field.nullable)

    if isinstance(kind, pa.UuidType):
        return kind
    if isinstance(kind, pa.Bool8Type):
        return pa.bool_()
    if isinstance(kind, pa.BaseExtensionType):
        return _changed(kind.storage_type, leaf)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _changed(kind.value_type, leaf)
    if pa.types.is_fixed_size_list(kind) and leaf is _read_type:
        return pa.list_(inner(kind.value_field), kind.list_size)
    if any(is_of(kind) for is_of in _LISTS):
        return pa.list_(inner(kind.value_field))
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise ValueError("Iceberg has no struct without fields")
        return pa.struct([inner(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field))
    return leaf(kind)


_LISTS: tuple[Kind, ...] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def _read_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time64(kind):
        return _TIME
    return kind


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Return Iceberg's type. Raises `ValueError` if Iceberg has none."""
    if pa.types.is_timestamp(kind):
        # An instant is the same in every zone, and Iceberg has it in UTC.
        return _WALL_CLOCK if kind.tz is None else _INSTANT
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    for is_of, stored in _STORED:
        if is_of(kind):
            return stored
    if pa.types.is_fixed_size_binary(kind):
        return kind
    advice = "decimal(38,9) has the seconds of it exactly" if pa.types.is_duration(kind) else "use another one"
    raise ValueError(f"Iceberg has no type for {kind}: {advice}")


_STORED: tuple[tuple[Kind, pa.DataType], ...] = (
    (pa.types.is_boolean, pa.bool_()),
    (pa.types.is_uint64, _UINT64),
    (lambda kind: pa.types.is_uint32(kind) or pa.types.is_int64(kind), pa.int64()),
    (pa.types.is_integer, pa.int32()),
    (pa.types.is_float64, pa.float64()),
    (pa.types.is_floating, pa.float32()),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), pa.string()),
    (pa.types.is_string_view, pa.string()),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_date, pa.date32()),
    (pa.types.is_time, _TIME),
)


def _decimal(kind: pa.DataType) -> pa.DataType:
    """Return it with a scale from 0 to the precision, as Iceberg has it."""
    scale = max(kind.scale, 0)
    precision = max(kind.precision + scale - kind.scale, scale)
    if precision > _MOST_DIGITS:
        raise ValueError(f"Iceberg has no decimals of more than {_MOST_DIGITS} digits, and {kind} has {precision}")
    return pa.decimal128(precision, scale)
