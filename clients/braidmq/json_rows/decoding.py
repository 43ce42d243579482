"""JSON objects as a table again, by a schema (docs/json-rows.md). What `encoding.py` wrote comes back unchanged."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from datetime import date, time
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from braidmq.errors import InvalidArgument
from braidmq.json_rows.encoding import UNIT_NS
from braidmq.json_rows.plain import is_list, is_uuid, plain_type
from braidmq.json_rows.refusal import Refusal, shown
from filer.times import EARLIEST_US, LATEST_US

Values = Sequence[Any]
"""The values of a column as the JSON parser returns them."""

_TOO_LARGE = {16: 65_520.0, 32: 2.0**128 - 2.0**103, 64: float("inf")}
"""From here on a number is rounded to infinity. The shortest digits of the largest number may lie above it."""
_FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
_MOST_SECONDS_DIGITS = 20
_EPOCH = date(1970, 1, 1)
_DAY_NS = 86_400 * 10**9
_UUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DATE_FORM = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME_FORM = "[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.](?P<fraction>[0-9]{1,9}))?"
_DATE = re.compile(_DATE_FORM)
_TIME = re.compile(_TIME_FORM)
_TIMESTAMP = re.compile(f"(?P<date>{_DATE_FORM})[Tt ](?P<time>{_TIME_FORM})(?P<offset>[Zz]|[+-][0-9]{{2}}:[0-9]{{2}})?")
_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def rows_from_json(values: Any, schema: pa.Schema, *, first_row: int = 0) -> pa.Table:
    """The rows of these JSON objects: an array of text or bytes, chunked or not.

    A member that is missing is null, and members that the schema does not name are left out. A null is a row of nulls.
    Raises `InvalidArgument`, with the column and the row, for a text that is no JSON object, for a value that is not of
    the column's type, and for a null in a field that may have none. Rows are counted from `first_row`.
    """
    try:
        return read_rows(values, schema)
    except Refusal as refusal:
        refusal.raise_for(refusal.column, first_row)


def read_rows(values: Any, schema: pa.Schema) -> pa.Table:
    """As `rows_from_json`, but raises `Refusal`, which names its column."""
    parse = _exactly if any(map(_needs_digits, schema.types)) else orjson.loads
    name = None
    try:
        rows = [_row(index, text, parse) for index, text in enumerate(values.to_pylist())]
        columns = []
        for field in schema:
            name = field.name
            columns.append(_field([row.get(name) for row in rows], field))
    except Refusal as refusal:
        refusal.column = name
        raise
    except pa.ArrowException as error:
        raise InvalidArgument(f"column {name!r}: the values do not fit its type: {error}") from error
    return pa.Table.from_arrays(columns, schema=schema)


def _row(index: int, text: "bytes | str | None", parse: Callable[[Any], Any]) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        row = parse(text)
    except (ValueError, RecursionError) as error:
        raise Refusal(index, f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise Refusal(index, f"{shown(row)} is not a JSON object")
    return row


def _exactly(text: "bytes | str") -> Any:
    return json.loads(text, parse_float=Decimal, parse_constant=_no_constant)


def _no_constant(name: str) -> Any:
    raise ValueError(f"JSON has no number {name}")


def _needs_digits(kind: pa.DataType) -> bool:
    """Whether a type keeps digits that a double does not."""
    if pa.types.is_decimal(kind) or pa.types.is_duration(kind):
        return True
    if pa.types.is_dictionary(kind):
        return _needs_digits(kind.value_type)
    return any(_needs_digits(kind.field(index).type) for index in range(kind.num_fields))


def _field(values: Values, field: pa.Field, counts: "npt.NDArray[np.bool_] | None" = None) -> Any:
    """The array of a field. Values in a null row around it do not count: they may be null in any case."""
    array = _array(values, field.type)
    if not field.nullable and array.null_count:
        missing = np.asarray(array.is_null()) if counts is None else np.asarray(array.is_null()) & counts
        if missing.any():
            why = "null or missing, but the schema says that the field has no nulls"
            raise Refusal(int(np.flatnonzero(missing)[0]), why)
    return array


def _array(values: Values, kind: pa.DataType) -> Any:
    """An array of that type. Raises `Refusal`."""
    if pa.types.is_dictionary(kind):
        return _dictionary(_array(values, kind.value_type), kind)
    if isinstance(kind, pa.Bool8Type):
        return pa.ExtensionArray.from_storage(kind, _array(values, pa.bool_()).cast(pa.int8()))
    if isinstance(kind, pa.BaseExtensionType) and not is_uuid(kind):
        return pa.ExtensionArray.from_storage(kind, _array(values, kind.storage_type))
    if pa.types.is_run_end_encoded(kind):
        return _run_ends(_array(values, kind.value_type), kind)
    simple = plain_type(kind)
    if is_list(simple):
        return _lists(values, simple)
    if pa.types.is_struct(simple):
        return _structs(values, simple)
    if pa.types.is_map(simple):
        return _maps(values, simple)
    for is_of, convert in _WAYS:
        if is_of(simple):
            return _built(_converted(values, partial(convert, kind=simple)), simple, kind)
    raise Refusal(0, f"type {kind} has no form in JSON: use another one")


def _dictionary(array: Any, kind: Any) -> Any:
    """The values by a dictionary of the distinct ones; of all, if Arrow cannot compare them."""
    try:
        return array.dictionary_encode().cast(kind)
    except pa.ArrowNotImplementedError:
        indices = pa.array(np.arange(len(array)), kind.index_type, mask=np.asarray(array.is_null()))
        return pa.DictionaryArray.from_arrays(indices, array, ordered=kind.ordered)


def _run_ends(array: Any, kind: Any) -> Any:
    """The values by their runs; each as a run of its own, if Arrow cannot compare them."""
    try:
        return pc.run_end_encode(array, kind.run_end_type)
    except pa.ArrowNotImplementedError:
        ends = pa.array(np.arange(1, len(array) + 1), kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, array, kind)


def _converted(values: Values, convert: Callable[[Any], Any]) -> list[Any]:
    """The values as pyarrow accepts them. `convert` raises `ValueError`, which says what would be right."""
    converted = []
    for index, value in enumerate(values):
        try:
            converted.append(None if value is None else convert(value))
        except (ValueError, OverflowError) as error:
            raise Refusal(index, f"{shown(value)} is not {error}") from error
    return converted


def _built(converted: list[Any], simple: pa.DataType, kind: pa.DataType) -> Any:
    """The array. If a value does not fit the type, the values are tried one by one to find it."""
    try:
        return _cast(pa.array(converted, simple), kind)
    except (pa.ArrowException, OverflowError, ValueError):
        for index, value in enumerate(converted):
            try:
                _cast(pa.array([value], simple), kind)
            except (pa.ArrowException, OverflowError, ValueError) as error:
                raise Refusal(index, f"{shown(value)} does not fit type {kind}: {error}") from error
        raise


def _cast(array: Any, kind: pa.DataType) -> Any:
    return array if array.type == kind else array.cast(kind)


def _lists(values: Values, kind: pa.DataType) -> Any:
    if pa.types.is_fixed_size_list(kind):
        return _fixed_size_lists(values, kind)
    lists = _converted(values, _list)
    items = _inner([item for each in lists if each is not None for item in each], kind.value_field, "[]", lists)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(_offsets(lists), items, kind, mask=_is_null(lists))
    if pa.types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(_offsets(lists), items, kind, mask=_is_null(lists))
    layout, offset = (
        (pa.LargeListViewArray, pa.int64()) if pa.types.is_large_list_view(kind) else (pa.ListViewArray, pa.int32())
    )
    offsets = _offsets(lists)
    sizes = pc.subtract(offsets[1:], offsets[:-1])
    return layout.from_arrays(offsets[:-1].cast(offset), sizes.cast(offset), items, kind, mask=_is_null(lists))


def _fixed_size_lists(values: Values, kind: pa.DataType) -> Any:
    size = kind.list_size

    def of_size(value: Any) -> list[Any]:
        if len(_list(value)) != size:
            raise ValueError(f"a JSON array of {size} items")
        return _list(value)

    lists = _converted(values, of_size)
    full = [each or [None] * size for each in lists]
    items = _inner(
        [item for each in full for item in each], kind.value_field, "[]", full, np.repeat(_there(lists), size)
    )
    if not size:
        # Arrow divides by the size to learn how many lists there are.
        return pa.array(lists, kind)
    return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=_is_null(lists))


def _structs(values: Values, kind: pa.DataType) -> Any:
    rows = _converted(values, _object)
    columns = []
    for field in kind:
        try:
            columns.append(_field([None if row is None else row.get(field.name) for row in rows], field, _there(rows)))
        except Refusal as refusal:
            raise refusal.below(f".{field.name}") from refusal
    if not columns:
        return pa.array([None if row is None else {} for row in rows], kind)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=_is_null(rows))


def _maps(values: Values, kind: pa.DataType) -> Any:
    """Maps: an object if the keys are text, else a list of pairs."""
    of_text = pa.types.is_string(plain_type(kind.key_type))
    maps = _converted(values, _entries if of_text else _pairs)
    entries = [entry for each in maps if each is not None for entry in each]
    keys = _inner([key for key, _ in entries], kind.key_field, "{key}", maps)
    items = _inner([item for _, item in entries], kind.item_field, "{}", maps)
    return pa.MapArray.from_arrays(_offsets(maps), keys, items, kind, mask=_is_null(maps))


def _inner(
    values: Values,
    field: pa.Field,
    step: str,
    outer: "list[list[Any]] | list[list[Any] | None]",
    counts: "npt.NDArray[np.bool_] | None" = None,
) -> Any:
    try:
        return _field(values, field, counts)
    except Refusal as refusal:
        indexes = np.repeat(np.arange(len(outer)), [len(each or ()) for each in outer])
        raise refusal.within(step, indexes) from refusal


def _there(values: Sequence[Any]) -> "npt.NDArray[np.bool_]":
    return np.array([value is not None for value in values], np.bool_)


def _offsets(lists: "list[list[Any] | None]") -> Any:
    return pa.array(np.concatenate([[0], np.cumsum([len(each or ()) for each in lists])]), pa.int32())


def _is_null(values: Sequence[Any]) -> Any:
    return pa.array([value is None for value in values], pa.bool_())


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    raise ValueError("a JSON array")


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError("a JSON object")


def _entries(value: Any) -> list[tuple[str, Any]]:
    return list(_object(value).items())


def _pairs(value: Any) -> list[Any]:
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return value
    raise ValueError("a JSON array of pairs, which a map is whose keys are not text")


def _boolean(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("true or false")


def _integer(value: Any, kind: pa.DataType) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("a whole number")


def _floating(value: Any, kind: pa.DataType) -> float:
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError("a number")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if abs(number) >= _TOO_LARGE[kind.bit_width]:
        raise ValueError(f"a number that type {kind} has")
    return number if kind.bit_width == 64 else _nearest(number, kind)


def _nearest(number: float, kind: pa.DataType) -> float:
    """The number of that narrower type whose shortest digits were read as `number`, or else the nearest one.

    A double halfway between two numbers of the type may come from the digits of either (`7.038531e-26`).
    """
    narrow = _FLOATS[kind.bit_width]
    nearest = narrow(number)
    if float(nearest) == number:
        return number
    with np.errstate(over="ignore"):
        neighbours = [np.nextafter(nearest, narrow(towards)) for towards in ("inf", "-inf")]
    for neighbour in neighbours:
        halfway = (float(nearest) + float(neighbour)) / 2
        if halfway == number and float(str(neighbour)) == number:
            return float(neighbour)
    return float(nearest)


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return Decimal(value)
    raise ValueError("a number")


def _string(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("text")


def _binary(value: Any, kind: pa.DataType) -> bytes:
    try:
        return base64.b64decode(_string(value, kind), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("base64") from error


def _uuid(value: Any, kind: pa.DataType) -> bytes:
    if _UUID.fullmatch(_string(value, kind)) is None:
        raise ValueError("a UUID")
    return bytes.fromhex(value.replace("-", ""))


def _date(value: Any, kind: pa.DataType) -> date:
    try:
        if _DATE.fullmatch(_string(value, kind)) is not None:
            return date.fromisoformat(value)
    except ValueError as error:
        raise ValueError("a date such as 2024-01-31") from error
    raise ValueError("a date such as 2024-01-31")


def _time(value: Any, kind: pa.DataType) -> int:
    match = _TIME.fullmatch(_string(value, kind))
    if match is None:
        raise ValueError("a time such as 23:59:59.000000, without an offset")
    return _in_unit(_time_ns(match[0], match["fraction"]), kind)


def _timestamp(value: Any, kind: pa.DataType) -> int:
    """Counts of the type's unit since the epoch, as its integers."""
    match = _TIMESTAMP.fullmatch(_string(value, kind))
    if match is None or (match["offset"] is None) != (kind.tz is None):
        form = "2024-01-31T23:59:59.000000" + ("" if kind.tz is None else "Z")
        raise ValueError(f"a time such as {form}, {'without' if kind.tz is None else 'with'} an offset")
    try:
        days = (date.fromisoformat(match["date"]) - _EPOCH).days
        moment_ns = days * _DAY_NS + _time_ns(match["time"], match["fraction"]) - _offset_ns(match["offset"])
    except ValueError as error:
        raise ValueError(f"a time of RFC 3339: {error}") from error
    if not EARLIEST_US * 1000 <= moment_ns < (LATEST_US + 1) * 1000:
        raise ValueError("within the years 1 to 9999 of UTC")
    return _in_unit(moment_ns, kind)


