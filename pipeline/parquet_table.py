"""An exported table of plain Parquet files, partitioned by day in Hive's way, for readers that list a folder.

A run's files are written below `_braidmq/`, where they do not look, and moved from there once all are written and the
record says so. A run that is killed before has added nothing; one that is killed while it moves is finished by the
next call, and until then every file that can be seen is whole and holds messages once.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from filer.errors import ObjectExists, ObjectNotFound
from filer.store import Store
from pipeline.export import Export, Opened, change_state, files_of, stage, with_stores
from pipeline.export_plan import Piece
from pipeline.export_state import FOLDER, ExportState
from pipeline.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOVED_TOGETHER = 64


def finish_run(spark: "SparkSession", export: Export, state: ExportState) -> None:
    """As `pipeline.export.FinishRun`."""
    folder = _folder(state.runs)
    assert state.pending is not None
    pieces = state.pending.pieces
    if not state.pending.staged:
        tasks = with_stores(export, lambda opened: files_of(export, opened, pieces))
        run_tasks(spark, tasks, partial(stage, export, folder))
        state = _changed(export, state, state.staged())
    keys = with_stores(export, lambda opened: _staged_keys(opened, folder, pieces))
    groups = [keys[first : first + MOVED_TOGETHER] for first in range(0, len(keys), MOVED_TOGETHER)]
    run_tasks(spark, groups, partial(_move, export, folder))
    _changed(export, state, state.done())
    with_stores(export, lambda opened: _sweep(opened, before=_folder(state.runs + 1)))


def _folder(run: int) -> str:
    return f"{FOLDER}/run-{run:06d}/"


async def _sweep(opened: Opened, *, before: str) -> None:
    """Delete what runs have staged that others did away with since: what is done is moved."""
    await opened.target.delete([info.key async for info in opened.target.list(f"{FOLDER}/run-") if info.key < before])


def _changed(export: Export, expected: ExportState, wanted: ExportState) -> ExportState:
    with_stores(export, lambda opened: change_state(export, opened, expected, wanted))
    return wanted


async def _staged_keys(opened: Opened, folder: str, pieces: Sequence[Piece]) -> list[str]:
    """What is staged of the run as it is: it may have been of more pieces, some of which have expired."""
    names = {piece.name for piece in pieces}
    return [info.key async for info in opened.target.list(folder) if info.key.rpartition("/")[2] in names]


def _move(export: Export, folder: str, keys: Sequence[str]) -> None:
    """Runs as a task: put staged files where readers look."""

    async def work(opened: Opened) -> None:
        for key in keys:
            await move_file(opened.target, key, key.removeprefix(folder))

    with_stores(export, work)


async def move_file(store: Store, staged: str, final: str) -> None:
    """Under its new name the file is created whole, if absent; only then the old one goes.

    Stopping in between leaves both, and the next call, or another export that does the same, deletes the staged one.
    """
    with suppress(ObjectNotFound):
        fetched = await store.get(staged)
        with suppress(ObjectExists):
            await store.create(final, fetched.data)
        await store.delete([staged])
