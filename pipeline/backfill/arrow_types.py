"""Types of Arrow that Spark does not see in Parquet files: it takes their values for plain numbers, silently.

A file written by Arrow has the types of its columns in the footer. Parquet itself has none for durations, and none for
booleans of eight bits.
"""

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOTED_AS = "ARROW:schema"


def unseen(schema: pa.Schema) -> "Iterator[tuple[str, pa.DataType]]":
    """Yield the paths of such types in the columns, as errors about values name them, and the types."""
    for field in schema:
        yield from _unseen(field.name, field.type)


def _unseen(path: str, kind: pa.DataType) -> "Iterator[tuple[str, pa.DataType]]":
    if pa.types.is_duration(kind) or isinstance(kind, pa.Bool8Type):
        yield path, kind
    elif pa.types.is_map(kind):
        yield from _unseen(f"{path}{{key}}", kind.key_type)
        yield from _unseen(f"{path}{{}}", kind.item_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _unseen(f"{path}.{field.name}", field.type)
    elif pa.types.is_dictionary(kind):
        yield from _unseen(path, kind.value_type)
    elif kind.num_fields:
        yield from _unseen(f"{path}[]", kind.field(0).type)


def noted_schema(spark: "SparkSession", table: "DataFrame") -> pa.Schema:
    """Return the types of Arrow in the first file of a table of Parquet files; without columns if it has none.

    Spark's own library reads the footer, from wherever Spark reads files. One file stands for all: they had one writer.
    """
    jvm: Any = spark._jvm
    paths = table.inputFiles()
    if not paths:
        return pa.schema([])
    path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(paths[0]))
    configuration = spark._jsc.hadoopConfiguration()
    file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, configuration)
    reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(file)
    try:
        noted = reader.getFooter().getFileMetaData().getKeyValueMetaData().get(_NOTED_AS)
    finally:
        reader.close()
    return pa.schema([]) if noted is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(noted)))
