"""`export`: add a topic's messages to a table in runs. Each run adds the new messages since the one before.

A run is recorded before it begins (`export_state`). Then its files are written where no reader of the table looks, and
after that they are made visible. If a run is killed, the next call finishes it first.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, TypeVar

from filer.clock import Clock, SystemClock
from filer.errors import CorruptFile, InvalidInput, ObjectExists
from filer.keys import FileName
from filer.segment.segment_log import SegmentRef
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from filer.topic.topic_state import TopicState
from filer.verification.stored_files import verify_file
from pipeline.errors import JobFailed
from pipeline.export.choices import InPlace, PartitionBy, PartitionEvery, TableFormat
from pipeline.export.export_files import TableForm, Written, WrittenPiece, first_of, write_piece
from pipeline.export.export_plan import (
    MOST_PIECES,
    Copies,
    Piece,
    copies_of,
    past_expired,
    plan_pieces,
    positions_after,
    with_new,
    without_expired,
)
from pipeline.export.export_state import ExportState, StateFile, Target
from pipeline.export.partitions import hidden_by, partition_columns
from pipeline.export.table_columns import MESSAGES, TableColumns
from pipeline.stores import open_retrying
from pipeline.topic_files import LiveFile, SegmentFiles, list_topic, read_topic
from pipeline.workers import Workers

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Export:
    """What to export, and where to. `in_place`: which files a table of Iceberg refers to instead of copies.

    Messages whose values do not fit the schema of `columns` go to `unfit_to`. Without it they are refused.
    """

    source: StoreAddress
    target: StoreAddress
    topic: str
    table_format: TableFormat = "parquet"
    partition_by: PartitionBy = "timestamp"
    partition_every: PartitionEvery = "day"
    columns: TableColumns = MESSAGES
    unfit_to: StoreAddress | None = None
    in_place: InPlace = InPlace.NO
    skip_expired: bool = False

    @property
    def columns_of_folders(self) -> tuple[str, str]:
        """Return the names under which readers of a new table see the folders of a day and of an hour."""
        return partition_columns(self.columns.shown, self.partition_by, self.partition_every)

    def hidden_in(self, target: Target) -> list[str]:
        """Return the columns that the folders of that table hide from readers. No new table has any."""
        return hidden_by(target.partition_columns, self.columns.shown, self.partition_by, self.partition_every)


@dataclass(frozen=True, slots=True)
class Opened:
    """The two open stores of an export."""

    source: Store
    target: Store
    clock: Clock


@dataclass(frozen=True, slots=True)
class Exported:
    """The number of runs of one call, and the messages they added. `unfit` are those that they put apart instead.

    `hidden` are columns of the table that its folders hide from readers.
    """

    runs: int = 0
    messages: int = 0
    by_reference: int = 0
    unfit: int = 0
    hidden: tuple[str, ...] = ()

    def plus(self, pieces: Sequence[Piece], unfit: int = 0) -> "Exported":
        """Return the sum with one more run, of those pieces."""
        messages = sum(piece.stop - piece.start for piece in pieces) - unfit
        referred = sum(piece.stop - piece.start for piece in pieces if piece.by_reference is not None)
        return replace(
            self,
            runs=self.runs + 1,
            messages=self.messages + messages,
            by_reference=self.by_reference + referred,
            unfit=self.unfit + unfit,
        )


@dataclass(frozen=True, slots=True)
class Planned:
    """The pieces of the run that would be next, and what it would copy.

    `is_unfinished`: it has begun before, and would be finished.
    """

    pieces: tuple[Piece, ...]
    copies: Copies
    is_unfinished: bool = False


FinishRun = Callable[[Workers, Export, ExportState], int]
"""Writes the files of the pending run that are missing, and makes the whole run visible.

