"""Four readers without knowledge of BraidMQ, on the `segments/` folder of a topic; each has a column `segment`.

Each gives the same table: `segment` and `_offset` as int64, `key` and `value` as binary, ordered by the first two.
"""

from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
from pyspark.sql import SparkSession

COLUMNS = ["segment", "_offset", "key", "value"]
SCHEMA = pa.schema([("segment", pa.int64()), ("_offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


def in_order(table: pa.Table) -> pa.Table:
    """The four columns with the same types and order for all readers."""
    plain = [pa.chunked_array(table[name]).cast(SCHEMA.field(name).type) for name in COLUMNS]
    rows = pa.Table.from_arrays(plain, schema=SCHEMA)
    return rows.sort_by([("segment", "ascending"), ("_offset", "ascending")]).combine_chunks()


def by_duckdb(folder: Path) -> pa.Table:
    with duckdb.connect() as connection:
        return in_order(connection.sql(f"SELECT {', '.join(COLUMNS)} FROM '{folder}/*/*.parquet'").to_arrow_table())


def by_pandas(folder: Path) -> pa.Table:
    return in_order(pa.Table.from_pandas(pd.read_parquet(folder)[COLUMNS], preserve_index=False))


def by_polars(folder: Path) -> pa.Table:
    return in_order(pl.read_parquet(folder).select(COLUMNS).to_arrow())


def by_spark(folder: Path, spark: SparkSession) -> pa.Table:
    return in_order(spark.read.parquet(str(folder)).select(COLUMNS).toArrow())
