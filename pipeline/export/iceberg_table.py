"""An exported table in Apache Iceberg's format, by pyiceberg. A run is one commit: readers see all of it or nothing.

The table is partitioned by segment. A row has the columns of the segment's files, and the segment comes from the
partition, so a segment's file can be added unchanged. The commit sets the number of its run as a property of the table.
If a run was killed, the next call sees by this number whether the commit was made.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from filer.errors import InvalidInput
from filer.topic.topic_config import TopicConfig
from pipeline.errors import JobFailed
from pipeline.export.choices import IcebergTarget
from pipeline.export.export import Export, Opened, change_state, files_of, stage, unfit_messages, with_stores, work_of
from pipeline.export.export_files import WrittenPiece
from pipeline.export.export_plan import Piece
from pipeline.export.export_state import FOLDER, ExportState
from pipeline.output import counted
from pipeline.topic_files import read_topic
from pipeline.workers import Workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

DATA_FOLDER = "data/"
RUN_PROPERTY = "braidmq.run"
NAMES_PROPERTY = "schema.name-mapping.default"
FOOTERS_AT_ONCE = 8
_SEGMENT_ID = 1


@dataclass(frozen=True, slots=True)
class DataFileFacts:
    """A file that is to be added to the table: its path and its segment."""

    path: str
    segment: int


def finish_run(target: IcebergTarget, workers: Workers, export: Export, state: ExportState) -> int:
    """As `pipeline.export.export.FinishRun`."""
    assert state.pending is not None
    unfit = 0
    table = open_table(target, export, runs=state.runs - 1)
    if not _is_committed(table, state.runs):
        pieces = state.pending.pieces
        tasks = with_stores(export, lambda opened: files_of(export, opened, pieces))
        written = workers.run(tasks, partial(_stage, export), **work_of(tasks))
        unfit = unfit_messages(written)
        files = with_stores(export, lambda opened: _facts(opened, pieces, written))
        _commit(target, export, table, files, state.runs)
    with_stores(export, lambda opened: change_state(export, opened, state, state.done()))
    return unfit


def open_table(target: IcebergTarget, export: Export, *, runs: int = 0) -> "Table":
    """The table, which must contain so many runs. It is created if there are none.

    Raises `JobFailed` if pyiceberg is missing, the catalogue fails, or the table of that name is another one. New
    messages would be added there to a table that lacks the earlier ones.
    """
    try:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            table = _load_or_create(target, export, runs)
        except SQLAlchemyError as error:
            raise JobFailed(f"the catalogue of the Iceberg table: {_first_line(error)}") from error
    except ModuleNotFoundError as error:
        raise JobFailed(
            f"Iceberg needs the Python package {error.name!r}; pip install 'braidmq[iceberg]' has those of a catalogue "
            "in a file of SQLite"
        ) from error
    location = with_stores(export, _location)
    if table.location().rstrip("/") != location:
        raise JobFailed(
            f"table {target.namespace}.{target.name} of the catalogue lies at {table.location()}, not at {location}"
        )
    return table


def _load_or_create(target: IcebergTarget, export: Export, runs: int) -> "Table":
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

    identifier = (target.namespace, target.name)
    catalog = SqlCatalog("braidmq", uri=_catalog_address(target, export), **_file_properties(export))
    try:
        table = catalog.load_table(identifier)
        if not _is_committed(table, runs):
            raise JobFailed(_another(target, "lacks some of", runs))
        return table
    except NoSuchTableError:
        if runs:
            raise JobFailed(_another(target, "is not there, but would have", runs)) from None
        catalog.create_namespace_if_not_exists(target.namespace)
        try:
            return _create(catalog, identifier, export)
        except (TableAlreadyExistsError, CommitFailedException):
            # Another export has just created it.
            return catalog.load_table(identifier)


def _another(target: IcebergTarget, fault: str, runs: int) -> str:
    return (
        f"table {target.namespace}.{target.name} of this catalogue {fault} what {counted(runs, 'run')} of this export "
        "added: give the same --table and --catalog as then"
    )


def _first_line(error: Exception) -> str:
    """The first line of the message. SQLAlchemy adds the statement and links to its documentation."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _catalog_address(target: IcebergTarget, export: Export) -> str:
    if target.catalog is not None:
        return target.catalog
    root = with_stores(export, _location)
    if not root.startswith("file://"):
        raise InvalidInput("an Iceberg table on S3 needs --catalog, such as sqlite:////home/ada/tables.db")
    return f"sqlite:///{root.removeprefix('file://')}/{FOLDER}/catalog.db"


async def _location(opened: Opened) -> str:
    """The location of the table as pyiceberg writes it, with unescaped paths."""
    return _plain(opened.target.uri(FOLDER).removesuffix(f"/{FOLDER}"))


def _plain(uri: str) -> str:
    return unquote(uri) if uri.startswith("file://") else uri


def _file_properties(export: Export) -> dict[str, str]:
    given = {"s3.endpoint": export.target.endpoint_url, "s3.region": export.target.region}
    return {name: value for name, value in given.items() if value is not None}


def _create(catalog: "Catalog", identifier: tuple[str, str], export: Export) -> "Table":
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    config = with_stores(export, partial(_config, export))
    location = with_stores(export, _location)
    # A commit that is retried on top of another export's commit would add the same messages twice.
    properties = {"commit.retry.num-retries": "0"}
    if not export.columns.are_those_of_messages:
        return _create_of_columns(catalog, identifier, _arrow_schema(export, config), location, properties)
    by_segment = PartitionField(source_id=_SEGMENT_ID, field_id=1000, transform=IdentityTransform(), name="segment")
    return catalog.create_table(
        identifier,
        _schema(config),
        location=location,
        partition_spec=PartitionSpec(by_segment),
        properties=properties,
    )


