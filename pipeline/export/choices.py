"""The possible values of a table's options. The options import it too, so it imports nothing."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

TableFormat = Literal["parquet", "iceberg"]
PartitionBy = Literal["timestamp", "event_time", "none"]
PartitionEvery = Literal["day", "hour"]


class InPlace(StrEnum):
    """Which files a table refers to instead of having copies. Only final ones can be: no roll-up replaces them."""

    NO = "no"
    FINAL = "final"
    """Final files, and copies of all others."""
    FINAL_ONLY = "final only"
    """Final files. The rest of a segment waits behind its first file that is not final."""


@dataclass(frozen=True, slots=True)
class IcebergTarget:
    """A table of a catalogue. `catalog` is the URL of an SQL database, as SQLAlchemy takes it.

    If the table is in a local directory, the default is a file of SQLite in that directory.
    """

    namespace: str
    name: str
    catalog: str | None = None
