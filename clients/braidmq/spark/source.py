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

from braidmq.spark.batch_reader import BatchReader
from braidmq.spark.columns import topic_schema
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
from braidmq.spark.planning import client_of, shape_of
from braidmq.spark.sink import BatchWriter, StreamWriter
from braidmq.spark.stream_reader import StreamReader


class BraidSource(DataSource):
    """A topic of BraidMQ as Spark reads and writes it: `format("braidmq")`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "braidmq"

    def schema(self) -> StructType:
        """The columns of the topic; raises `InvalidOption`, and what the brokers answer."""
        check_names(self.options, ANY_READ, "reading")
        source = source_of(self.options, subscribe=True)
        with client_of(source) as client:
            return topic_schema(shape_of(client, source).state.config)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return BatchReader(batch_read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        return StreamReader(stream_read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `write`."""
        _check_appends(overwrite)
        return BatchWriter(batch_write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For `writeStream`."""
        _check_appends(overwrite)
        return StreamWriter(stream_write_options(self.options), schema)


def register(spark: SparkSession) -> None:
    """Make `format("braidmq")` known to a session, for reading and writing, in batches and streams."""
    spark.dataSource.register(BraidSource)


def _check_appends(overwrite: bool) -> None:
    if overwrite:
        raise InvalidOption('a topic can only be appended to: write with mode("append"), or outputMode("append")')
