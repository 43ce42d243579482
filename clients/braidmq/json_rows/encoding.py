"""Tables as JSON texts, column by column (docs/json-rows.md).

Values in tables repeat. So each column of text, bytes or decimals is dictionary-encoded, Python converts its distinct
values, and Arrow joins the columns to rows. A hundred thousand rows of twenty columns take a fraction of a second.
"""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from braidmq.errors import InvalidArgument
from braidmq.json_rows.plain import is_list, is_uuid, plain, plain_type
from braidmq.json_rows.refusal import Refusal, shown
from braidmq.json_rows.texts import NonFinite, decimal_text, duration_text, non_finite_name
from filer.times import EARLIEST_US, LATEST_US

Texts = Any
"""An array of JSON texts, as binary."""

UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY_US = 86_400 * 10**6
_EARLIEST_DAY, _LATEST_DAY = EARLIEST_US // DAY_US, LATEST_US // DAY_US
_OUTSIDE = "lies outside the years 1 to 9999, which are those that JSON readers know"
_NULL = b"null"


def rows_to_json(table: pa.Table, *, non_finite: NonFinite = "refuse", first_row: int = 0) -> Texts:
    """Each row as a JSON object of all columns. Rows are counted from `first_row` in errors.

    Raises `InvalidArgument` for a value that would not keep its meaning, and for a table that has no columns, or two of
    one name.
    """
    if not table.num_columns:
        raise InvalidArgument("a table without columns has no values to send")
    try:
        _check_names(table.column_names, "columns")
    except Refusal as refusal:
        raise InvalidArgument(refusal.why) from refusal
    columns = [
        json_values(table.column(index), name, non_finite=non_finite, first_row=first_row)
        for index, name in enumerate(table.column_names)
    ]
    return _objects(table.column_names, columns)


