"""How far an export has got: a record beside the table, changed by compare-and-swap.

It is written before anything is (`pending`: which messages are being exported), so that whoever comes after a run
that was killed does exactly the same again: the same messages, under the same names.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from filer.errors import CorruptFile, EtagMismatch, ObjectExists, ObjectNotFound
from filer.positions import Positions
from filer.store import Store
from pipeline.errors import JobFailed
from pipeline.export_plan import Piece

FOLDER = "_braidmq"
"""Spark and others leave out what begins with an underscore."""
STATE_KEY = f"{FOLDER}/export.json"
TableFormat = Literal["parquet", "iceberg"]
PartitionBy = Literal["timestamp", "event_time", "none"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Target(_Frozen):
    """What is exported to which kind of table: never changes once the table is there."""

    topic: str
    created_us: int
    table_format: TableFormat
    partition_by: PartitionBy


class Pending(_Frozen):
    """A run under way. Once it is `staged`, all its files are written and only have to be made visible."""

    pieces: tuple[Piece, ...]
    exported: Positions
    staged: bool = False


class ExportState(_Frozen):
    """All that is kept. `runs` counts those that have begun, the pending one included."""

    version: Literal[1] = 1
    target: Target
    exported: Positions = {}
    runs: int = 0
    pending: Pending | None = None

    def begun(self, pieces: tuple[Piece, ...], exported: Mapping[int, int]) -> "ExportState":
        """With a run that is to reach these positions."""
        pending = Pending(pieces=pieces, exported=dict(exported))
        return self.model_copy(update={"runs": self.runs + 1, "pending": pending})

    def left_with(self, pieces: tuple[Piece, ...]) -> "ExportState":
        """With less of the pending run: it is still the same one, and reaches the same positions."""
        assert self.pending is not None
        return self.model_copy(update={"pending": self.pending.model_copy(update={"pieces": pieces})})

    def staged(self) -> "ExportState":
        """With all files of the pending run written."""
        assert self.pending is not None
        return self.model_copy(update={"pending": self.pending.model_copy(update={"staged": True})})

    def done(self) -> "ExportState":
        """With the pending run visible."""
        assert self.pending is not None
        return self.model_copy(update={"exported": self.pending.exported, "pending": None})


class StateFile:
    """The record on the store of the table, and the ETag it was last seen under."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._etag: str | None = None

    async def read(self, target: Target) -> ExportState:
        """The state as it stands; that of an export to begin where there is none. Raises `JobFailed`, `CorruptFile`."""
        try:
            fetched = await self._store.get(STATE_KEY)
        except ObjectNotFound:
            return ExportState(target=target)
        try:
            state = ExportState.model_validate_json(fetched.data)
        except ValidationError as error:
            raise CorruptFile(f"{self._store.uri(STATE_KEY)} is no state of an export: {error}") from error
        self._etag = fetched.info.etag
        if state.target != target:
            raise JobFailed(_mismatch(state.target, target, self._store.uri(STATE_KEY)))
        return state

    async def write(self, state: ExportState) -> None:
        """Put it in place of the one read. Raises `JobFailed` where another export has changed it since.

        Replaced whole or not at all: whoever stops here has the one state or the other.
        """
        data = state.model_dump_json().encode()
        try:
            if self._etag is None:
                await self._store.create(STATE_KEY, data)
            else:
                await self._store.replace(STATE_KEY, data, etag=self._etag)
        except (ObjectExists, EtagMismatch) as error:
            raise JobFailed(f"another export to the same place is under way: {error}") from error


def _mismatch(found: Target, wanted: Target, uri: str) -> str:
    for name, mine in wanted.model_dump().items():
        theirs = getattr(found, name)
        if name == "created_us" and mine != theirs and found.topic == wanted.topic:
            return f"topic {wanted.topic!r} has been deleted and made again since it was exported here: see {uri}"
        if name != "created_us" and mine != theirs:
            return f"what is there already is of {name.replace('_', ' ')} {theirs!r}, not {mine!r}: see {uri}"
    return f"what is there already is another export: see {uri}"