Returns how many of its messages this call has put apart, since they do not fit. It may be stopped anywhere and called
again with the recorded state. Raises any `BraidError`.
"""


def export_topic(workers: Workers, export: Export, finish_run: FinishRun) -> Exported:
    """Add all messages that are new now. Raises any `BraidError`; the next call continues where this one stopped."""
    done, is_last = Exported(), False
    while not is_last:
        state, is_last = with_stores(export, lambda opened: _next_run(export, opened))
        done = replace(done, hidden=tuple(export.hidden_in(state.target)))
        if state.pending is not None:
            unfit = finish_run(workers, export, state)
            done = done.plus(state.pending.pieces, unfit)
    return done


def planned(export: Export) -> Planned:
    """Return what `export_topic` would add now, with an interrupted run. Writes nothing. Raises any `BraidError`."""
    return with_stores(export, lambda opened: _planned(export, opened))


async def _planned(export: Export, opened: Opened) -> Planned:
    topic = await _read(export, opened)
    _check_retention(export, topic)
    state = await StateFile(opened.target).read(_target(export, topic))
    if state.pending is not None:
        pieces = state.pending.pieces
    else:
        await _check_folder(opened.target, state)
        pieces, _ = await _new_pieces(export, opened.source, topic, state)
    listed = await _list_segments_of(pieces, opened.source, topic)
    return Planned(pieces, copies_of(listed, pieces), is_unfinished=state.pending is not None)


async def _read(export: Export, opened: Opened) -> TopicState:
    """Return the topic. Raises `InvalidInput` as `read_topic`, and for a topic group: rows would lack their topic."""
    state = await read_topic(opened.source, opened.clock, export.topic)
    if state.is_grouped:
        raise InvalidInput(
            f"{export.topic!r} is a topic group, which cannot be exported: read its files, whose column _topic names "
            "the topic of each message"
        )
    return state


async def _list_segments_of(pieces: Sequence[Piece], source: Store, topic: TopicState) -> list[SegmentFiles]:
    wanted = {piece.segment for piece in pieces}
    return await list_topic(source, topic, (each for each in topic.segments if each.id in wanted))


def with_stores(export: Export, work: Callable[[Opened], Awaitable[T]]) -> T:
    """Run the coroutine on an event loop of its own, with both stores open meanwhile; returns its result."""

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
            store = open_retrying(address, clock)
            stack.push_async_callback(store.close)
            stores.append(store)
        yield Opened(stores[0], stores[1], clock)


async def _next_run(export: Export, opened: Opened) -> tuple[ExportState, bool]:
    """Return the state with an unfinished run: the interrupted one, or a new one if there are new messages.

    Returns also whether it is the last one: whether it reaches everything that was there when this call looked.
    """
    topic = await _read(export, opened)
    _check_retention(export, topic)
    file = StateFile(opened.target)
    state = await file.read(_target(export, topic))
    if state.pending is not None:
        return await _unfinished(export, topic, file, state), False
    await _check_folder(opened.target, state)
    pieces, exported = await _new_pieces(export, opened.source, topic, state)
    if not pieces:
        return state, True
    begun = state.begun(pieces, positions_after(exported, pieces, [each.id for each in topic.segments]))
    # If we stop before this line, nothing has happened. If we stop after it, the next call does this run.
    await file.write(begun)
    return begun, len(pieces) < MOST_PIECES


def _check_retention(export: Export, topic: TopicState) -> None:
    retention = topic.config.retention
    if export.in_place is not InPlace.NO and (retention.seconds is not None or retention.bytes is not None):
        raise InvalidInput(
            f"topic {topic.topic!r} has retention, which would delete files that a table in place refers to"
        )


async def _new_pieces(
    export: Export, source: Store, topic: TopicState, state: ExportState
) -> tuple[tuple[Piece, ...], Mapping[int, int]]:
    """Return the pieces of the next run, and the positions behind which they begin."""
    exported: Mapping[int, int] = state.exported
    if export.skip_expired or not exported:
        # The first run begins with the messages that retention has left.
        exported = past_expired(topic.segments, exported)
    listed = await list_topic(source, topic, with_new(topic.segments, exported))
    return tuple(plan_pieces(listed, exported, export.in_place)), exported


async def _unfinished(export: Export, topic: TopicState, file: StateFile, state: ExportState) -> ExportState:
    """Return the state with the interrupted run: whole, or without expired messages if they may be skipped.

    It stays the same run, with the same number. If all of it was made visible before, its number shows that, and the
    messages that have expired since are not missed.
    """
    assert state.pending is not None
    pending, left = state.pending, state
    if export.columns.are_stored_otherwise and not state.given_up and not pending.staged:
        # An earlier version may have written files of this run, by types that Iceberg lacks. They stay invisible.
        left = left.model_copy(update={"given_up": 1})
    if export.skip_expired and not (pending.staged and export.table_format == "parquet"):
        left = left.reduced_to(without_expired(topic.segments, pending.pieces))
    if left != state:
        # If we stop here, this is what the next call finds. An export that continues the run as it was finds this other
        # state once it has staged its files.
        await file.write(left)
    return left


async def _check_folder(store: Store, state: ExportState) -> None:
    """Raises `JobFailed` if a new table would lie among files that are not part of it."""
    if state.runs or state.given_up:
        return
    async for info in store.list(""):
        if info.key.endswith(".parquet"):
            raise JobFailed(
                f"{store.uri(info.key)} exists and is not from an export: a table needs a folder of its own"
            )


def _target(export: Export, topic: TopicState) -> Target:
    return Target(
        topic=topic.topic,
        created_us=topic.created_us,
        table_format=export.table_format,
        partition_by=export.partition_by,
        partition_every=export.partition_every,
        columns=export.columns.descriptions,
        partition_columns=export.columns_of_folders,
    )


async def state_of(export: Export, opened: Opened) -> ExportState:
    """Return the record of the export. Raises `JobFailed` if it is of another one."""
    return await StateFile(opened.target).read(_target(export, await _read(export, opened)))


async def change_state(export: Export, opened: Opened, expected: ExportState, wanted: ExportState) -> None:
    """Replace the state `expected` by `wanted`. Raises `JobFailed` if it is neither: another export is running."""
    file = StateFile(opened.target)
    state = await file.read(expected.target)
    if state == wanted:
        return
    if state != expected:
        raise JobFailed(f"another export of topic {export.topic!r} to the same place is running")
    await file.write(wanted)


async def files_of(export: Export, opened: Opened, pieces: Sequence[Piece]) -> list[tuple[Piece, list[LiveFile]]]:
    """Return the pieces, each with its current files. Raises `JobFailed` if retention has deleted some messages."""
    topic = await _read(export, opened)
    if without_expired(topic.segments, pieces) != tuple(pieces):
        raise JobFailed("messages have expired before they were exported; --skip-expired continues without them")
    listed = await _list_segments_of(pieces, opened.source, topic)
    files = {each.segment.id: each.files for each in listed}
    return [
        (piece, [file for file in files[piece.segment] if file.stop > piece.start and file.start < piece.stop])
        for piece in pieces
    ]


class Work(TypedDict):
    """How much work some tasks are, as `Workers.run` takes it."""

    files: int
    size_bytes: int


def work_of(tasks: Sequence[tuple[Piece, list[LiveFile]]]) -> Work:
    """Return the work of staging the pieces. A file that the table refers to is read too, to check it."""
    files = [file for _, each in tasks for file in each]
    return Work(files=len(files), size_bytes=sum(file.size_bytes for file in files))


def stage(export: Export, state: ExportState, folder: str, task: tuple[Piece, list[LiveFile]]) -> WrittenPiece:
    """Write a piece below the folder, unless the table can refer to its existing, sound file. Runs as a task.

    Raises `CorruptFile` for a damaged file.
    """
    piece, files = task

    async def work(opened: Opened) -> WrittenPiece:
        if piece.by_reference is not None and await _is_there(opened.source, export.topic, piece):
            uri = opened.source.uri(piece.by_reference)
            return WrittenPiece([Written(uri, piece.stop - piece.start, by_reference=True)])
        keeps_types = export.columns.schema is not None and export.table_format == "parquet"
        folders = state.target.partition_columns
        form = TableForm(export.columns, export.partition_by, export.partition_every, folders, keeps_types)
        written = await write_piece(opened.source, opened.target, piece, files, folder=folder, form=form)
        if written.unfit_messages:
            name = f"{attempt_prefix(state)}{piece.name}"
            await _put_apart(export, opened, name, written.unfit)
        return replace(written, unfit=b"")

    return with_stores(export, work)


def unfit_messages(written: Sequence[WrittenPiece]) -> int:
    """Return how many of the messages are not in the table."""
    return sum(each.unfit_messages for each in written)


def attempt_prefix(state: ExportState) -> str:
    """Return the prefix of the names of files that a run writes anew: those of a run that was given up stay."""
    return f"{state.given_up}-" if state.given_up else ""


async def _put_apart(export: Export, opened: Opened, name: str, unfit: bytes) -> None:
    """Store the messages of a piece that do not fit, under that name. Raises `InvalidInput` if they are refused.

    This comes before the run is visible. If we stop in between, the next call writes the same again, or finds it.
    """
    if export.unfit_to is None:
        raise InvalidInput(f"{first_of(unfit)}; --unfit-to DIR puts such messages there, and goes on")
    store = open_retrying(export.unfit_to, opened.clock)
    try:
        with contextlib.suppress(ObjectExists):
            await store.create(name, unfit)
    finally:
        await store.close()


async def _is_there(store: Store, topic: str, piece: Piece) -> bool:
    """Whether the file that the piece refers to exists. All of it is checked: the table's readers will not."""
    name = FileName.parse(piece.by_reference or "")
    assert name is not None
    verdict, _ = await verify_file(store, SegmentRef(topic, piece.segment), name)
    if verdict.condition == "damaged":
        raise CorruptFile(f"{verdict.key}: {verdict.why}", key=verdict.key)
    return verdict.condition != "missing"
