"""`export`: a topic's messages as a table, a run at a time, each of which adds what is new since the one before.

A run is written down before it begins (`export_state`), and its files are written where no reader of the table looks.
Only then are they made visible. Whoever comes after a run that was killed finishes that one first.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from filer.clock import Clock, SystemClock
from filer.errors import InvalidInput, ObjectNotFound
from filer.store import Store
from filer.topic_state import TopicState
from pipeline.errors import JobFailed
from pipeline.export_files import Written, write_piece
from pipeline.export_plan import Piece, past_expired, plan_pieces, positions_after, without_expired
from pipeline.export_state import ExportState, PartitionBy, StateFile, TableFormat, Target
from pipeline.store_address import StoreAddress
from pipeline.topic_files import LiveFile, SegmentFiles, list_topic, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Export:
    """What is to be exported, and where to. `in_place`: settled files are referred to instead of copied."""

    source: StoreAddress
    target: StoreAddress
    topic: str
    table_format: TableFormat = "parquet"
    partition_by: PartitionBy = "timestamp"
    in_place: bool = False
    skip_expired: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """The two stores of an export, opened."""

    source: Store
    target: Store
    clock: Clock


@dataclass(frozen=True, slots=True)
class Exported:
    """What the runs of one call added."""

    runs: int = 0
    messages: int = 0
    by_reference: int = 0

    def plus(self, pieces: Sequence[Piece]) -> "Exported":
        """With a run of those pieces."""
        messages = sum(piece.stop - piece.start for piece in pieces)
        referred = sum(piece.stop - piece.start for piece in pieces if piece.by_reference is not None)
        return Exported(self.runs + 1, self.messages + messages, self.by_reference + referred)


FinishRun = Callable[["SparkSession", Export, ExportState], None]
"""Writes what of the pending run is not written yet, and makes it visible together.

Safe to be stopped anywhere and to be called again with the state that stands. Raises any `BraidError`.
"""


def export_topic(spark: "SparkSession", export: Export, finish_run: FinishRun) -> Exported:
    """Add all that is new. Raises any `BraidError`; the next call goes on from wherever this one stopped."""
    done = Exported()
    while (state := with_stores(export, lambda opened: _next_run(export, opened))).pending is not None:
        finish_run(spark, export, state)
        done = done.plus(state.pending.pieces)
    return done


def with_stores(export: Export, work: Callable[[Opened], Awaitable[T]]) -> T:
    """What the coroutine gives, on an event loop of its own with both stores opened for it."""

    async def run() -> T:
        async with _opened(export) as opened:
            return await work(opened)

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def _opened(export: Export) -> AsyncIterator[Opened]:
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        stores = []
        for address in (export.source, export.target):
            store = address.open(clock)
            stack.push_async_callback(store.close)
            stores.append(store)
        yield Opened(stores[0], stores[1], clock)


async def _next_run(export: Export, opened: Opened) -> ExportState:
    """The state with the run that was left unfinished, or with one of what is new, if there is anything."""
    topic = await read_topic(opened.source, opened.clock, export.topic)
    retention = topic.config.retention
    if export.in_place and (retention.seconds is not None or retention.bytes is not None):
        raise InvalidInput(f"topic {topic.topic!r} has retention, which would take files away from a table in place")
    file = StateFile(opened.target)
    state = await file.read(_target(export, topic))
    listed = await list_topic(opened.source, topic)
    if state.pending is not None:
        return await _unfinished(export, listed, file, state)
    if not state.runs:
        await _check_nothing_there(opened.target)
    exported = state.exported
    if export.skip_expired or not exported:
        # The first run begins with what retention has left.
        exported = past_expired(listed, exported)
    pieces = tuple(plan_pieces(listed, exported, in_place=export.in_place))
    if not pieces:
        return state
    begun = state.begun(pieces, positions_after(exported, pieces, [each.segment.id for each in listed]))
    # Stopping before this leaves nothing; after it, this run is what the next call does.
    await file.write(begun)
    return begun


async def _unfinished(
    export: Export, listed: Sequence[SegmentFiles], file: StateFile, state: ExportState
) -> ExportState:
    """The state with the run that somebody began: all of it, or what is left of it where that will do.

    It stays the same run, under its number: where all of it was made visible before, that is found to be so, and what
    has expired since is not missed.
    """
    assert state.pending is not None
    if not export.skip_expired or state.pending.staged:
        return state
    pieces = without_expired(listed, state.pending.pieces)
    if pieces == state.pending.pieces:
        return state
    left = state.left_with(pieces)
    # Whoever goes on with the run as it was finds another state when it has staged its files, or committed them.
    await file.write(left)
    return left


async def _check_nothing_there(store: Store) -> None:
    """Raises `JobFailed` where a table is to be made among files that are none of it."""
    async for info in store.list(""):
        if info.key.endswith(".parquet"):
            raise JobFailed(f"{store.uri(info.key)} is there, and no export put it there: a table lies by itself")


def _target(export: Export, topic: TopicState) -> Target:
    return Target(
        topic=topic.topic,
        created_us=topic.created_us,
        table_format=export.table_format,
        partition_by=export.partition_by,
    )


async def change_state(export: Export, opened: Opened, expected: ExportState, wanted: ExportState) -> None:
    """Put `wanted` in place of `expected`. Raises `JobFailed` where neither stands: another export is under way."""
    file = StateFile(opened.target)
    state = await file.read(expected.target)
    if state == wanted:
        return
    if state != expected:
        raise JobFailed(f"another export of topic {export.topic!r} to the same place is under way")
    await file.write(wanted)


async def files_of(export: Export, opened: Opened, pieces: Sequence[Piece]) -> list[tuple[Piece, list[LiveFile]]]:
    """The pieces, and the files that hold them as things are. Raises `JobFailed` where retention has taken some."""
    topic = await read_topic(opened.source, opened.clock, export.topic)
    listed = await list_topic(opened.source, topic)
    if without_expired(listed, pieces) != tuple(pieces):
        raise JobFailed("messages have expired before they were exported; --skip-expired goes on without them")
    files = {each.segment.id: each.files for each in listed}
    return [
        (piece, [file for file in files[piece.segment] if file.stop > piece.start and file.start < piece.stop])
        for piece in pieces
    ]


def stage(export: Export, folder: str, task: tuple[Piece, list[LiveFile]]) -> list[Written]:
    """Runs as a task: write a piece below the folder, unless the file that holds it serves and is still there."""
    piece, files = task

    async def work(opened: Opened) -> list[Written]:
        if piece.by_reference is not None and await _is_there(opened.source, piece.by_reference):
            return [Written(opened.source.uri(piece.by_reference), piece.stop - piece.start, by_reference=True)]
        return await write_piece(
            opened.source, opened.target, piece, files, folder=folder, partition_by=export.partition_by
        )

    return with_stores(export, work)


async def _is_there(store: Store, key: str) -> bool:
    try:
        await store.head(key)
    except ObjectNotFound:
        return False
    return True
