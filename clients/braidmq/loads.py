"""Loading a table or files whole, past the brokers: they reserve the segments, and adopt them when all is there."""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import anyio.to_thread
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

import filer.errors
from braidmq.admin import Admin
from braidmq.errors import (
    ConnectionBroken,
    FileTaken,
    InvalidArgument,
    LoadCommitted,
    LoadNotFound,
    LoadOvertaken,
    NotABroker,
    error_of,
)
from braidmq.models import CommittedLoad, ReservedLoad, Topic
from braidmq.names import topic_path
from braidmq.problems import bare_problem, json_of, refusal
from braidmq.publisher import Progress
from braidmq.store_folder import find_store_folder
from braidmq.tables import TablePlan, arrow_table, message_tables
from braidmq.transport import Call, Transport
from filer import keys
from filer.keys import FileName
from filer.load_files import FILE_BYTES, LoadFile, LoadWriter, as_rows, slots_of_rows
from filer.load_segment import LoadSegment
from filer.local_store import LocalStore

UPLOADS_AT_ONCE = 4
GATHERED_BYTES = 256 * 1024 * 1024
"""What all segments together gather before any of them writes a file."""
COMMIT_SECONDS = 900.0
"""How long brokers may take to look through all files of a load."""
LOOK_SECONDS = 0.5
MOST_DEFAULT_SEGMENTS = 16
TRIES = 3
_CHUNK_BYTES = 256 * 1024
_SLICE_BYTES = 8 * 1024 * 1024
_BATCH_ROWS = 65_536
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MD5 = re.compile(r"[0-9a-f]{32}\Z")
_LOAD_ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}\Z")

Source: TypeAlias = pa.Table | Sequence[Path]


@dataclass(frozen=True, slots=True, order=True)
class WrittenFile:
    """A file of a load that is on the store, as the commit names it; `size` in bytes."""

    segment: int
    base_offset: int
    size: int
    count: int

    @classmethod
    def of(cls, file: LoadFile) -> "WrittenFile":
        """What is said of a file that was written."""
        return cls(file.segment, file.base_offset, file.data.size, file.count)


class Loader:
    """Writes files of a load and has it adopted; what an earlier run of the same load has done is not done again."""

    def __init__(self, transport: Transport, admin: Admin) -> None:
        self._transport, self._admin = transport, admin

    async def load(
        self, topic: str, source: Any, plan: TablePlan, *, load: str, segments: int | None, progress: Progress | None
    ) -> CommittedLoad:
        """As `AsyncClient.load`. A load that another one has overtaken begins anew, under the same name.

        One that another run of it commits meanwhile is done by that.
        """
        _check_id(load)
        given = await anyio.to_thread.run_sync(_source, source)
        rows = await anyio.to_thread.run_sync(_count, given)
        known, tries = await self.committed(topic, load), 0
        while known is None:
            tries += 1
            try:
                return await self._run(topic, load, given, plan, segments, progress, rows)
            except (LoadOvertaken, LoadCommitted):
                known = await self.committed(topic, load)
                if known is None and tries == TRIES:
                    raise
        return check_committed(known, rows)

    async def committed(self, topic: str, load: str) -> CommittedLoad | None:
        """The load, if it has been adopted; one that is being committed is waited for."""
        _check_id(load)
        clock = self._transport.clock
        waited_until_seconds = clock.monotonic_seconds() + COMMIT_SECONDS
        while (stands := await self._stands(topic, load)) is not None and stands["state"] == "committing":
            # Whoever began it may be gone: brokers bring it to its end all the same.
            if clock.monotonic_seconds() > waited_until_seconds:
                return None
            await clock.sleep(LOOK_SECONDS)
        done = stands is not None and stands["state"] == "committed"
        return CommittedLoad.model_validate(stands) if done else None

    async def _stands(self, topic: str, load: str) -> Any:
        """How the load stands; None where there is none."""
        try:
            return json_of(await self._transport.request(Call("GET", _path(topic, load))))
        except LoadNotFound:
            return None

    async def reserve(self, topic: str, load: str, segments: int | None) -> list[LoadSegment]:
        """Segments for a load, or those that it has; as many as are open where it is not said how many."""
        _check_id(load)
        about = await self._admin.topic(topic)
        opened = sum(segment.state == "open" for segment in about.segments)
        parts = min(opened, MOST_DEFAULT_SEGMENTS) if segments is None else segments
        answer = await self._post(f"{topic_path(topic)}/loads", {"segments": parts, "load": load})
        return _segments(ReservedLoad.model_validate(answer), about)

    async def put(self, topic: str, load: str, file: LoadFile) -> WrittenFile:
        """Write a file of a load; one that is there already must be this very one, else raises `FileTaken`.

        Stopping at any line is safe: the file is there whole or not at all, and the next try finds it.
        """
        async with _Uploads(self._transport, topic, load) as uploads:
            await uploads.begin(file)
        return WrittenFile.of(file)

    async def commit(self, topic: str, load: str, files: Sequence[WrittenFile]) -> CommittedLoad:
        """Have all files of a load adopted; the same again once that is done."""
        claims = [asdict(file) for file in files]
        answer = await self._post(_path(topic, load), {"files": claims}, wait_seconds=COMMIT_SECONDS)
        return CommittedLoad.model_validate(answer)

    async def _run(
        self,
        topic: str,
        load: str,
        source: Source,
        plan: TablePlan,
        parts: int | None,
        progress: Progress | None,
        total: int,
    ) -> CommittedLoad:
        """Reserve, write, commit; each may have been done before, and then comes to the same."""
        segments = await self.reserve(topic, load, parts)
        files: list[WrittenFile] = []
        loaded = 0
        async with _Uploads(self._transport, topic, load) as uploads:
            async for file in _written(source, plan, segments):
                await uploads.begin(file)
                files.append(WrittenFile.of(file))
                loaded += file.count
                if progress is not None:
                    progress(loaded, total)
        return await self.commit(topic, load, files)

    async def _post(self, path: str, document: Any, *, wait_seconds: float = 0.0) -> Any:
        return json_of(await self._transport.request(_post(path, document, wait_seconds)))


