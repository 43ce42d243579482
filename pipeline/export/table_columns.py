"""The columns of an exported table: those of messages, and members of their JSON values, typed by a schema."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from braidmq.errors import InvalidArgument
from braidmq.json_rows.decoding import read_rows
from braidmq.json_rows.refusal import Refusal
from filer.errors import InvalidInput
from filer.format.schema import MessageSchema
from pipeline.export.iceberg_types import read_types, stored_types

SEGMENT_FIELD = pa.field("segment", pa.int64())
MESSAGE_COLUMNS = ("segment", "_offset", "_timestamp", "key", "value", "event_time", "headers", "_ref")
REASON = "reason"
_MEMBER = "value."


@dataclass(frozen=True, slots=True)
class Shaped:
    """The rows of a table, and the messages without a row there: their values do not fit. These have a `reason`."""

    rows: pa.Table
    unfit: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table, in order.

    `names` are columns of messages, or `value.NAME` for a member of the value, which `schema` types. A format that has
    not all of these types has `read_as`, by which values are read, and `stored_as`, for the same values of the columns.
    """

    names: tuple[str, ...] = MESSAGE_COLUMNS
    schema: pa.Schema | None = None
    read_as: pa.Schema | None = None
    stored_as: pa.Schema | None = None

    @property
    def are_those_of_messages(self) -> bool:
        """Whether the table has exactly the columns of the topic's files."""
        return self.names == MESSAGE_COLUMNS and self.schema is None

    @property
    def are_stored_otherwise(self) -> bool:
        """Whether a column has another type in the table than in the schema."""
        if self.schema is None or self.stored_as is None:
            return False
        return any(self.schema.field(field.name).type != field.type for field in self.stored_as)

    @property
    def shown(self) -> tuple[str, ...]:
        """The names of the columns in the table."""
        return tuple(name.removeprefix(_MEMBER) for name in self.names)

    @property
    def descriptions(self) -> tuple[str, ...]:
        """The columns as text, which differs if a name or a type does."""
        if self.schema is None:
            return self.names
        members = {f"{_MEMBER}{field.name}": f"{_MEMBER}{_described(field)}" for field in self.schema}
        return tuple(members.get(name, name) for name in self.names)

    def arrow_schema(self, schema: MessageSchema) -> pa.Schema:
        """Return the columns of the table for a topic of that schema."""
        return self.shape(schema.no_messages.add_column(0, SEGMENT_FIELD, pa.array([], pa.int64()))).rows.schema

    def shape(self, messages: pa.Table) -> Shaped:
        """Return the rows of the table for these messages. Values are never changed to fit."""
        if self.schema is None:
            return Shaped(messages.select(list(self.names)))
        is_apart = pc.and_(
            pc.is_valid(messages["_ref"].combine_chunks()), pc.is_null(messages["value"].combine_chunks())
        )
        apart, whole = messages.filter(is_apart), messages.filter(pc.invert(is_apart))
        members, reasons = _fitting(whole["value"].combine_chunks(), self.read_as or self.schema)
        if self.stored_as is not None:
            members = members.select(self.stored_as.names).cast(self.stored_as)
        rows = self._selected(whole.filter(pc.is_null(reasons)), members)
        if not apart.num_rows and reasons.null_count == len(reasons):
            return Shaped(rows)
        why = "its value is stored beside the log, and is large or no text: see _ref"
        beside = pa.array([why] * apart.num_rows, pa.string())
        refused = whole.append_column(REASON, reasons).filter(pc.is_valid(reasons))
        return Shaped(rows, pa.concat_tables([refused, apart.append_column(REASON, beside)]).sort_by("_offset"))

    def _selected(self, messages: pa.Table, members: pa.Table) -> pa.Table:
        columns, fields = [], []
        for name in self.names:
            source, plain = (members, name.removeprefix(_MEMBER)) if name.startswith(_MEMBER) else (messages, name)
            columns.append(source[plain])
            fields.append(source.schema.field(plain))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _described(field: pa.Field) -> str:
    return f"{field.name}: {field.type}{'' if field.nullable else ' not null'}"


MESSAGES = TableColumns()
"""Return the columns of messages, as in the topic's files."""


def _fitting(values: Any, schema: pa.Schema) -> tuple[pa.Table, Any]:
    """Return the rows of the values that fit, and for each value the reason why it does not, or null.

    Refused values are halved down to one.
    """
    try:
        return read_rows(values, schema), pa.nulls(len(values), pa.string())
    except (Refusal, InvalidArgument) as error:
        if len(values) == 1:
            why = error.told() if isinstance(error, Refusal) else str(error)
            return schema.empty_table(), pa.array([why], pa.string())
    middle = len(values) // 2
    (first, why_first), (second, why_second) = (
        _fitting(each, schema) for each in (values.slice(0, middle), values.slice(middle))
    )
    return pa.concat_tables([first, second]), pa.concat_arrays([why_first, why_second])


def table_columns(given: str | None, schema: pa.Schema | None) -> TableColumns:
    """Return the columns that `--columns` names: by default a message's, with the members in place of the value.

    A name is that of a message's column, or of a member of the schema; `value.NAME` is a member in any case. Raises
    `InvalidInput` for names that are not there or are there twice, and for types that no JSON has.
    """
    members = [] if schema is None else schema.names
    if schema is not None:
        _check_types(schema)
    if given is None:
        names = [*_default(members, MESSAGE_COLUMNS)]
    else:
        names = [_named(each.strip(), members) for each in given.split(",")]
    shown = [name.removeprefix(_MEMBER) for name in names]
    twice = next((name for name in shown if shown.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(
            f"the table would have two columns {twice!r}: give --columns with one of them"
            + (f", {twice} of the message or {_MEMBER}{twice}" if twice in MESSAGE_COLUMNS and twice in members else "")
        )
    return TableColumns(tuple(names), schema)


def _check_types(schema: pa.Schema) -> None:
    """Raises `InvalidInput` for a type that no JSON has, or that no Parquet file has: before anything is written."""
    try:
        read_rows(pa.array([], pa.string()), schema)
    except Refusal as refusal:
        raise InvalidInput(f"--schema: {refusal.told()}") from refusal
    for field in schema:
        try:
            pq.write_table(pa.schema([field]).empty_table(), pa.BufferOutputStream())
        except pa.ArrowException as error:
            raise InvalidInput(f"--schema: column {field.name!r}: Parquet has no type for {field.type}") from error


def with_types_of_iceberg(columns: TableColumns) -> TableColumns:
    """Return the columns of an Iceberg table. Raises `JobFailed`, which names a column that Iceberg cannot have."""
    if columns.schema is None:
        return columns
    read_as = read_types(columns.schema)
    shown = pa.schema([field for field in read_as if f"{_MEMBER}{field.name}" in columns.names])
    return replace(columns, read_as=read_as, stored_as=stored_types(shown))


def _default(members: Sequence[str], columns: Iterable[str]) -> Iterable[str]:
    for name in columns:
        if name == "value" and members:
            yield from (f"{_MEMBER}{member}" for member in members)
        else:
            yield name


def _named(name: str, members: Sequence[str]) -> str:
    if name in MESSAGE_COLUMNS:
        return name
    member = name.removeprefix(_MEMBER)
    if member in members:
        return f"{_MEMBER}{member}"
    there = ", ".join([*MESSAGE_COLUMNS, *members])
    hint = "" if members else "; members of JSON values need --schema"
    raise InvalidInput(f"--columns: there is no column {name!r}: there are {there}{hint}")
