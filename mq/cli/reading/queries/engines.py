"""The engines for which `mq files sql` prints queries."""

from collections.abc import Callable
from typing import Literal

from mq.cli.reading.queries.for_athena import athena_query
from mq.cli.reading.queries.for_duckdb import duckdb_query, persistent_duckdb_view
from mq.cli.reading.queries.for_polars import polars_query
from mq.cli.reading.queries.for_spark import spark_query
from mq.cli.reading.queries.stored_topic import StoredTopic

Engine = Literal["duckdb", "spark", "polars", "athena"]
QUERIES: dict[Engine, Callable[[StoredTopic], str]] = {
    "duckdb": duckdb_query,
    "spark": spark_query,
    "polars": polars_query,
    "athena": athena_query,
}
PERSISTENT_QUERIES: dict[Engine, Callable[[StoredTopic], str]] = {
    "duckdb": persistent_duckdb_view,
    "athena": athena_query,
}
"""Engines with a view that other connections can use too."""
