"""Finds the Iceberg table of an export: its catalogue, and the conditions that the table has to meet there."""

import contextlib
import struct
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from filer.errors import EtagMismatch, InvalidInput, ObjectExists, ObjectNotFound
from filer.format.schema import MessageSchema
from filer.topic.topic_schema import schema_of
from pipeline.errors import JobFailed
from pipeline.export.choices import IcebergTarget
from pipeline.export.export import Export, Opened, with_stores
from pipeline.export.export_state import FOLDER
from pipeline.output import counted
from pipeline.topic_files import read_topic

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

RUN_PROPERTY = "braidmq.run"
HINT_KEY = "metadata/version-hint.text"
"""Names the table's newest metadata, for readers that are given a folder instead of a catalogue, such as DuckDB."""
_SEGMENT_ID = 1
_METADATA = ".metadata.json"


def open_table(target: IcebergTarget, export: Export) -> "Table":
    """Return the table, which is created if it is missing. Raises `JobFailed` as `existing_table`."""
    table = existing_table(target, export)
    if table is None:
        with failures():
            table = _create(target, export)
        _check_place(target, export, table)
    return table


def existing_table(target: IcebergTarget, export: Export, *, runs: int = 0) -> "Table | None":
    """Return the table, which must contain so many runs; None if it is missing, and they are 0.

    Raises `JobFailed` if pyiceberg is missing, the catalogue fails, or the table of that name is another one. New
    messages would be added there to a table that lacks the earlier ones.
    """
    with failures():
        table = _load(target, export, runs)
    if table is not None:
        _check_place(target, export, table)
        with failures():
            _widen(export, table)
    return table


def is_committed(table: "Table", run: int) -> bool:
    """Whether the table contains that run, and hence all before it."""
    return int(table.properties.get(RUN_PROPERTY, "0")) >= run


