"""Bulk loads: brokers reserve segments, the client writes their files, and the topic adopts all of them at once."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import anyio.to_thread

from braidmq.bulk_load.file_uploads import FileUploads
from braidmq.bulk_load.load_calls import check_load_name, load_path, post_json
from braidmq.bulk_load.load_source import Source, row_count, source_files, source_of
from braidmq.cluster.admin import Admin
from braidmq.errors import FileTaken, LoadCommitted, LoadNotFound, LoadOvertaken
from braidmq.models import CommittedLoad, ReservedLoad, Topic
from braidmq.names import topic_path
from braidmq.publish.encoding.tables import TablePlan
from braidmq.publish.publisher import Progress
from braidmq.times import microseconds
from braidmq.transport.problems import json_of
from braidmq.transport.transport import Call, Transport
from filer.bulk_load.load_files import LoadFile
from filer.bulk_load.load_segment import LoadSegment
from filer.format.schema import MessageSchema

COMMIT_SECONDS = 900.0
"""How long brokers may take to check all files of a bulk load."""
POLL_SECONDS = 0.5
MOST_DEFAULT_SEGMENTS = 16
TRIES = 3


@dataclass(frozen=True, slots=True, order=True)
class WrittenFile:
    """A file of a bulk load that is on the store, as the commit names it; `size` in bytes."""

    segment: int
    base_offset: int
    size: int
    count: int

    @classmethod
    def of(cls, file: LoadFile) -> "WrittenFile":
        """Describe a file that was written."""
        return cls(file.segment, file.base_offset, file.data.size, file.count)


class Loader:
    """Runs bulk loads. A run does not repeat the work of an earlier run of the same load."""

    def __init__(self, transport: Transport, admin: Admin) -> None:
        self._transport, self._admin = transport, admin

    async def load(
        self, topic: str, source: Any, plan: TablePlan, *, load: str, segments: int | None, progress: Progress | None
    ) -> CommittedLoad:
        """As `AsyncClient.load`. A load that was overtaken by another starts again, under the same name.

        If another run commits this load meanwhile, it is done.
        """
        check_load_name(load)
        rows = await anyio.to_thread.run_sync(source_of, source)
        total = await anyio.to_thread.run_sync(row_count, rows)
        known, tries = await self.committed(topic, load), 0
        while known is None:
            tries += 1
            try:
                return await self._run(topic, load, rows, plan, segments, progress, total)
            except (LoadOvertaken, LoadCommitted):
                known = await self.committed(topic, load)
                if known is None and tries == TRIES:
                    raise
        return check_committed(known, total)

    async def committed(self, topic: str, load: str) -> CommittedLoad | None:
        """Return the load if it has been adopted. Waits if it is being committed right now."""
        check_load_name(load)
        clock = self._transport.clock
        give_up_seconds = clock.monotonic_seconds() + COMMIT_SECONDS
        while (status := await self._status(topic, load)) is not None and status["state"] == "committing":
            # The client that started the commit may be gone: brokers complete it all the same.
            if clock.monotonic_seconds() > give_up_seconds:
                return None
            await clock.sleep(POLL_SECONDS)
        is_committed = status is not None and status["state"] == "committed"
        return CommittedLoad.model_validate(status) if is_committed else None

    async def _status(self, topic: str, load: str) -> Any:
        """Return the status of a load; None if there is no such load."""
        try:
            return json_of(await self._transport.request(Call("GET", load_path(topic, load))))
        except LoadNotFound:
            return None

    async def reserve(self, topic: str, load: str, segments: int | None) -> list[LoadSegment]:
        """Reserve segments for a load, or return those it has. By default, one for each open segment, up to 16."""
        check_load_name(load)
        described = await self._admin.topic(topic)
        open_count = sum(segment.state == "open" for segment in described.segments)
        count = min(open_count, MOST_DEFAULT_SEGMENTS) if segments is None else segments
        answer = await self._post(f"{topic_path(topic)}/loads", {"segments": count, "load": load})
        return _load_segments(ReservedLoad.model_validate(answer), described)

    async def put(self, topic: str, load: str, file: LoadFile) -> WrittenFile:
        """Write a file of a load. Raises `FileTaken` if a different file has its name.

        Stopping at any line is safe: the file is there whole or not at all, and the next try finds it.
        """
        async with FileUploads(self._transport, topic, load) as uploads:
            await uploads.start(file)
        return WrittenFile.of(file)

    async def commit(self, topic: str, load: str, files: Sequence[WrittenFile]) -> CommittedLoad:
        """Make the topic adopt all files of a load. A repeated call returns the same answer."""
        document = {"files": [asdict(file) for file in files]}
        answer = await self._post(load_path(topic, load), document, wait_seconds=COMMIT_SECONDS)
        return CommittedLoad.model_validate(answer)

    async def _run(
        self,
        topic: str,
        load: str,
        source: Source,
        plan: TablePlan,
        segment_count: int | None,
        progress: Progress | None,
        total: int,
    ) -> CommittedLoad:
        """Reserve, write and commit. Repeating a step that was done before has the same result."""
        segments = await self.reserve(topic, load, segment_count)
        files: list[WrittenFile] = []
        written_rows = 0
        async with FileUploads(self._transport, topic, load) as uploads:
            async for file in source_files(source, plan, segments):
                await uploads.start(file)
                files.append(WrittenFile.of(file))
                written_rows += file.count
                if progress is not None:
                    progress(written_rows, total)
        return await self.commit(topic, load, files)

    async def _post(self, path: str, document: Any, *, wait_seconds: float = 0.0) -> Any:
        return json_of(await self._transport.request(post_json(path, document, wait_seconds)))


def check_committed(known: CommittedLoad, rows: int) -> CommittedLoad:
    """Return the committed load, for a run with so many rows. Raises `FileTaken` if it has another number of messages.

    Brokers keep nothing that would distinguish other rows of the same number.
    """
    if known.messages == rows:
        return known
    raise FileTaken(
        f"load {known.load} has been committed with {known.messages:,} messages, and these are {rows:,}: "
        "none of them is stored; choose another name for the load"
    )


def _load_segments(reserved: ReservedLoad, topic: Topic) -> list[LoadSegment]:
    time_us = microseconds(reserved.timestamp)
    schema = MessageSchema.of(topic.config["key_type"], topic.config["value_type"])
    return [
        LoadSegment(reserved.load, each.segment, *each.range, time_us, schema, digests=reserved.digests)
        for each in reserved.segments
    ]