def _time_ns(text: str, fraction: str | None) -> int:
    """The nanoseconds since midnight. Raises `ValueError`."""
    try:
        at = time.fromisoformat(text[:8])
    except ValueError as error:
        raise ValueError(f"a time of the day: {error}") from error
    return ((at.hour * 60 + at.minute) * 60 + at.second) * 10**9 + int((fraction or "").ljust(9, "0"))


def _offset_ns(text: str | None) -> int:
    """How far local time is ahead of UTC. Raises `ValueError` for a day and more."""
    if text is None or text in "Zz":
        return 0
    at = time.fromisoformat(text[1:])
    offset_ns = (at.hour * 60 + at.minute) * 60 * 10**9
    return -offset_ns if text[0] == "-" else offset_ns


def _duration(value: Any, kind: pa.DataType) -> int:
    seconds = _decimal(value, kind)
    # Beyond that, an exponent of a few digits would make a number of a billion.
    if seconds and abs(seconds.adjusted()) > _MOST_SECONDS_DIGITS:
        raise ValueError(f"a number of seconds that type {kind} has")
    nanoseconds = seconds.scaleb(9)
    if nanoseconds != nanoseconds.to_integral_value():
        raise ValueError("a number of seconds with at most nine digits after the point")
    return _in_unit(int(nanoseconds), kind)


def _in_unit(nanoseconds: int, kind: pa.DataType) -> int:
    count, rest = divmod(nanoseconds, UNIT_NS[kind.unit])
    if rest:
        raise ValueError(f"a whole number of {kind.unit}, the unit of type {kind}")
    return count


_WAYS: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Any]], ...] = (
    (pa.types.is_null, lambda value, kind: value),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _string),
    (is_uuid, _uuid),
    (pa.types.is_binary, _binary),
    (pa.types.is_date, _date),
    (pa.types.is_time, _time),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_duration, _duration),
)