def _path(topic: str, load: str) -> str:
    return f"{topic_path(topic)}/loads/{load}"


def _check_id(load: str) -> None:
    if not isinstance(load, str) or not _LOAD_ID.match(load):
        raise InvalidArgument(f"load is {str(load)[:80]!r}: 1 to 64 of A-Z a-z 0-9 . _ - are wanted, not '.' or '..'")


class _Uploads:
    """Puts files, a few at a time; the first failure ends all. `begin` waits while there are too many in memory.

    Where the store is a directory of this machine they are written there; else they go to the addresses that the broker
    gives.
    """

    def __init__(self, transport: Transport, topic: str, load: str) -> None:
        self._transport, self._topic, self._load = transport, topic, load
        self._path = _path(topic, load)
        self._folder: LocalStore | None = None
        self._looking = asyncio.Lock()
        self._has_looked = False
        self._gate = asyncio.Semaphore(UPLOADS_AT_ONCE)
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> "_Uploads":
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        try:
            await self._group.__aexit__(*raised)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            if self._folder is not None:
                await self._folder.close()

    async def begin(self, file: LoadFile) -> None:
        """Have a file put in the background."""
        await self._gate.acquire()
        self._group.create_task(self._put(file))

    async def _put(self, file: LoadFile) -> None:
        try:
            if (folder := await self._find_folder(file)) is not None:
                await self._write(folder, file)
            else:
                await self._transport.repeat(lambda address: self._attempt(file, address))
        finally:
            self._gate.release()

    async def _find_folder(self, file: LoadFile) -> LocalStore | None:
        """Looked for once, at the first file."""
        async with self._looking:
            if not self._has_looked:
                place = await self._transport.repeat(lambda address: self._place(file, address, look=False))
                key, clock = self._key(file), self._transport.clock
                self._folder = await find_store_folder(place["uri"], key, self._topic, self._load, file.segment, clock)
                self._has_looked = True
        return self._folder

    def _key(self, file: LoadFile) -> str:
        return keys.segment_file(self._topic, file.segment, FileName(file.base_offset))

    async def _write(self, folder: LocalStore, file: LoadFile) -> None:
        """Stopped anywhere, the file is there whole or not at all, as with a put."""
        key = self._key(file)
        try:
            await folder.create(key, memoryview(file.data))
        except filer.errors.ObjectExists:
            if (await folder.get(key, stop=file.data.size + 1)).data != file.data.to_pybytes():
                raise _taken(file) from None
        except filer.errors.StoreError as failure:
            raise ConnectionBroken(f"{folder.uri(key)} cannot be written: {failure}") from failure

    async def _attempt(self, file: LoadFile, address: str) -> None:
        place = await self._place(file, address, look=False)
        headers = {**place.get("headers", {}), "content-length": str(file.data.size)}
        call = Call(place.get("method", "PUT"), place["url"], content=_chunks(file.data), headers=headers)
        response = await self._transport.send(call, address)
        if response.is_success:
            return
        failure = refusal(response, publishing=False)
        if isinstance(failure, NotABroker):  # an object store, which has other words for its problems
            if response.status_code == 412:
                await self._compare(file, address)
                return
            # Another put of that name is under way there: it, or this one, will have made the file.
            is_race = response.status_code == 409
            failure = error_of(bare_problem(response, retryable=is_race), publishing=False)
        raise failure

    async def _compare(self, file: LoadFile, address: str) -> None:
        """Raises `FileTaken` unless what is there is this very file: an earlier run, or a lost answer, put it."""
        there = (await self._place(file, address, look=True)).get("there")
        etag = there["etag"].strip('"') if there else ""
        # Other ETags than MD5 are of stores that encrypt or of files put together from parts: sizes must do.
        same = await anyio.to_thread.run_sync(_md5, file.data) == etag if _MD5.match(etag) else True
        if not there or there["size"] != file.data.size or not same:
            raise _taken(file)

    async def _place(self, file: LoadFile, address: str, *, look: bool) -> Any:
        asked = {"files": [_claim(file)], "look": look}
        answer = json_of(await self._transport.once(_post(f"{self._path}/urls", asked), address))
        return answer["files"][0]


