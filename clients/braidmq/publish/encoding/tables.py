"""Tables of pyarrow, pandas and polars as messages: one for each row, made column by column."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict, get_args

import pyarrow as pa
import pyarrow.compute as pc

from braidmq.errors import InvalidArgument
from braidmq.json_rows.encoding import json_values, rows_to_json
from braidmq.json_rows.plain import plain_column, plain_type
from braidmq.json_rows.refusal import shown
from braidmq.json_rows.texts import NonFinite
from braidmq.publish.encoding.delivery_times import check_given_once, delay_us, time_headers
from braidmq.publish.encoding.outgoing import CONTENT_TYPE, JSON_TYPE, Headers
from braidmq.times import EventTimeUnit, microseconds
from filer.format.schema import HEADERS, TIMESTAMP
from filer.nearest import unknown_name
from filer.times import EARLIEST_US, LATEST_US

_MAX_SLICE_ROWS = 65_536
_NO_TIMES = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


class Columns(TypedDict, total=False):
    """Names of columns, one for each part of a message.

    Without `value`, the value is the row as a JSON object. `headers` is a map column, or the same headers for all.
    `event_time_unit` is the unit of an event time column of whole numbers, which count since 1970. `non_finite` is the
    form of NaN and infinities in JSON, which has no such numbers: they are refused by default. `deliver_at`, `delay`
    and `expires_at` are columns of times with a zone and of durations, or the same for all. `first_row` is the number
    of the first row in errors.
    """

    key: str | None
    value: str | None
    headers: str | Headers | None
    event_time: str | None
    event_time_unit: EventTimeUnit | None
    non_finite: NonFinite
    deliver_at: str | datetime | None
    delay: str | timedelta | None
    expires_at: str | datetime | None
    first_row: int


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Which column of a table becomes which part of a message.

    If `value` is None, the value is the row as a JSON object. `headers` is a column, or the same headers for all.
    `event_time_unit` is for an event time of whole numbers, `non_finite` is the form of NaN and infinities in JSON.
    `deliver_at`, `delay` (from `now_us` on) and `expires_at` are columns, or the same for all. Errors count rows from
    `first_row`.
    """

    key: str | None = None
    value: str | None = None
    headers: str | Headers | None = None
    event_time: str | None = None
    event_time_unit: EventTimeUnit | None = None
    non_finite: NonFinite = "refuse"
    deliver_at: str | datetime | None = None
    delay: str | timedelta | None = None
    expires_at: str | datetime | None = None
    first_row: int = 0
    now_us: int | None = None

    def check(self, table: pa.Table) -> None:
        """Raise `InvalidArgument` for a column that the table does not have, or has more than once."""
        if self.non_finite not in get_args(NonFinite):
            raise InvalidArgument(unknown_name("non_finite", self.non_finite, get_args(NonFinite)))
        if self.event_time_unit is not None:
            if self.event_time_unit not in get_args(EventTimeUnit):
                raise InvalidArgument(unknown_name("event_time_unit", self.event_time_unit, get_args(EventTimeUnit)))
            if self.event_time is None:
                raise InvalidArgument("event_time_unit needs event_time, the column whose numbers it is about")
        if self.delay is not None and self.deliver_at is not None:
            raise InvalidArgument("give delay or deliver_at, not both")
        if self.delay is not None and self.now_us is None:
            raise InvalidArgument("a bulk load has the same rows each time it runs: give deliver_at, and no delay")
        for name in self.columns:
            if name not in table.column_names:
                raise InvalidArgument(unknown_name("column", name, table.column_names))
            if table.column_names.count(name) > 1:
                raise InvalidArgument(f"several columns are named {name!r}: rename all but one")

    @property
    def columns(self) -> list[str]:
        """The columns that become a part of a message by their name."""
        parts = (self.key, self.value, self.headers, self.event_time, self.deliver_at, self.delay, self.expires_at)
        return [each for each in parts if isinstance(each, str)]


