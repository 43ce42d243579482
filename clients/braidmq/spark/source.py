"""The data source `braidmq`."""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from braidmq.spark.batch.batch_reader import BatchReader
from braidmq.spark.columns import schema_of
from braidmq.spark.connection import fetch_snapshot, open_client
from braidmq.spark.errors import InvalidOption
from braidmq.spark.options import (
    ANY_READ,
    batch_read_options,
    batch_write_options,
    check_names,
    source_of,
    stream_read_options,
    stream_write_options,
)
from braidmq.spark.streaming.stream_reader import StreamReader
from braidmq.spark.writing.sink import BatchWriter, StreamWriter


class BraidSource(DataSource):
    """A topic of BraidMQ as Spark reads and writes it: `format("braidmq")`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "braidmq"

    def schema(self) -> StructType:
        """Return the columns of the topic. Raises `InvalidOption`, and errors of the brokers."""
        check_names(self.options, ANY_READ, "reading")
        source = source_of(self.options, subscribe=True)
        with open_client(source) as client:
            return schema_of(fetch_snapshot(client, source))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for `spark.read`."""
        return BatchReader(batch_read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader for `spark.readStream`."""
        return StreamReader(stream_read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for `write`."""
        _check_appends(overwrite)
        return BatchWriter(batch_write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer for `writeStream`."""
        _check_appends(overwrite)
        return StreamWriter(stream_write_options(self.options), schema)


def register(spark: SparkSession) -> None:
    """Make `format("braidmq")` known to a session, for batch and streaming reads and writes.

    If Spark has found the package by itself, or this was called before, this does nothing: Spark would warn that one
    source replaces another.
    """
    if not _is_known(spark):
        spark.dataSource.register(BraidSource)


def _is_known(spark: SparkSession) -> bool:
    # A session of Spark Connect has no JVM to ask: there the source is registered anew.
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        return False
    return bool(session.sessionState().dataSourceManager().dataSourceExists(BraidSource.name()))


def _check_appends(overwrite: bool) -> None:
    if overwrite:
        raise InvalidOption('a topic can only be appended to: write with mode("append"), or outputMode("append")')
