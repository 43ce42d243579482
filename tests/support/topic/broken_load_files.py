"""Files of a bulk load, rewritten with an error."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from filer.bulk_load.load_files import LoadFile
from filer.format.digests import NAMES

PLAIN = {
    "use_dictionary": False,
    "store_schema": False,
    "compression": "zstd",
    "data_page_size": 1 << 26,
    "write_statistics": ["_offset", "_timestamp"],
}


def _same(table: pa.Table) -> pa.Table:
    return table


def rewritten(
    file: LoadFile,
    change: Callable[[pa.Table], pa.Table] = _same,
    *,
    pairs: Mapping[str, str | None] | None = None,
    rows_each: int = 1 << 20,
    **settings: Any,
) -> bytes:
    """Rewrite the file with other rows, other pairs in its footer, or other settings. It has no digests."""
    source = pq.ParquetFile(pa.BufferReader(file.data), arrow_extensions_enabled=False)
    said = {name.decode(): value.decode() for name, value in source.metadata.metadata.items()}
    said = {name: value for name, value in said.items() if name not in NAMES} | dict(pairs or {})
    table = change(source.read())
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, **{**PLAIN, **settings}) as writer:
        writer.write_table(table, row_group_size=rows_each)
        writer.add_key_value_metadata({name: value for name, value in said.items() if value is not None})
    return sink.getvalue()


def with_column(name: str, values: Callable[[pa.Table], Sequence[Any]]) -> Callable[[pa.Table], pa.Table]:
    """A change that replaces the values of a column and keeps its type."""

    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        return table.set_column(index, field, pa.array(values(table), field.type))

    return change