def arrow_table(frame: Any) -> pa.Table:
    """Return a pyarrow, pandas or polars table as a pyarrow table, without copying if the library allows it."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    library = type(frame).__module__.partition(".")[0]
    if library == "pandas" and hasattr(frame, "columns"):
        try:
            return pa.Table.from_pandas(frame, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as failure:
            why = ": ".join(str(each) for each in reversed(failure.args))
            raise InvalidArgument(f"the frame cannot be published as a table: {why}") from failure
    if library == "polars" and hasattr(frame, "collect"):
        raise InvalidArgument("a polars LazyFrame has no rows yet: give frame.collect()")
    if hasattr(frame, "__arrow_c_stream__"):
        with suppress(pa.ArrowInvalid):  # for example a single column
            return pa.table(frame)
    raise InvalidArgument(
        f"{type(frame).__name__} is not a table: give a pyarrow Table or RecordBatch, or a pandas or polars DataFrame"
    )


def message_tables(table: pa.Table, plan: TablePlan, *, slice_bytes: int) -> Iterator[pa.Table]:
    """The table in the columns of messages, one slice of about `slice_bytes` at a time."""
    plan.check(table)
    rows = max(1, min(_MAX_SLICE_ROWS, slice_bytes * table.num_rows // max(table.nbytes, 1)))
    for start in range(0, table.num_rows, rows):
        yield _message_columns(table.slice(start, rows), plan, plan.first_row + start)


def _message_columns(table: pa.Table, plan: TablePlan, first_row: int) -> pa.Table:
    columns: dict[str, Any] = {}
    columns["key"] = pa.nulls(table.num_rows, pa.binary()) if plan.key is None else _key(table[plan.key])
    columns["value"], is_json = _value(table, plan, first_row)
    headers = _with_times(_headers(table, plan.headers, is_json=is_json), table, plan, first_row)
    if headers is not None:
        columns["headers"] = headers
    if plan.event_time is not None:
        times = _event_time(plan.event_time, table[plan.event_time], plan.event_time_unit, first_row)
        _check_years(plan.event_time, times, plan.event_time_unit, first_row)
        columns["event_time"] = times
    return pa.table(columns)


def _key(column: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any]":
    """Keys as bytes or text. Other types are converted to text."""
    kind = plain_type(column.type)
    try:
        plain = plain_column(column)
        return plain if _is_bytes_or_text(kind) else plain.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
        raise InvalidArgument(f"a column of type {column.type} cannot be the key: {failure}") from failure


def _value(table: pa.Table, plan: TablePlan, first_row: int) -> tuple[Any, bool]:
    """The value column, and whether its values were converted to JSON here."""
    name, non_finite = plan.value, plan.non_finite
    if name is None:
        return rows_to_json(table, non_finite=non_finite, first_row=first_row), True
    column = table[name]
    kind = plain_type(column.type)
    if _is_bytes_or_text(kind) or pa.types.is_null(kind):
        return column.cast(pa.binary()) if pa.types.is_null(kind) else plain_column(column), False
    return json_values(column, name, non_finite=non_finite, first_row=first_row), True


def _headers(table: pa.Table, given: str | Headers | None, *, is_json: bool) -> Any:
    """The headers column. Values converted to JSON here get a content type, unless a column gives the headers."""
    if isinstance(given, str):
        return _header_column(table[given])
    constant = {name: each.encode() if isinstance(each, str) else each for name, each in (given or {}).items()}
    if is_json:
        constant.setdefault(CONTENT_TYPE, JSON_TYPE)
    if not constant:
        return None
    try:
        return pa.repeat(pa.scalar(list(constant.items()), HEADERS), table.num_rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as failure:
        raise InvalidArgument(f"headers map text to bytes or text, not {given}") from failure


def _with_times(headers: Any, table: pa.Table, plan: TablePlan, first_row: int) -> Any:
    """The headers column, with the headers for when each message is delivered."""
    if plan.deliver_at is plan.delay is plan.expires_at is None:
        return headers
    now_us = plan.now_us or 0
    deliver_at, expires_at = (_moments(table, each, first_row) for each in (plan.deliver_at, plan.expires_at))
    if plan.delay is not None:
        delays = _delays_us(table, plan.delay, first_row)
        deliver_at = [None if delay is None else now_us + delay for delay in delays]
    given: list[Any] = [None] * table.num_rows if headers is None else headers.to_pylist()
    rows: list[Any] = []
    for row, (pairs, due_us, end_us) in enumerate(zip(given, deliver_at, expires_at, strict=True), first_row):
        try:
            # A table may have waited for long: messages that were due by then are due at once.
            told = time_headers(due_us, end_us, EARLIEST_US)
            check_given_once((name for name, _ in pairs or ()), told)
        except InvalidArgument as failure:
            raise InvalidArgument(f"row {row} of the table: {failure}") from failure
        rows.append([*(pairs or ()), *told] or None)
    return pa.array(rows, HEADERS)


def _moments(table: pa.Table, given: str | datetime | None, first_row: int) -> list[int | None]:
    """The time of each row, in microseconds since the epoch."""
    if not isinstance(given, str):
        return [None if given is None else microseconds(given)] * table.num_rows
    kind = plain_type(table[given].type)
    has_zone = pa.types.is_string(kind) or pa.types.is_null(kind) or (pa.types.is_timestamp(kind) and kind.tz)
    if not has_zone:
        raise InvalidArgument(
            f"column {given!r} of type {table[given].type} has no times with a zone: give timestamps with one, or text "
            "of RFC 3339"
        )
    times = _event_time(given, table[given], None, first_row, what="time of delivery")
    _check_years(given, times, None, first_row, what="time of delivery")
    return list(times.cast(pa.int64()).to_pylist())


def _delays_us(table: pa.Table, given: str | timedelta, first_row: int) -> list[int | None]:
    """The delay of each row, in microseconds."""
    if not isinstance(given, str):
        return [delay_us(given)] * table.num_rows
    column = table[given]
    if not pa.types.is_duration(column.type) and not pa.types.is_null(column.type):
        raise InvalidArgument(f"column {given!r} of type {column.type} has no delays: give durations")
    try:
        delays = column.cast(pa.duration("us"), safe=False).to_pylist()
        return [None if each is None else delay_us(each) for each in delays]
    except (InvalidArgument, OverflowError) as failure:
        raise InvalidArgument(f"column {given!r}, from row {first_row} of the table on: {failure}") from failure


def _header_column(column: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any]":
    try:
        return column.cast(HEADERS)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
        raise InvalidArgument(
            f"a column of type {column.type} cannot be the headers: it must map text to bytes or text"
        ) from failure


def _event_time(
    name: str, column: "pa.ChunkedArray[Any]", unit: EventTimeUnit | None, first_row: int, *, what: str = "event time"
) -> Any:
    """Times in microseconds UTC. Text is read as RFC 3339; times without a zone are taken as UTC.

    Raises `InvalidArgument` with the first row that has no such time.
    """
    kind = event_time_type(name, column.type, unit)
    try:
        return _times(column, kind)
    except _NO_TIMES as failure:
        row = _first_without_time(column, kind)
        where = f"column {name!r} of type {column.type}, row {first_row + row}"
        if pa.types.is_string(kind):
            text = plain_column(column)[row].as_py()
            raise InvalidArgument(f"{where}: {shown(text)} cannot be the {what}: {_right_text(text)}") from failure
        raise InvalidArgument(f"{where} cannot be the {what}: it {_outside(unit)}") from failure


def _times(column: "pa.ChunkedArray[Any]", kind: pa.DataType) -> Any:
    """The column, read as that type, in microseconds UTC. Raises Arrow's errors."""
    plain = plain_column(column)
    if pa.types.is_integer(plain.type):
        # Arrow makes times only of these types. If a value does not fit, the cast raises an error.
        plain = plain.cast(pa.int64())
    plain = plain.cast(kind)
    if pa.types.is_timestamp(kind):
        # Nanoseconds are truncated. A time of a coarser unit that is out of range is an error: it must not wrap.
        plain = plain.cast(pa.timestamp("us", kind.tz), safe=kind.unit in ("s", "ms"))
    return pc.cast(plain, TIMESTAMP)