def _create_of_columns(
    catalog: "Catalog", identifier: tuple[str, str], schema: "pa.Schema", location: str, properties: dict[str, str]
) -> "Table":
    """Create a table with these columns, and its partitions, at once. pyiceberg chooses the ids of fields."""
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

    try:
        transaction = catalog.create_table_transaction(identifier, schema, location=location, properties=properties)
    except (UnsupportedPyArrowTypeException, ValueError) as error:
        raise JobFailed(f"--schema: Iceberg does not have such a type: {_first_line(error)}") from error
    with transaction.update_spec() as update:
        update.add_identity("segment")
    return transaction.commit_transaction()


def _arrow_schema(export: Export, config: TopicConfig) -> "pa.Schema":
    schema = export.columns.arrow_schema(config.key_type, config.value_type)
    for field in schema:
        if "uint64" in str(field.type):
            # pyiceberg takes it for a long, and large numbers would be read as negative ones.
            raise JobFailed(f"--schema: Iceberg has no unsigned integers of 64 bits: column {field.name!r}")
    return schema


async def _config(export: Export, opened: Opened) -> TopicConfig:
    return (await read_topic(opened.source, opened.clock, export.topic)).config


def _schema(config: TopicConfig) -> "Schema":
    """The segment and the columns of a segment file, in Iceberg's types."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import BinaryType, LongType, MapType, NestedField, StringType, StructType, TimestamptzType

    key_type = BinaryType() if config.key_type == "binary" else StringType()
    value_type = BinaryType() if config.value_type == "binary" else StringType()
    headers = MapType(key_id=10, key_type=StringType(), value_id=11, value_type=BinaryType(), value_required=False)
    ref = StructType(
        NestedField(12, "uri", StringType(), required=False),
        NestedField(13, "size", LongType(), required=False),
        NestedField(14, "etag", StringType(), required=False),
        NestedField(15, "sha256", StringType(), required=False),
    )
    return Schema(
        NestedField(_SEGMENT_ID, "segment", LongType(), required=False),
        NestedField(2, "_offset", LongType(), required=True),
        NestedField(3, "_timestamp", TimestamptzType(), required=True),
        NestedField(4, "key", key_type, required=False),
        NestedField(5, "value", value_type, required=False),
        NestedField(6, "event_time", TimestamptzType(), required=False),
        NestedField(7, "headers", headers, required=False),
        NestedField(8, "_ref", ref, required=False),
    )


def _stage(export: Export, task: tuple[Piece, list[Any]]) -> WrittenPiece:
    """Write a piece below `data/`, where no reader sees it before the commit. Runs as a task."""
    return stage(export, _folder(task[0]), task)


def _folder(piece: Piece) -> str:
    return f"{DATA_FOLDER}segment={piece.segment}/"


async def _facts(opened: Opened, pieces: Sequence[Piece], written: Sequence[WrittenPiece]) -> list[DataFileFacts]:
    return [
        DataFileFacts(
            _plain(file.name if file.by_reference else opened.target.uri(_folder(piece) + file.name)), piece.segment
        )
        for piece, each in zip(pieces, written, strict=True)
        for file in each.files
    ]


def _is_committed(table: "Table", run: int) -> bool:
    return int(table.properties.get(RUN_PROPERTY, "0")) >= run


def _commit(target: IcebergTarget, export: Export, table: "Table", files: Iterable[DataFileFacts], run: int) -> None:
    """Add the files and record the run in one commit, which fails if the table has changed since it was opened.

    If we stop before the commit, files are left that no reader sees and that the same run finds again. If we stop after
    it, the number of the run in the table shows that it is done.
    """
    from pyiceberg.exceptions import CommitFailedException
    from sqlalchemy.exc import SQLAlchemyError

    # The columns of our files have names instead of Iceberg's field ids.
    names = table.schema().name_mapping.model_dump_json()
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as executor:
        data_files = list(executor.map(partial(_data_file, table), files))
    try:
        with table.transaction() as transaction:
            transaction.set_properties({RUN_PROPERTY: str(run), NAMES_PROPERTY: names})
            with transaction.update_snapshot(snapshot_properties={RUN_PROPERTY: str(run)}).fast_append() as append:
                for data_file in data_files:
                    append.append_data_file(data_file)
    except CommitFailedException as error:
        if not _is_committed(open_table(target, export), run):
            raise JobFailed(f"the Iceberg table has changed meanwhile, run the export again: {error}") from error
    except (SQLAlchemyError, OSError) as error:
        # The commit may have been made or not. The next export finds out by the run's number.
        raise JobFailed(
            f"the commit to the Iceberg table has no known outcome, run the export again: {_first_line(error)}"
        ) from error


def _data_file(table: "Table", facts: DataFileFacts) -> "DataFile":
    """The table's entry for a file, from the footer of the file."""
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    schema = table.schema()
    source = table.io.new_input(facts.path)
    with source.open() as stream:
        metadata = pq.read_metadata(stream)
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=metadata,
        stats_columns=compute_statistics_plan(schema, table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=facts.path,
        file_format=FileFormat.PARQUET,
        partition=Record(facts.segment),
        file_size_in_bytes=len(source),
        sort_order_id=None,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