@contextlib.contextmanager
def failures(what: str = "the catalogue of the Iceberg table") -> Iterator[None]:
    """Turn errors of pyiceberg and the libraries below it into `JobFailed`, with one line."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise JobFailed(
            f"Iceberg needs the Python package {error.name!r}; pip install 'braidmq[iceberg]' has those of a catalogue "
            "in a file of SQLite"
        ) from error
    except library_errors() as error:
        raise JobFailed(f"{what}: {first_line(error)}") from error


def library_errors() -> tuple[type[Exception], ...]:
    """Return the errors of pyiceberg: its own, which have no common class, and those of the libraries below it."""
    from pyiceberg import exceptions
    from sqlalchemy.exc import SQLAlchemyError

    own = [each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, Exception)]
    # Arrow's errors are ValueError and OSError, as are those of requests. The last ones are for values of statistics.
    return (*own, SQLAlchemyError, OSError, ValueError, TypeError, LookupError, ArithmeticError, struct.error)


def first_line(error: Exception) -> str:
    """Return the first line of the message. SQLAlchemy adds the statement and links to its documentation."""
    return (str(error).splitlines() or [type(error).__name__])[0]


async def location_of(opened: Opened) -> str:
    """Return the location of the table as pyiceberg writes it, with unescaped paths."""
    return plain(opened.target.uri(FOLDER).removesuffix(f"/{FOLDER}"))


def plain(uri: str) -> str:
    """Return the URI as pyiceberg takes it."""
    return unquote(uri) if uri.startswith("file://") else uri


async def point_to(metadata: str, opened: Opened) -> None:
    """Make the version hint name that metadata, unless it names newer.

    It is written after the commit, and before the record says that the run is done. If we stop in between, readers of
    the folder see the table as it was before, whole, and the next call writes the hint.
    """
    version = metadata.rpartition("/")[2].removesuffix(_METADATA)
    while True:
        with contextlib.suppress(ObjectExists, EtagMismatch, ObjectNotFound):
            try:
                found = await opened.target.get(HINT_KEY)
            except ObjectNotFound:
                await opened.target.create(HINT_KEY, version.encode())
                return
            if _number(found.data.decode(errors="replace")) < _number(version):
                await opened.target.replace(HINT_KEY, version.encode(), etag=found.info.etag)
            return


def _number(version: str) -> int:
    """Return the count with which the name of metadata begins. A name without one counts as the oldest."""
    number = version.partition("-")[0]
    return int(number) if number.isascii() and number.isdecimal() else -1


def _load(target: IcebergTarget, export: Export, runs: int) -> "Table | None":
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        table = _catalog(target, export).load_table((target.namespace, target.name))
    except (NoSuchTableError, NoSuchNamespaceError):
        if runs:
            raise JobFailed(_another(target, "is not there, but would have", runs)) from None
        return None
    if not is_committed(table, runs):
        raise JobFailed(_another(target, "lacks some of", runs))
    names = [field.name for field in table.schema().fields]
    if table.current_snapshot() is None and names != list(export.columns.shown):
        raise JobFailed(
            f"table {target.namespace}.{target.name} of this catalogue is empty and has other columns, "
            f"{', '.join(names)}: drop it, or give another --table"
        )
    return table


def _another(target: IcebergTarget, fault: str, runs: int) -> str:
    return (
        f"table {target.namespace}.{target.name} of this catalogue {fault} what {counted(runs, 'run')} of this export "
        "added: give the same --table and --catalog as then"
    )


def _check_place(target: IcebergTarget, export: Export, table: "Table") -> None:
    location = with_stores(export, location_of)
    if plain(table.location()).rstrip("/") != location:
        raise JobFailed(
            f"table {target.namespace}.{target.name} of the catalogue lies at {table.location()}, not at {location}"
        )


def _widen(export: Export, table: "Table") -> None:
    """Widen columns: earlier versions had `int` for unsigned integers of 32 bits, which does not hold all of them."""
    if export.columns.are_stored_otherwise:
        schema = with_stores(export, partial(message_schema, export))
        with table.update_schema() as update:
            update.union_by_name(export.columns.arrow_schema(schema))


def _catalog(target: IcebergTarget, export: Export) -> "Catalog":
    from pyiceberg.catalog import load_catalog
    from pyiceberg.catalog.sql import SqlCatalog

    address, properties = _catalog_address(target, export), _file_properties(export)
    if address.startswith(("http://", "https://")):
        # Tokens and the warehouse come from pyiceberg's own configuration, by this name.
        return load_catalog("braidmq", type="rest", uri=address, **properties)
    return SqlCatalog("braidmq", uri=address, **properties)


def _catalog_address(target: IcebergTarget, export: Export) -> str:
    if target.catalog is not None:
        return target.catalog
    root = with_stores(export, location_of)
    if not root.startswith("file://"):
        raise InvalidInput("an Iceberg table on S3 needs --catalog, such as sqlite:////home/ada/tables.db")
    return f"sqlite:///{root.removeprefix('file://')}/{FOLDER}/catalog.db"


def _file_properties(export: Export) -> dict[str, str]:
    given = {"s3.endpoint": export.target.endpoint_url, "s3.region": export.target.region}
    return {name: value for name, value in given.items() if value is not None}


def _create(target: IcebergTarget, export: Export) -> "Table":
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

    catalog, identifier = _catalog(target, export), (target.namespace, target.name)
    catalog.create_namespace_if_not_exists(target.namespace)
    try:
        return _create_in(catalog, identifier, export)
    except (TableAlreadyExistsError, CommitFailedException):
        # Another export has just created it.
        return catalog.load_table(identifier)


def _create_in(catalog: "Catalog", identifier: tuple[str, str], export: Export) -> "Table":
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    messages = with_stores(export, partial(message_schema, export))
    location = with_stores(export, location_of)
    # A commit that is retried on top of another export's commit would add the same messages twice.
    properties = {"commit.retry.num-retries": "0"}
    if not export.columns.are_those_of_messages:
        # pyiceberg chooses the ids of fields. The table and its partitions are there at once.
        schema = export.columns.arrow_schema(messages)
        transaction = catalog.create_table_transaction(identifier, schema, location=location, properties=properties)
        with transaction.update_spec() as update:
            update.add_identity("segment")
        return transaction.commit_transaction()
    by_segment = PartitionField(source_id=_SEGMENT_ID, field_id=1000, transform=IdentityTransform(), name="segment")
    return catalog.create_table(
        identifier,
        _schema(messages),
        location=location,
        partition_spec=PartitionSpec(by_segment),
        properties=properties,
    )


async def message_schema(export: Export, opened: Opened) -> MessageSchema:
    """Return the schema of the topic's messages. Raises as `read_topic`."""
    return schema_of(await read_topic(opened.source, opened.clock, export.topic))


def _schema(messages: MessageSchema) -> "Schema":
    """Return the segment and the columns of a segment file, in Iceberg's types."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import BinaryType, LongType, MapType, NestedField, StringType, StructType, TimestamptzType

    key, value = (
        StringType() if pa.types.is_string(messages.log.field(name).type) else BinaryType() for name in ("key", "value")
    )
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
        NestedField(4, "key", key, required=False),
        NestedField(5, "value", value, required=False),
        NestedField(6, "event_time", TimestamptzType(), required=False),
        NestedField(7, "headers", headers, required=False),
        NestedField(8, "_ref", ref, required=False),
    )