def json_values(column: Any, name: str | None = None, *, non_finite: NonFinite = "refuse", first_row: int = 0) -> Texts:
    """Each value of a column (an array or a chunked one) as JSON; nulls stay null. Errors as `rows_to_json`."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    try:
        return _Encoder(non_finite).texts(array)
    except Refusal as refusal:
        refusal.raise_for(name, first_row)
    except pa.ArrowException as error:
        what = "the values" if name is None else f"column {name!r}"
        raise InvalidArgument(f"{what} of type {column.type} cannot be written as JSON: {error}") from error


class _Encoder:
    """Encodes arrays of every type; lists, structs and maps by encoding their contents."""

    def __init__(self, non_finite: NonFinite) -> None:
        self._non_finite = non_finite

    def texts(self, array: Any) -> Texts:
        """The values as JSON; nulls stay null. Raises `Refusal`."""
        array = plain(array)
        if array.null_count == len(array):
            return pa.nulls(len(array), pa.binary())
        for is_of, encode in self._ways_of_nested():
            if is_of(array.type):
                texts = encode(array)
                return pc.if_else(array.is_valid(), texts, None) if array.null_count else texts
        return self._leaves(array) if not array.null_count else self._with_nulls(array)

    def _with_nulls(self, array: Any) -> Texts:
        valid = np.asarray(array.is_valid())
        present = np.flatnonzero(valid)
        try:
            texts = self._leaves(array.take(pa.array(present)))
        except Refusal as refusal:
            raise refusal.within("", present) from refusal
        return texts.take(pa.array(np.cumsum(valid) - 1, mask=~valid))

    def _leaves(self, array: Any) -> Texts:
        """As `texts`, for one or more values that are not null, of a type that contains no other."""
        for is_of, encode in self._ways_of_leaves():
            if is_of(array.type):
                return encode(array)
        raise Refusal(0, f"type {array.type} has no form in JSON: cast the column to another one")

    def _ways_of_nested(self) -> "tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Texts]], ...]":
        """The functions for nested types. They take nulls, and write anything in their place."""
        return (
            (is_list, self._lists),
            (pa.types.is_struct, self._structs),
            (pa.types.is_map, self._maps),
        )

    def _ways_of_leaves(self) -> "tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Texts]], ...]":
        return (
            (pa.types.is_boolean, _as_printed),
            (pa.types.is_integer, _as_printed),
            (pa.types.is_floating, self._floats),
            (pa.types.is_string, _strings),
            (pa.types.is_decimal, _decimals),
            (pa.types.is_timestamp, _timestamps),
            (pa.types.is_date, _dates),
            (pa.types.is_time, _times),
            (pa.types.is_duration, _durations),
            (pa.types.is_binary, _binaries),
            (is_uuid, _uuids),
        )

    def _floats(self, array: Any) -> Texts:
        """The shortest digits that yield the same number of the same width again. Halves are written as singles."""
        numbers = np.ascontiguousarray(array.to_numpy(zero_copy_only=False))
        if numbers.dtype == np.float16:
            numbers = numbers.astype(np.float32)
        texts = orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
        for index in np.flatnonzero(~np.isfinite(numbers)).tolist():
            name = non_finite_name(float(numbers[index]))
            if self._non_finite == "refuse":
                raise Refusal(index, f"JSON has no number {name}: replace it, or have it written as null or as text")
            texts[index] = _NULL if self._non_finite == "null" else orjson.dumps(name)
        return pa.array(texts, pa.binary())

    def _lists(self, array: Any) -> Texts:
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0), dtype=np.int64)
        items = self._inner(array.flatten(), "[]", lengths)
        return _bracketed(b"[", _joined(items, lengths), b"]")

    def _structs(self, array: Any) -> Texts:
        names = [field.name for field in array.type]
        _check_names(names, "fields")
        if not names:
            return pa.array([b"{}"] * len(array), pa.binary())
        columns = []
        for name, values in zip(names, array.flatten(), strict=True):
            try:
                columns.append(self.texts(values))
            except Refusal as refusal:
                raise refusal.below(f".{name}") from refusal
        return _objects(names, columns)

    def _maps(self, array: Any) -> Texts:
        """Maps: with keys of text an object, which has each key once; else a list of pairs."""
        keys, values, lengths = _map_entries(array)
        texts = self._inner(keys, "{key}", lengths)
        items = pc.fill_null(self._inner(values, "{}", lengths), _NULL)
        if not pa.types.is_string(plain_type(keys.type)):
            pairs = pc.binary_join_element_wise(b"[", texts, b",", items, b"]", b"")
            return _bracketed(b"[", _joined(pairs, lengths), b"]")
        _refuse_repeated_keys(texts, lengths)
        members = pc.binary_join_element_wise(texts, items, b":")
        return _bracketed(b"{", _joined(members, lengths), b"}")

    def _inner(self, values: Any, step: str, lengths: Any) -> Texts:
        try:
            return self.texts(values)
        except Refusal as refusal:
            raise refusal.within(step, np.repeat(np.arange(len(lengths)), lengths)) from refusal


def _map_entries(array: Any) -> tuple[Any, Any, Any]:
    """The keys, the values, and the number of entries of each map; a null map has none."""
    offsets = np.asarray(array.offsets)
    lengths = np.diff(offsets).astype(np.int64)
    hidden = np.asarray(array.is_null()) & (lengths > 0)
    # Null maps may hold entries. Everything between two such maps counts.
    starts = [offsets[0], *offsets[1:][hidden]]
    stops = [*offsets[:-1][hidden], offsets[-1]]
    keys, items = (
        pa.concat_arrays([each.slice(start, stop - start) for start, stop in zip(starts, stops, strict=True)])
        for each in (array.keys, array.items)
    )
    return keys, items, np.where(hidden, 0, lengths)


def _check_names(names: "list[str]", what: str) -> None:
    """Raises `Refusal`: an object has each name once, and libraries that pass Arrow on cut a name at its NUL."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Refusal(0, f"several {what} are named {name!r}: rename all but one")
        if "\0" in name:
            raise Refusal(0, f"the name {name!r} among the {what} has the character U+0000: rename it")
        seen.add(name)


def _objects(names: "list[str]", columns: "list[Texts]") -> Texts:
    pieces: list[Any] = []
    for index, (name, texts) in enumerate(zip(names, columns, strict=True)):
        pieces.append(pa.scalar((b"," if index else b"{") + orjson.dumps(name) + b":", pa.binary()))
        pieces.append(pc.fill_null(texts, _NULL))
    return pc.binary_join_element_wise(*pieces, b"}", b"")


