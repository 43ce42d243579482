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

from pipeline.errors import JobFailed
from pipeline.export.choices import IcebergTarget
from pipeline.export.export import Export, Opened, change_state, files_of, stage, unfit_messages, with_stores, work_of
from pipeline.export.export_files import WrittenPiece
from pipeline.export.export_plan import Piece
from pipeline.export.export_state import ExportState
from pipeline.export.iceberg_catalog import (
    RUN_PROPERTY,
    existing_table,
    failures,
    first_line,
    is_committed,
    library_errors,
    open_table,
    plain,
    point_to,
)
from pipeline.workers import Workers

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

NAMES_PROPERTY = "schema.name-mapping.default"
FOOTERS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class DataFileFacts:
    """A file that is to be added to the table: its path and its segment."""

    path: str
    segment: int


def finish_run(target: IcebergTarget, workers: Workers, export: Export, state: ExportState) -> int:
    """As `pipeline.export.export.FinishRun`."""
    assert state.pending is not None
    unfit = 0
    table = existing_table(target, export, runs=state.runs - 1)
    if table is None or not is_committed(table, state.runs):
        pieces = state.pending.pieces
        tasks = with_stores(export, lambda opened: files_of(export, opened, pieces))
        written = workers.run(tasks, partial(_stage, export, state), **work_of(tasks))
        unfit = unfit_messages(written)
        files = with_stores(export, lambda opened: _facts(opened, state, pieces, written))
        # If we stop before this line, the table is as it was, and a first run may still be given up.
        state = _changed(export, state, state.staged())
        table = _commit(target, export, table or open_table(target, export), files, state.runs)
    with_stores(export, partial(point_to, table.metadata_location))
    _changed(export, state, state.done())
    return unfit


def _changed(export: Export, expected: ExportState, wanted: ExportState) -> ExportState:
    with_stores(export, lambda opened: change_state(export, opened, expected, wanted))
    return wanted


def _stage(export: Export, state: ExportState, task: tuple[Piece, list[Any]]) -> WrittenPiece:
    """Write a piece where no reader sees it before the commit. Runs as a task."""
    return stage(export, state, _folder(state, task[0]), task)


def _folder(state: ExportState, piece: Piece) -> str:
    again = f"-{state.given_up}" if state.given_up else ""
    return f"data{again}/segment={piece.segment}/"


async def _facts(
    opened: Opened, state: ExportState, pieces: Sequence[Piece], written: Sequence[WrittenPiece]
) -> list[DataFileFacts]:
    return [
        DataFileFacts(
            plain(file.name if file.by_reference else opened.target.uri(_folder(state, piece) + file.name)),
            piece.segment,
        )
        for piece, each in zip(pieces, written, strict=True)
        for file in each.files
    ]


def _commit(target: IcebergTarget, export: Export, table: "Table", files: Iterable[DataFileFacts], run: int) -> "Table":
    """Add the files and record the run in one commit, which fails if the table has changed since it was opened.

    Returns the table with the run. If we stop before the commit, files are left that no reader sees and that the same
    run finds again. If we stop after it, the number of the run in the table shows that it is done.
    """
    from pyiceberg.exceptions import CommitFailedException

    # The columns of our files have names instead of Iceberg's field ids.
    names = table.schema().name_mapping.model_dump_json()
    with failures("the files of the Iceberg table"), ThreadPoolExecutor(FOOTERS_AT_ONCE) as executor:
        data_files = list(executor.map(partial(data_file_of, table), files))
    try:
        with table.transaction() as transaction:
            transaction.set_properties({RUN_PROPERTY: str(run), NAMES_PROPERTY: names})
            with transaction.update_snapshot(snapshot_properties={RUN_PROPERTY: str(run)}).fast_append() as append:
                for data_file in data_files:
                    append.append_data_file(data_file)
    except CommitFailedException as error:
        there = existing_table(target, export)
        if there is None or not is_committed(there, run):
            raise JobFailed(f"the Iceberg table has changed meanwhile, run the export again: {error}") from error
        return there
    except library_errors() as error:
        # The commit may have been made or not. The next export finds out by the run's number.
        raise JobFailed(
            f"the commit to the Iceberg table has no known outcome, run the export again: {first_line(error)}"
        ) from error
    return table


def data_file_of(table: "Table", facts: DataFileFacts) -> "DataFile":
    """Return the table's entry for a file, from the footer of the file."""
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
