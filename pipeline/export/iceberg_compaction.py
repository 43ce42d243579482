"""`mq pipeline export --compact`: rewrite small files of an Iceberg table as large ones, and delete unused files.

Three steps, each of which may be stopped at any line, and is done again by the next call:

1. New files are written, under names that no other call uses. No reader sees them.
2. One commit puts them in the place of the small ones. It fails if the table has changed since it was opened.
3. Old snapshots are taken out of the table, and then files are deleted that no snapshot uses and that are as old.
"""

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from filer.clock import Clock
from pipeline.errors import JobFailed
from pipeline.export.choices import IcebergTarget
from pipeline.export.export import Export, Opened, state_of, with_stores
from pipeline.export.export_files import BUFFER_BYTES, Encoder
from pipeline.export.iceberg_catalog import (
    RUN_PROPERTY,
    existing_table,
    failures,
    first_line,
    library_errors,
    location_of,
    message_schema,
    plain,
    point_to,
)
from pipeline.export.iceberg_table import FOOTERS_AT_ONCE, DataFileFacts, data_file_of
from pipeline.workers import Workers

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

LARGE_BYTES = 64 * 1024 * 1024
"""A file of that size stays as it is."""
MOST_BYTES = 128 * 1024 * 1024
"""Files become one of about that size at most."""
KEEP_SECONDS = 5 * 86_400
"""How long a snapshot stays, and an unused file: it may be that of a running call."""
COMPACTED = "compacted/"
_FOLDERS = ("data", COMPACTED, "metadata/")
_NAME = re.compile(r"(\d{10})-(\d{20})-(\d{20})(-[0-9A-Z]{26})?\.parquet")
_OURS = re.compile(r".*(\.parquet|\.avro|\.metadata\.json)")


@dataclass(frozen=True, slots=True)
class Compacted:
    """So many files became so many; so many snapshots were removed, and files deleted."""

    rewritten: int = 0
    written: int = 0
    snapshots: int = 0
    deleted: int = 0


class TableFile(NamedTuple):
    """A file of the table that an export has written: the messages `[start, stop)` of a segment, by its key."""

    segment: int
    start: int
    stop: int
    key: str
    size_bytes: int
    rows: int


class Group(NamedTuple):
    """Files that become one, in order. `token` is a part of its name that no other call has."""

    files: tuple[TableFile, ...]
    token: str

    @property
    def key(self) -> str:
        """The key of the one file."""
        segment, start, stop = self.files[0].segment, self.files[0].start, self.files[-1].stop
        return f"{COMPACTED}segment={segment}/{segment:010d}-{start:020d}-{stop:020d}-{self.token}.parquet"


def plan_groups(files: Iterable[TableFile], *, large_bytes: int, most_bytes: int) -> list[tuple[TableFile, ...]]:
    """Return runs of at least two small files that follow each other in their segment, of `most_bytes` in all."""
    groups: list[list[TableFile]] = [[]]
    for file in sorted(files):
        last = groups[-1]
        fits = not last or (
            last[-1].segment == file.segment and sum(each.size_bytes for each in last) + file.size_bytes <= most_bytes
        )
        if file.size_bytes >= large_bytes:
            groups.append([])
        elif fits:
            last.append(file)
        else:
            groups.append([file])
    return [tuple(group) for group in groups if len(group) > 1]


def compact_table(workers: Workers, target: IcebergTarget, export: Export, clock: Clock) -> Compacted:
    """Rewrite small files, and delete files that no snapshot uses.

    Raises any `BraidError`. The table has the same rows before, after, and in between.
    """
    table = existing_table(target, export)
    if table is None or table.current_snapshot() is None:
        return Compacted()
    location = with_stores(export, location_of)
    with failures("the files of the Iceberg table"):
        used = {plain(each.file_path): each for each in _whole_files(table)}
    files = [file for path, each in used.items() if (file := _table_file(path, each, location)) is not None]
    plans = plan_groups(files, large_bytes=LARGE_BYTES, most_bytes=MOST_BYTES)
    groups = [Group(plan, clock.ulid()) for plan in plans]
    before_us = clock.now_us() - KEEP_SECONDS * 1_000_000
    if groups:
        _replace(workers, export, table, groups, {file.key: used[f"{location}/{file.key}"] for file in files})
    snapshots = _expire(table, before_us)
    with_stores(export, partial(point_to, table.metadata_location))
    deleted = _clean(target, export, before_us)
    return Compacted(sum(len(group.files) for group in groups), len(groups), snapshots, deleted)


def _whole_files(table: "Table") -> "Iterable[DataFile]":
    """Yield the files in which all rows count. Others have had rows deleted by another program."""
    return [task.file for task in table.scan().plan_files() if not task.delete_files]