def _first_without_time(column: "pa.ChunkedArray[Any]", kind: pa.DataType) -> int:
    """The first row that is no time. Arrow reports only that there is one, so half of the rest is tried each time."""
    start, stop = 0, len(column)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            _times(column.slice(start, middle - start), kind)
        except _NO_TIMES:
            stop = middle
        else:
            start = middle
    return start


def _right_text(text: str) -> str:
    """The right form for a text that is no time."""
    try:
        pc.cast(pa.scalar(text), pa.timestamp("us"))
    except pa.ArrowInvalid:
        return "give RFC 3339, as in 2026-03-01T04:00:00Z"
    return "it has no zone; in UTC it ends with Z, as in 2026-03-01T04:00:00Z"


def _check_years(
    name: str, times: Any, unit: EventTimeUnit | None, first_row: int, *, what: str = "event time"
) -> None:
    """Raises `InvalidArgument` for a time without an RFC 3339 text, as numbers of a finer unit mostly come out."""
    micros = times.cast(pa.int64())
    outside = pc.or_(pc.less(micros, EARLIEST_US), pc.greater(micros, LATEST_US))
    row = pc.index(outside, pa.scalar(True)).as_py()
    if row >= 0:
        raise InvalidArgument(f"column {name!r}, row {first_row + row}: the {what} {_outside(unit)}")


def _outside(unit: EventTimeUnit | None) -> str:
    return "lies outside the years 1 to 9999" + ("" if unit is None else f": do its numbers count {unit} since 1970?")


def event_time_type(name: str, given: pa.DataType, unit: EventTimeUnit | None) -> pa.DataType:
    """The type as which a column of event times is read. Raises `InvalidArgument` for a column without times."""
    kind = plain_type(given)
    what = f"column {name!r} of type {given}"
    if pa.types.is_integer(kind):
        if unit is None:
            raise InvalidArgument(
                f"{what} has no times: if its numbers count from 1970, give the event time's unit: s, ms, us or ns"
            )
        return pa.timestamp(unit)
    if unit is not None:
        raise InvalidArgument(f"{what} is no column of whole numbers: leave out the event time's unit")
    # A time of the day, or a duration, is no point in time.
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    if is_time or pa.types.is_string(kind) or pa.types.is_null(kind):
        return kind
    raise InvalidArgument(f"{what} cannot be the event time: give timestamps, days, text of RFC 3339, or whole numbers")


def _is_bytes_or_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))
