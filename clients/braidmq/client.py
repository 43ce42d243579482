"""The blocking client: the asynchronous one on an event loop in a thread of its own."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, BinaryIO, Self, Unpack

import httpx
import pyarrow as pa

from braidmq.async_client import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_CONNECT_TIMEOUT_SECONDS,
    DEFAULT_DELIVERY_TIMEOUT_SECONDS,
    DEFAULT_LINGER_SECONDS,
    DEFAULT_MAX_PENDING_BYTES,
    DEFAULT_TIMEOUT_SECONDS,
    DEFAULT_UPLOAD_THRESHOLD_BYTES,
    DEFAULT_URL,
    AsyncClient,
)
from braidmq.blocking import LoopThread, Messages, Payload, Producer, Tables
from braidmq.errors import BraidMQError
from braidmq.loads import WrittenFile
from braidmq.message import Message
from braidmq.models import (
    BrokerDrain,
    Cluster,
    CommittedLoad,
    Route,
    Segment,
    SegmentFile,
    SegmentLife,
    Topic,
    TopicPosition,
    TopicSummary,
)
from braidmq.outgoing import Headers, Key, OutgoingMessage, Upload, Value, in_parts
from braidmq.positions import Position, Published
from braidmq.publisher import Progress
from braidmq.reader import PAGE_ROWS
from braidmq.retry import Retry
from braidmq.segment_pages import SegmentPage
from braidmq.tables import Columns
from filer.clock import Clock
from filer.load_files import LoadFile, LoadSegment


class Client:
    """A cluster known by one or several of its brokers' addresses. Use it as a context manager, or call `close`.

    Calls and arguments are those of `AsyncClient`, which does the work; the client may be shared by threads,
    an iterator or a payload may not.
    """

    def __init__(
        self,
        url: str | Sequence[str] = DEFAULT_URL,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        connect_timeout_seconds: float = DEFAULT_CONNECT_TIMEOUT_SECONDS,
        delivery_timeout_seconds: float = DEFAULT_DELIVERY_TIMEOUT_SECONDS,
        retry: Retry | None = None,
        idempotent: bool = True,
        direct: bool = True,
        read_files: bool = True,
        upload_threshold_bytes: int = DEFAULT_UPLOAD_THRESHOLD_BYTES,
        http_transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._async = AsyncClient(
            url,
            headers=headers,
            timeout_seconds=timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            delivery_timeout_seconds=delivery_timeout_seconds,
            retry=retry,
            idempotent=idempotent,
            direct=direct,
            read_files=read_files,
            upload_threshold_bytes=upload_threshold_bytes,
            http_transport=http_transport,
            clock=clock,
        )
        self._loop = LoopThread()

    @property
    def url(self) -> str:
        """The first of the addresses that the client was given."""
        return self._async.url

    @property
    def urls(self) -> tuple[str, ...]:
        """The brokers' addresses that are known: those given, then those learned."""
        return self._async.urls

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; later calls raise `ClientClosed`. Closing again does nothing."""
        if self._loop.is_open:
            self._loop.call(self._async.aclose)
            self._loop.close()

    def create_topic(self, topic: str, **config: Any) -> Topic:
        """Create a topic, or change the configuration of one that exists: `segments=4`, `retention={…}`, ….

        Raises `InvalidName`, `InvalidConfig` (naming the nearest known setting) or `Conflict`.
        """
        return self._loop.call(self._async.create_topic, topic, **config)

    def topic(self, topic: str) -> Topic:
        """A topic's configuration and segments; raises `TopicNotFound`."""
        return self._loop.call(self._async.topic, topic)

    def topics(self) -> Iterator[TopicSummary]:
        """All topics by name."""
        return self._loop.iterate(self._async.topics())

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages; raises `TopicNotFound`."""
        self._loop.call(self._async.delete_topic, topic)

    def route(self, topic: str) -> Route:
        """A topic's open segments and the brokers that own them."""
        return self._loop.call(self._async.route, topic)

    def split_segment(
        self, topic: str, segment: int, *, at: Sequence[int] | None = None, parts: int | None = None
    ) -> tuple[Segment, ...]:
        """Cut an open segment at slots, or into parts (two unless said) that share its load; its successors by slots.

        Publishers and readers go on, in each key's order. Raises `SegmentNotFound`, `InvalidRequest` for slots that do
        not lie within it in ascending order, and `Conflict` where it is sealed or `max_segments` has no room.
        """
        return self._loop.call(self._async.split_segment, topic, segment, at=at, parts=parts)

    def merge_segments(self, topic: str, segment: int, other: int) -> Segment:
        """Make one of two open segments that are neighbours in key order; their successor.

        Raises `SegmentNotFound`, and `Conflict` where they are no such neighbours or `min_segments` forbids it.
        """
        return self._loop.call(self._async.merge_segments, topic, segment, other)

    def history(self, topic: str) -> Iterator[SegmentLife]:
        """Every segment that the topic has had, by id."""
        return self._loop.iterate(self._async.history(topic))

    def cluster(self) -> Cluster:
        """The brokers of the cluster, its leader, and the transitions under way."""
        return self._loop.call(self._async.cluster)

    def drain_broker(self, broker: str) -> BrokerDrain:
        """Have the broker of that id hand over all it owns, so that it can be stopped; raises `NotFound`.

        The answer says how many segments are left: ask again until there are none.
        """
        return self._loop.call(self._async.drain_broker, broker)

    def undrain_broker(self, broker: str) -> BrokerDrain:
        """Let the broker of that id own segments again after it was drained; raises `NotFound`.

        The answer says how many it has; it gets its share within seconds.
        """
        return self._loop.call(self._async.undrain_broker, broker)

    def files(self, topic: str, *, from_: str | datetime | None = None) -> Iterator[SegmentFile]:
        """A topic's live Parquet files, to be read without the broker: all, or those from a time on."""
        return self._loop.iterate(self._async.files(topic, from_=from_))

    def segment_files(
        self, topic: str, segment: int, *, offset: int = 0, end_offset: int | None = None
    ) -> Iterator[SegmentFile]:
        """The live Parquet files of one segment that hold those offsets; see `AsyncClient.segment_files`."""
        return self._loop.iterate(self._async.segment_files(topic, segment, offset=offset, end_offset=end_offset))

    def segment_page(
        self, topic: str, segment: int, *, offset: int = 0, limit: int = PAGE_ROWS, wait_seconds: float = 0.0
    ) -> SegmentPage:
        """Messages of one segment from an offset on; see `AsyncClient.segment_page`."""
        return self._loop.call(
            self._async.segment_page, topic, segment, offset=offset, limit=limit, wait_seconds=wait_seconds
        )

    def position(self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None) -> TopicPosition:
        """The offset of each segment at a position of the whole topic; see `AsyncClient.position`."""
        return self._loop.call(self._async.position, topic, from_=from_, marker=marker)

    def wait_behind(self, topic: str, marker: str, *, seconds: float) -> bool:
        """Wait so long for a message behind a marker; whether there is one."""
        return self._loop.call(self._async.wait_behind, topic, marker, seconds=seconds)

    def publish(
        self,
        topic: str,
        value: Value,
        *,
        key: Key = None,
        headers: Headers | None = None,
        event_time: datetime | None = None,
    ) -> Position:
        """Publish one message and return its place once it is stored.

        See `OutgoingMessage` for what a value may be. Raises `OutcomeUnknown` where no acknowledgement came in time.
        """
        return self._loop.call(self._async.publish, topic, value, key=key, headers=headers, event_time=event_time)

    def publish_many(self, topic: str, messages: Iterable[OutgoingMessage | Value]) -> Published:
        """Publish messages (or bare values) in order, in few requests, one at a time.

        A failure carries in `published` what was acknowledged before it.
        """
        published = Published()
        # Iterated here and not in the loop's thread: what is iterated may well use this very client.
        for some in in_parts(messages):
            try:
                published += self._loop.call(self._async.publish_many, topic, some)
            except BraidMQError as failure:
                failure.published = published + (failure.published or Published())
                raise
        return published

    def publish_table(
        self,
        topic: str,
        table: Any,
        *,
        progress: Progress | None = None,
        **columns: Unpack[Columns],
    ) -> Published:
        """Publish each row of a pyarrow, pandas or polars table, in order; see `AsyncClient.publish_table`.

        `progress` is called in the client's thread.
        """
        return self._loop.call(self._async.publish_table, topic, table, progress=progress, **columns)

    def publish_request(self, topic: str, table: pa.Table, *, producer_id: str, sequence: int) -> Published:
        """Publish a few rows as one request, under an id of the caller's own; see `AsyncClient.publish_request`."""
        return self._loop.call(self._async.publish_request, topic, table, producer_id=producer_id, sequence=sequence)

    def committed_load(self, topic: str, load: str) -> CommittedLoad | None:
        """The load of that name, if the topic has adopted it."""
        return self._loop.call(self._async.committed_load, topic, load)

    def reserve_load(self, topic: str, load: str, *, segments: int | None = None) -> list[LoadSegment]:
        """Reserve segments for a load that is written piece by piece; see `AsyncClient.reserve_load`."""
        return self._loop.call(self._async.reserve_load, topic, load, segments=segments)

    def put_load_file(self, topic: str, load: str, file: LoadFile) -> WrittenFile:
        """Write one file of a load, once; raises `FileTaken` where another one has its name."""
        return self._loop.call(self._async.put_load_file, topic, load, file)

    def commit_load(self, topic: str, load: str, files: Sequence[WrittenFile]) -> CommittedLoad:
        """Have the topic adopt a load: all of these files or none; see `AsyncClient.commit_load`."""
        return self._loop.call(self._async.commit_load, topic, load, files)

    def load(
        self,
        topic: str,
        source: Any,
        *,
        load: str | None = None,
        segments: int | None = None,
        progress: Progress | None = None,
        **columns: Unpack[Columns],
    ) -> CommittedLoad:
        """Store all messages of a table, or of Parquet files, by one load; see `AsyncClient.load`."""
        return self._loop.call(
            self._async.load, topic, source, load=load, segments=segments, progress=progress, **columns
        )

    def producer(
        self,
        topic: str,
        *,
        linger_seconds: float = DEFAULT_LINGER_SECONDS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES,
        idempotent: bool | None = None,
        producer_id: str | None = None,
        first_sequence: int = 1,
    ) -> Producer:
        """A producer that sends messages of a topic in batches; see `AsyncClient.producer` and `AsyncProducer`."""
        producer = self._async.producer(
            topic,
            linger_seconds=linger_seconds,
            batch_bytes=batch_bytes,
            max_pending_bytes=max_pending_bytes,
            idempotent=idempotent,
            producer_id=producer_id,
            first_sequence=first_sequence,
        )
        return Producer(self._loop, producer)

    def upload(self, topic: str, data: bytes | BinaryIO) -> Upload:
        """Store a payload, from bytes or a seekable binary file, to be published as a value of this topic."""
        return self._loop.call(self._async.upload, topic, data)

    def open(self, message: Message) -> io.BufferedReader:
        """The payload of a message, inline or by reference, as a binary file.

        Its ETag is checked when it is opened, its size and SHA-256 by the read that reaches the end: what
        does not agree raises `PayloadMismatch`.
        """
        return io.BufferedReader(Payload(self._loop, self._async.open(message)))

    def browse(
        self,
        topic: str,
        *,
        from_: str | datetime | None = None,
        marker: str | None = None,
        limit: int | None = None,
    ) -> Messages:
        """The messages from a position to the end of the topic; see `AsyncClient.browse`."""
        return Messages(self._loop, self._async.browse(topic, from_=from_, marker=marker, limit=limit).reader)

    def subscribe(self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None) -> Messages:
        """The messages from a position on, without end; see `AsyncClient.subscribe`."""
        return Messages(self._loop, self._async.subscribe(topic, from_=from_, marker=marker).reader)

    def browse_tables(
        self,
        topic: str,
        *,
        from_: str | datetime | None = None,
        marker: str | None = None,
        limit: int | None = None,
    ) -> Tables:
        """As `browse`, in pyarrow tables; see `AsyncClient.browse_tables`."""
        return Tables(self._loop, self._async.browse_tables(topic, from_=from_, marker=marker, limit=limit))

    def subscribe_tables(self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None) -> Tables:
        """As `subscribe`, in pyarrow tables."""
        return Tables(self._loop, self._async.subscribe_tables(topic, from_=from_, marker=marker))

    def read_table(
        self,
        topic: str,
        *,
        from_: str | datetime | None = None,
        marker: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """As `browse_tables`, as one table in memory."""
        return self._loop.call(self._async.read_table, topic, from_=from_, marker=marker, limit=limit)