def _joined(texts: Texts, lengths: Any) -> Texts:
    """Each run of so many texts as one, with commas between them."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, pc.fill_null(texts, _NULL)), b",")


def _bracketed(opening: bytes, texts: Texts, closing: bytes) -> Texts:
    return pc.binary_join_element_wise(opening, texts, closing, b"")


def _refuse_repeated_keys(keys: Texts, lengths: Any) -> None:
    """Raises `Refusal` for a repeated key: an object has each key once."""
    numbers = np.asarray(keys.dictionary_encode().indices)
    maps = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((numbers, maps))
    same = (np.diff(maps[order]) == 0) & (np.diff(numbers[order]) == 0)
    if same.any():
        at = int(order[np.flatnonzero(same)[0]])
        raise Refusal(int(maps[at]), f"the map has the key {keys[at].as_py().decode()} twice, which no object can")


def _as_printed(array: Any) -> Texts:
    return array.cast(pa.string()).cast(pa.binary())


def _by_distinct_value(array: Any, text_of: "Callable[[Any], bytes]") -> Texts:
    """The text of each value, made once for each distinct value. `text_of` raises `ValueError`."""
    encoded = array.dictionary_encode()
    texts = []
    for index, value in enumerate(encoded.dictionary.to_pylist()):
        try:
            texts.append(text_of(value))
        except ValueError as error:
            raise Refusal(pc.index(encoded.indices, index).as_py(), f"{shown(value)}: {error}") from error
    return pa.array(texts, pa.binary()).take(encoded.indices)


def _strings(array: Any) -> Texts:
    return _by_distinct_value(array.cast(pa.binary()), _string)


def _string(data: bytes) -> bytes:
    return orjson.dumps(data.decode())


def _binaries(array: Any) -> Texts:
    return _by_distinct_value(array, lambda data: orjson.dumps(base64.b64encode(data).decode()))


def _uuids(array: Any) -> Texts:
    return _by_distinct_value(array.storage.cast(pa.binary()), _uuid)


def _uuid(data: bytes) -> bytes:
    digits = data.hex()
    return f'"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"'.encode()


def _decimals(array: Any) -> Texts:
    """All digits of the type's scale, without an exponent."""
    kind = array.type
    if kind.bit_width < 128:
        array = array.cast(pa.decimal128(kind.precision, kind.scale))
    return _by_distinct_value(array, decimal_text)


def _durations(array: Any) -> Texts:
    """Seconds, with six digits, or nine if nanoseconds are not zero."""
    unit_ns = UNIT_NS[array.type.unit]
    return _by_distinct_value(array.cast(pa.int64()), lambda count: duration_text(count * unit_ns))


def _dates(array: Any) -> Texts:
    if pa.types.is_date64(array.type):
        milliseconds = np.asarray(array.cast(pa.int64()))
        _refuse_any(milliseconds % 86_400_000 != 0, "a date with a time of the day: cast the column to a timestamp")
        days = milliseconds // 86_400_000
    else:
        days = np.asarray(array.cast(pa.int32())).astype(np.int64)
    _refuse_any((days < _EARLIEST_DAY) | (days > _LATEST_DAY), _OUTSIDE)
    return _quoted(np.datetime_as_string(days.astype("datetime64[D]"), unit="D"))


def _timestamps(array: Any) -> Texts:
    """RFC 3339 in UTC, or without an offset if the type has no zone."""
    counts = np.asarray(array.cast(pa.int64()))
    micros, nanos = _micros_and_nanos(counts, UNIT_NS[array.type.unit], EARLIEST_US, LATEST_US, _OUTSIDE)
    texts = np.datetime_as_string(micros.astype("datetime64[us]"), unit="us")
    return _quoted(_with_nanoseconds(texts, nanos), b"" if array.type.tz is None else b"Z")


def _times(array: Any) -> Texts:
    wide = pa.int32() if array.type.bit_width == 32 else pa.int64()
    counts = np.asarray(array.cast(wide)).astype(np.int64)
    why = "no time of the day: it is before 00:00, or not before 24:00"
    micros, nanos = _micros_and_nanos(counts, UNIT_NS[array.type.unit], 0, DAY_US - 1, why)
    texts = np.char.partition(np.datetime_as_string(micros.astype("datetime64[us]"), unit="us"), "T")[:, 2]
    return _quoted(_with_nanoseconds(texts, nanos))


def _micros_and_nanos(counts: Any, unit_ns: int, first_us: int, last_us: int, why: str) -> tuple[Any, Any]:
    """The times in microseconds, and the nanoseconds beyond them. Raises `Refusal` for those out of bounds."""
    if unit_ns == 1:
        micros, nanos = np.divmod(counts, 1000)
    else:
        factor = unit_ns // 1000
        _refuse_any((counts < -(-first_us // factor)) | (counts > last_us // factor), why)
        return counts * factor, np.zeros(len(counts), np.int64)
    _refuse_any((micros < first_us) | (micros > last_us), why)
    return micros, nanos


def _with_nanoseconds(texts: Any, nanos: Any) -> Any:
    if not nanos.any():
        return texts
    return np.where(nanos == 0, texts, np.char.add(texts, np.char.zfill(nanos.astype(str), 3)))


def _quoted(texts: Any, suffix: bytes = b"") -> Texts:
    return pc.binary_join_element_wise(b'"', pa.array(texts).cast(pa.binary()), suffix + b'"', b"")


def _refuse_any(refused: Any, why: str) -> None:
    if refused.any():
        raise Refusal(int(np.flatnonzero(refused)[0]), why)
