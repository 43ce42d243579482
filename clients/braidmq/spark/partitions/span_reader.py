"""Reads a span in a task: from the segment's files, and the rest from a broker."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx
import pyarrow as pa

from braidmq.client import Client
from braidmq.errors import InvalidRequest, PositionExpired
from braidmq.read.file_reader import BATCH_ROWS, file_batches
from braidmq.read.file_ref import FileRef
from braidmq.read.remote_file import FileUnreachable
from braidmq.spark.errors import DataLoss
from braidmq.spark.spans import Span

_log = logging.getLogger(__name__)

WAIT_SECONDS = 5.0
# How often to wait for a broker to return messages that another broker has reported.
WAIT_ROUNDS = 12


@dataclass
class SpanReader:
    """Reads one span's messages in order, each once, even if its files are replaced meanwhile.

    `files` held its messages when it was planned. If a file is gone (rolled up, and its grace period is over) or its
    address has expired, the files are listed again. If that does not help, and for messages in no file, it asks a
    broker. No message is returned twice: `_reached` is the offset after the last one returned.
    """

    client: Client
    http: httpx.Client
    topic: str
    span: Span
    files: Sequence[FileRef]
    columns: Sequence[str]
    fail_on_data_loss: bool

    def __post_init__(self) -> None:
        self._reached = self.span.start
        self._can_use_files = True
        self._listed_at_offset: int | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Iterate over all messages. Raises `DataLoss` if some do not exist any more."""
        while self._reached < self.span.stop:
            file = self._file()
            try:
                yield from self._counted(self._from_broker() if file is None else self._from_file(file))
            except FileUnreachable:
                self._list_again()
            except (PositionExpired, InvalidRequest) as failure:
                self._skip_lost(failure)

    def _file(self) -> FileRef | None:
        """The file that holds the next message."""
        if not self._can_use_files:
            return None
        return next((file for file in self.files if file.start <= self._reached < file.stop), None)

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # Before the yield: if the consumer fails, this reader is not used again.
            self._reached += batch.num_rows
            yield batch

    def _from_file(self, file: FileRef) -> Iterator[pa.RecordBatch]:
        stop = min(file.stop, self.span.stop)
        yield from file_batches(self.http, file, self.span.segment, self._reached, stop, self.columns)

    def _list_again(self) -> None:
        """List the files again. If that was tried at this message already, this machine cannot reach them."""
        if self._listed_at_offset == self._reached:
            self._can_use_files = False
            return
        self._listed_at_offset = self._reached
        rest = Span(self.span.segment, self._reached, self.span.stop)
        try:
            self.files = span_files(self.client, self.topic, rest)
        except (PositionExpired, InvalidRequest) as failure:
            self._skip_lost(failure)

    def _from_broker(self) -> Iterator[pa.RecordBatch]:
        for _ in range(WAIT_ROUNDS):
            page = self.client.segment_page(
                self.topic,
                self.span.segment,
                offset=self._reached,
                limit=self.span.stop - self._reached,
                wait_seconds=WAIT_SECONDS,
            )
            if page.table.num_rows:
                self._skip_to(page.next_offset - page.table.num_rows)
                wanted = page.table.slice(0, self.span.stop - self._reached)
                yield from wanted.combine_chunks().to_batches(BATCH_ROWS)
                return
            if page.next_offset > self._reached:
                self._skip_to(page.next_offset)
                return
            if page.end_offset is not None and page.end_offset <= self._reached:
                self._lose(f"segment {self.span.segment} ends at {page.end_offset}", self.span.stop)
                return
        raise DataLoss(
            f"no broker has offset {self._reached} of segment {self.span.segment}, which another one had reported"
        )

    def _skip_to(self, offset: int) -> None:
        """Skip to the first message of the page.

        Brokers pass by messages that are given up, which is no loss for this reader to report. Else retention has
        removed some messages since the last page.
        """
        if offset <= self._reached:
            return
        if self._is_given_up(offset):
            _log.info(
                "topic %s, segment %d: [%d, %d) is given up", self.topic, self.span.segment, self._reached, offset
            )
            self._reached = min(offset, self.span.stop)
        else:
            self._lose(f"offsets up to {offset} of segment {self.span.segment} have expired", offset)

    def _is_given_up(self, stop: int) -> bool:
        """Whether all messages before `stop` that were not read are given up."""
        given_up = [
            each
            for segment in self.client.topic(self.topic).segments
            if segment.segment == self.span.segment
            for each in segment.given_up
        ]
        reached = self._reached
        for each in given_up:
            end = stop if each.next_offset is None else each.next_offset
            # If a range has no known end, a read may begin in its middle.
            if each.offset <= reached < end:
                reached = end
        return reached >= stop

    def _skip_lost(self, failure: PositionExpired | InvalidRequest) -> None:
        """Skip messages that a broker refuses because they do not exist any more, or never did."""
        kept = {each.segment: each.start_offset for each in self.client.topic(self.topic).segments}
        start = kept.get(self.span.segment, self.span.stop)
        self._lose(str(failure), start if start > self._reached else self.span.stop)

    def _lose(self, why: str, reached: int) -> None:
        if self.fail_on_data_loss:
            raise DataLoss(
                f"messages [{self._reached}, {min(reached, self.span.stop)}) of segment {self.span.segment} of topic "
                f"{self.topic!r} are lost: {why}; to go on without them set failOnDataLoss to false"
            )
        _log.warning(
            "topic %s, segment %d: skipping messages from %d on: %s", self.topic, self.span.segment, self._reached, why
        )
        self._reached = min(reached, self.span.stop)


def span_files(client: Client, topic: str, span: Span) -> tuple[FileRef, ...]:
    """Return the files that hold any of a span's messages, in order."""
    listed = client.segment_files(topic, span.segment, offset=span.start, end_offset=span.stop)
    return tuple(FileRef.of(file) for file in listed)
