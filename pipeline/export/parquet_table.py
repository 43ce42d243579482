"""An exported table of plain Parquet files, partitioned by day as in Hive, for readers that list a folder.

The files of a run are written below `_braidmq/`, where readers do not look. Once all are written and the record says
so, they are moved. A run that is killed before that has added nothing. If it is killed while it moves files, the next
call finishes it. Until then each visible file is whole, and no message is visible twice.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from filer.errors import ObjectExists, ObjectNotFound
from filer.stores.store import ObjectInfo, Store
from pipeline.export.export import Export, Opened, change_state, files_of, stage, unfit_messages, with_stores, work_of
from pipeline.export.export_plan import Piece
from pipeline.export.export_state import FOLDER, ExportState
from pipeline.workers import Workers

MOVED_TOGETHER = 64


def finish_run(workers: Workers, export: Export, state: ExportState) -> int:
    """As `pipeline.export.export.FinishRun`."""
    folder = _folder(state)
    assert state.pending is not None
    pieces = state.pending.pieces
    unfit = 0
    if not state.pending.staged:
        tasks = with_stores(export, lambda opened: files_of(export, opened, pieces))
        unfit = unfit_messages(workers.run(tasks, partial(stage, export, state, folder), **work_of(tasks)))
        state = _changed(export, state, state.staged())
    staged = with_stores(export, lambda opened: _staged_files(opened, folder, pieces))
    keys = [info.key for info in staged]
    groups = [keys[first : first + MOVED_TOGETHER] for first in range(0, len(keys), MOVED_TOGETHER)]
    size_bytes = sum(info.size_bytes for info in staged)
    workers.run(groups, partial(_move, export, folder), files=len(staged), size_bytes=size_bytes)
    _changed(export, state, state.done())
    with_stores(
        export, lambda opened: _sweep(opened, before=_folder(state.model_copy(update={"runs": state.runs + 1})))
    )
    return unfit


def _folder(state: ExportState) -> str:
    """Return where a run's files are staged. The folder of a run that was given up sorts before those of later runs."""
    return f"{FOLDER}/run-{state.runs:06d}{f'.{state.given_up}' if state.given_up else ''}/"


async def _sweep(opened: Opened, *, before: str) -> None:
    """Delete staged files of earlier runs. The files of a finished run have been moved, so these are left over."""
    await opened.target.delete([info.key async for info in opened.target.list(f"{FOLDER}/run-") if info.key < before])


def _changed(export: Export, expected: ExportState, wanted: ExportState) -> ExportState:
    with_stores(export, lambda opened: change_state(export, opened, expected, wanted))
    return wanted


async def _staged_files(opened: Opened, folder: str, pieces: Sequence[Piece]) -> list[ObjectInfo]:
    """Return the staged files of the run's pieces. It may have staged more pieces, which have expired since."""
    names = {piece.name for piece in pieces}
    return [info async for info in opened.target.list(folder) if info.key.rpartition("/")[2] in names]


def _move(export: Export, folder: str, keys: Sequence[str]) -> None:
    """Move staged files to where readers look. Runs as a task."""

    async def work(opened: Opened) -> None:
        for key in keys:
            await move_file(opened.target, key, key.removeprefix(folder))

    with_stores(export, work)


async def move_file(store: Store, staged: str, final: str) -> None:
    """Create the file under its final name, whole, if absent; then delete the staged file.

    If a call stops in between, both exist. The next call, or another export that does the same, deletes the staged one.
    """
    with suppress(ObjectNotFound):
        fetched = await store.get(staged)
        with suppress(ObjectExists):
            await store.create(final, fetched.data)
        await store.delete([staged])