def check_committed(known: CommittedLoad, rows: int) -> CommittedLoad:
    """The load that is committed, for a run of its name with so many rows; raises `FileTaken` where it had not as many.

    Brokers do not keep what would tell other rows of the same number.
    """
    if known.messages == rows:
        return known
    raise FileTaken(
        f"load {known.load} has been committed with {known.messages:,} messages, and these are {rows:,}: "
        "none of them is stored; choose another name for the load"
    )


def _taken(file: LoadFile) -> FileTaken:
    return FileTaken(
        f"{file.name} of segment {file.segment} is there with other bytes: an earlier run of this load had other "
        "messages, had them in another order, or was of another version; choose another name for the load"
    )


def _post(path: str, document: Any, wait_seconds: float = 0.0) -> Call:
    headers = {"content-type": "application/json"}
    return Call("POST", path, content=orjson.dumps(document), headers=headers, wait_seconds=wait_seconds)


def _claim(file: LoadFile) -> dict[str, int]:
    return {"segment": file.segment, "base_offset": file.base_offset, "size": file.data.size}


def _md5(data: pa.Buffer) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


async def _chunks(data: pa.Buffer) -> AsyncIterator[bytes]:
    for first in range(0, data.size, _CHUNK_BYTES):
        yield data.slice(first, min(_CHUNK_BYTES, data.size - first)).to_pybytes()


def _segments(reserved: ReservedLoad, topic: Topic) -> list[LoadSegment]:
    time_us = (reserved.timestamp - _EPOCH) // timedelta(microseconds=1)
    types = topic.config["key_type"], topic.config["value_type"]
    return [LoadSegment(reserved.load, each.segment, *each.range, time_us, *types) for each in reserved.segments]


async def _written(source: Source, plan: TablePlan, segments: Sequence[LoadSegment]) -> AsyncIterator[LoadFile]:
    """The files of all segments, made on a thread one after the other."""
    files = _files(source, plan, segments)
    while (file := await anyio.to_thread.run_sync(_next, files)) is not None:
        yield file


def _next(files: Iterator[LoadFile]) -> LoadFile | None:
    try:
        return next(files, None)
    except filer.errors.InvalidInput as failure:
        raise InvalidArgument(str(failure)) from failure


def _files(source: Source, plan: TablePlan, segments: Sequence[LoadSegment]) -> Iterator[LoadFile]:
    """Cut by slots, each segment's messages in the order of the source."""
    file_bytes = min(FILE_BYTES, GATHERED_BYTES // len(segments))
    writers = [LoadWriter(segment, file_bytes=file_bytes) for segment in segments]
    types = segments[0].key_type, segments[0].value_type
    row = 0
    for table in _tables(source):
        for messages in message_tables(table, plan, slice_bytes=_SLICE_BYTES):
            slots = slots_of_rows(as_rows(messages, *types), row)
            row += messages.num_rows
            for segment, writer in zip(segments, writers, strict=True):
                mine = pa.array((slots >= segment.start_slot) & (slots < segment.stop_slot))
                yield from writer.write(messages.filter(mine))
    for writer in writers:
        yield from writer.finish()


def _tables(source: Source) -> Iterator[pa.Table]:
    if isinstance(source, pa.Table):
        yield source
        return
    for path in source:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                yield pa.Table.from_batches([batch])


def _count(source: Source) -> int:
    if isinstance(source, pa.Table):
        return int(source.num_rows)
    return sum(pq.read_metadata(path).num_rows for path in source)


def _source(given: Any) -> Source:
    """A table, or the Parquet files of a path, or of several in that order; raises `InvalidArgument`."""
    several = isinstance(given, list | tuple)
    paths = given if several else [given]
    if not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
        if several:
            raise InvalidArgument("a load is of one table, or of Parquet files: give a table, a path, or paths")
        return arrow_table(given)
    found = [file for path in paths for file in _parquet_files(Path(path))]
    for file in found:
        try:
            pq.read_metadata(file)
        except (pa.ArrowException, OSError) as failure:
            raise InvalidArgument(f"{file} is no Parquet file that can be read: {failure}") from failure
    return found


def _parquet_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*.parquet"))
    if not path.exists():
        raise InvalidArgument(f"there is no file {path}")
    return [path]