def _table_file(path: str, file: "DataFile", location: str) -> TableFile | None:
    """Return the file, if an export wrote it. Those of the topic, which a table in place refers to, lie elsewhere."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None or not path.startswith(f"{location}/"):
        return None
    segment, start, stop = map(int, match.group(1, 2, 3))
    key = path.removeprefix(f"{location}/")
    return TableFile(segment, start, stop, key, file.file_size_in_bytes, file.record_count)


def _replace(
    workers: Workers, export: Export, table: "Table", groups: Sequence[Group], used: "dict[str, DataFile]"
) -> None:
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    schema = export.columns.arrow_schema(with_stores(export, partial(message_schema, export)))
    files = [file for group in groups for file in group.files]
    paths = workers.run(
        groups, partial(_rewrite, export, schema), files=len(files), size_bytes=sum(file.size_bytes for file in files)
    )
    facts = [DataFileFacts(path, group.files[0].segment) for path, group in zip(paths, groups, strict=True)]
    with failures("the files of the Iceberg table"), ThreadPoolExecutor(FOOTERS_AT_ONCE) as executor:
        data_files = list(executor.map(partial(data_file_of, table), facts))
    try:
        # If we stop before the commit, the table is as it was; if we stop after it, it has the large files.
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
            for data_file in data_files:
                overwrite.append_data_file(data_file)
            for file in files:
                overwrite.delete_data_file(used[file.key])
    except (CommitFailedException, ValidationException) as error:
        raise JobFailed(f"the Iceberg table has changed meanwhile, run this again: {first_line(error)}") from error
    except library_errors() as error:
        raise JobFailed(
            f"the commit to the Iceberg table has no known outcome, run this again: {first_line(error)}"
        ) from error


def _rewrite(export: Export, schema: pa.Schema, group: Group) -> str:
    """Write the rows of the files as one file, in order; returns its path. Runs as a task."""

    async def work(opened: Opened) -> str:
        encoder, buffered_bytes = Encoder(), 0
        for file in group.files:
            data = (await opened.target.get(file.key)).data
            for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches():
                # Earlier versions wrote unsigned integers, for which the table has larger ones with a sign by now.
                buffered_bytes += encoder.add(pa.Table.from_batches([batch]).cast(schema))
                if buffered_bytes > BUFFER_BYTES:
                    encoder.flush()
                    buffered_bytes = 0
        if encoder.count != sum(file.rows for file in group.files):
            raise JobFailed(f"{group.key} would not have as many rows as the files of which it is made")
        await opened.target.create(group.key, memoryview(encoder.finish()))
        return plain(opened.target.uri(group.key))

    return with_stores(export, work)


def _expire(table: "Table", before_us: int) -> int:
    """Remove older snapshots from the table; returns their number. The current one stays."""
    before = datetime.fromtimestamp(before_us / 1_000_000, UTC).replace(tzinfo=None)
    there = len(table.snapshots())
    with failures():
        table.maintenance.expire_snapshots().older_than(before).commit()
    return there - len(table.snapshots())


def _clean(target: IcebergTarget, export: Export, before_us: int) -> int:
    """Delete files of the table that no snapshot uses; returns their number.

    They are listed first. If no run is pending after that, none of them is one that a run is about to add: a run that
    begins later writes new ones. Files that were added before are in the table that is opened then.
    """
    candidates = with_stores(export, partial(_old_files, before_us))
    if not candidates or with_stores(export, partial(_is_pending, export)):
        return 0
    table = existing_table(target, export)
    if table is None:
        return 0
    location = with_stores(export, location_of)
    with failures("the files of the Iceberg table"):
        used = used_paths(table)
    unused = [key for key in candidates if f"{location}/{key}" not in used]

    async def delete(opened: Opened) -> None:
        await opened.target.delete(unused)

    # If we stop in between, the rest is there for the next call, and no snapshot uses it.
    with_stores(export, delete)
    return len(unused)


async def _old_files(before_us: int, opened: Opened) -> list[str]:
    found = [info for folder in _FOLDERS async for info in opened.target.list(folder)]
    return [info.key for info in found if info.modified_us < before_us and _OURS.fullmatch(info.key)]


async def _is_pending(export: Export, opened: Opened) -> bool:
    return (await state_of(export, opened)).pending is not None


def used_paths(table: "Table") -> set[str]:
    """Return the paths of all files that the table uses: for its metadata, for the data of any snapshot."""
    paths = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    paths |= {snapshot.manifest_list for snapshot in table.snapshots()}
    telling = _telling(table.snapshots())
    manifests = {each.manifest_path: each for snapshot in telling for each in snapshot.manifests(table.io)}
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as executor:
        for found in executor.map(partial(_files_of, table.io), manifests.values()):
            paths |= found
    return {plain(path) for path in (*paths, *manifests)}


def _telling(snapshots: "Sequence[Snapshot]") -> "list[Snapshot]":
    """Return the snapshots whose manifests are all that there are: our runs keep those of the snapshot before.

    A run leaves out only manifests of deletions: those are in the snapshot that deleted. Without this, a table of
    thousands of runs would be read thousands of times.
    """
    kept = {each.parent_snapshot_id for each in snapshots if _is_run(each)}
    return [each for each in snapshots if each.snapshot_id not in kept or not _is_run(each)]


def _is_run(snapshot: "Snapshot") -> bool:
    return snapshot.summary is not None and RUN_PROPERTY in snapshot.summary.additional_properties


def _files_of(io: "FileIO", manifest: "ManifestFile") -> set[str]:
    return {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)}
