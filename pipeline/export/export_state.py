"""The progress of an export: a record beside the table, changed by compare-and-swap.

It is written before any file. `pending` has the messages that are being exported. So if a run is killed, the next call
does exactly the same again: it writes the same messages under the same names.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from filer.errors import CorruptFile, EtagMismatch, ObjectExists, ObjectNotFound
from filer.stores.store import Store
from filer.topic.positions import Positions
from pipeline.errors import JobFailed
from pipeline.export.choices import PartitionBy, PartitionEvery, TableFormat
from pipeline.export.export_plan import Piece
from pipeline.export.partitions import PARTITION_COLUMNS
from pipeline.export.table_columns import MESSAGE_COLUMNS

FOLDER = "_braidmq"
"""Spark and other readers ignore names that begin with an underscore."""
STATE_KEY = f"{FOLDER}/export.json"
SNAPSHOTS = "metadata/snap-"
"""Where a commit to a table of Iceberg begins."""
_SINCE_0_2 = ("partition_every", "columns", "partition_columns")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Target(_Frozen):
    """The exported data, and the kind of table. It never changes once the table exists."""

    topic: str
    created_us: int
    table_format: TableFormat
    partition_by: PartitionBy
    partition_every: PartitionEvery = "day"
    columns: tuple[str, ...] = MESSAGE_COLUMNS
    partition_columns: tuple[str, str] = PARTITION_COLUMNS
    """The names of the folders of a day and of an hour, which readers show as columns."""

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out default values, so that earlier versions go on with such an export."""
        fields: dict[str, Any] = serialize(self)
        kept = (name for name in _SINCE_0_2 if getattr(self, name) != type(self).model_fields[name].default)
        return {name: value for name, value in fields.items() if name not in _SINCE_0_2} | {
            name: fields[name] for name in kept
        }


class Pending(_Frozen):
    """An unfinished run. Once it is `staged`, all its files are written and only have to be made visible."""

    pieces: tuple[Piece, ...]
    exported: Positions
    staged: bool = False


class ExportState(_Frozen):
    """The record. `runs` is the number of runs that have begun, the pending one included.

    `given_up` counts how often a run has begun anew, with other columns or types, before it had made anything visible.
    Files that were written for it before have other names.
    """

    version: Literal[1] = 1
    target: Target
    exported: Positions = {}
    runs: int = 0
    pending: Pending | None = None
    given_up: int = 0

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out default values, so that earlier versions go on with such an export."""
        fields: dict[str, Any] = serialize(self)
        return fields if self.given_up else {name: value for name, value in fields.items() if name != "given_up"}

    @property
    def is_first_run_unstaged(self) -> bool:
        """Whether there was only a first run, which may have written files that no reader sees."""
        return self.runs == 1 and self.pending is not None and not self.pending.staged and not self.exported

    def anew(self, target: Target) -> "ExportState":
        """Return the state before a first run to another kind of table."""
        return ExportState(target=target, given_up=self.given_up + 1)

    def begun(self, pieces: tuple[Piece, ...], exported: Mapping[int, int]) -> "ExportState":
        """Return the state with a pending run that is to reach these positions."""
        pending = Pending(pieces=pieces, exported=dict(exported))
        return self.model_copy(update={"runs": self.runs + 1, "pending": pending})

    def reduced_to(self, pieces: tuple[Piece, ...]) -> "ExportState":
        """Return the state with fewer pieces in the pending run, still the same run with the same positions."""
        assert self.pending is not None
        return self.model_copy(update={"pending": self.pending.model_copy(update={"pieces": pieces})})

    def staged(self) -> "ExportState":
        """Return the state once all files of the pending run are written."""
        assert self.pending is not None
        return self.model_copy(update={"pending": self.pending.model_copy(update={"staged": True})})

    def done(self) -> "ExportState":
        """Return the state once the pending run is visible."""
        assert self.pending is not None
        return self.model_copy(update={"exported": self.pending.exported, "pending": None})


class StateFile:
    """The record on the table's store, and its ETag when it was last read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._etag: str | None = None

    async def read(self, target: Target) -> ExportState:
        """Return the current state, or a new one if there is no record. Raises `JobFailed`, `CorruptFile`.

        A first run that has made nothing visible pins nothing: with another target, it is given up. The folders' names
        are those of the record, if there is one.
        """
        try:
            fetched = await self._store.get(STATE_KEY)
        except ObjectNotFound:
            return ExportState(target=target)
        try:
            state = ExportState.model_validate_json(fetched.data)
        except ValidationError as error:
            raise CorruptFile(f"{self._store.uri(STATE_KEY)} is not the state of an export: {error}") from error
        self._etag = fetched.info.etag
        if state.target == target.model_copy(update={"partition_columns": state.target.partition_columns}):
            return state
        if state.is_first_run_unstaged and not await self._may_be_committed():
            return state.anew(target)
        raise JobFailed(_mismatch(state.target, target, self._store.uri(STATE_KEY)))

    async def _may_be_committed(self) -> bool:
        """Whether a commit to a table of Iceberg was begun: each writes such a file first.

        Earlier versions did not record that a run was staged.
        """
        async for _ in self._store.list(SNAPSHOTS):
            return True
        return False

    async def write(self, state: ExportState) -> None:
        """Replace the state that was read. Raises `JobFailed` if another export has changed it since.

        The record is replaced whole or not at all: if this call is stopped, it is in one state or the other.
        """
        data = state.model_dump_json().encode()
        try:
            if self._etag is None:
                await self._store.create(STATE_KEY, data)
            else:
                await self._store.replace(STATE_KEY, data, etag=self._etag)
        except (ObjectExists, EtagMismatch) as error:
            raise JobFailed(f"another export to the same place is running: {error}") from error


def _mismatch(found: Target, wanted: Target, uri: str) -> str:
    for name in type(wanted).model_fields:
        mine, theirs = getattr(wanted, name), getattr(found, name)
        if name == "created_us" and mine != theirs and found.topic == wanted.topic:
            return f"topic {wanted.topic!r} was deleted and created again since it was exported here: see {uri}"
        if name == "columns" and mine != theirs:
            return (
                f"the export there has other columns: {_difference(theirs, mine)}. A table keeps its columns, so "
                f"export to another folder, or delete this one; see {uri}"
            )
        if name not in ("created_us", "columns", "partition_columns") and mine != theirs:
            return f"the export there has the {name.replace('_', ' ')} {theirs!r}, not {mine!r}: see {uri}"
    return f"there is another export already: see {uri}"


def _difference(theirs: Sequence[str], mine: Sequence[str]) -> str:
    """Return the columns that only one of the two has, or that only their order differs."""
    there, here = (dict(_named(column) for column in columns) for columns in (theirs, mine))
    parts = [f"{name} has type {there[name]} there, not {here[name]}" for name in there if _differs(name, there, here)]
    parts += [f"{name} is only there" for name in there if name not in here]
    parts += [f"{name} is only here" for name in here if name not in there]
    return "; ".join(parts) or f"their order there is {', '.join(there)}"


def _differs(name: str, there: Mapping[str, str], here: Mapping[str, str]) -> bool:
    return name in here and there[name] != here[name]


def _named(column: str) -> tuple[str, str]:
    """Return the name and the type of a described column. Columns of messages have no type there."""
    name, _, kind = column.partition(": ")
    return name, kind
