"""The asynchronous client: every call of BraidMQ, for asyncio."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, BinaryIO, Self, Unpack

import httpx
import pyarrow as pa

from braidmq.addresses import Addresses, parse_addresses
from braidmq.admin import Admin
from braidmq.cursors import AsyncMessages, AsyncTables
from braidmq.delivery import Delivery
from braidmq.discovery import Discovery
from braidmq.errors import InvalidArgument
from braidmq.identity import Identities, Identity, checked_producer_id
from braidmq.loads import Loader, WrittenFile
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
from braidmq.outgoing import Headers, Key, OutgoingMessage, Upload, Value
from braidmq.payload import AsyncPayload
from braidmq.positions import Position, Published
from braidmq.producer import AsyncProducer, ProducerSettings
from braidmq.publisher import Progress, Publisher
from braidmq.ranges import SegmentRanges
from braidmq.reader import PAGE_ROWS, Reader, is_more_behind, start_of
from braidmq.retry import Retry
from braidmq.routes import Routes
from braidmq.segment_pages import SegmentPage, segment_page
from braidmq.tables import Columns, TablePlan
from braidmq.transport import Transport
from braidmq.uploads import Uploader
from filer.clock import Clock, SystemClock
from filer.load_files import LoadFile, LoadSegment

DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_TIMEOUT_SECONDS = 30.0
DEFAULT_CONNECT_TIMEOUT_SECONDS = 3.0
DEFAULT_DELIVERY_TIMEOUT_SECONDS = 120.0
# Owners forget a producer that has been silent for an hour, and could then store a repeated request again.
LONGEST_DELIVERY_TIMEOUT_SECONDS = 1800.0
DEFAULT_UPLOAD_THRESHOLD_BYTES = 1024 * 1024
DEFAULT_LINGER_SECONDS = 0.005
DEFAULT_BATCH_BYTES = 1024 * 1024
DEFAULT_MAX_PENDING_BYTES = 64 * 1024 * 1024


class AsyncClient:
    """A cluster known by one or several of its brokers' addresses, from asyncio.

    Use it as an asynchronous context manager, or call `aclose`. `url` is an address, several separated by commas,
    or a list of them: where one broker fails the next is asked.

    `timeout_seconds` bounds each wait for a broker, `connect_timeout_seconds` each attempt to connect.
    `headers` go with every request to brokers. Reads and repeatable calls are retried as `retry` says. Publishes are
    `idempotent`: brokers tell a repeated request from a new one, so that it is repeated until its outcome is known,
    for `delivery_timeout_seconds`; without, only when the broker has said, or the missing connection proves, that
    nothing was stored. `direct` learns of the cluster's other brokers and sends messages straight to those that own
    their segments; without, only the given addresses are used, a load balancer's say. With `read_files` readers
    that are far behind read the topic's files from the store, as far as this machine reaches it, and ask brokers for
    the newest messages only. Values longer than
    `upload_threshold_bytes` are uploaded and published by reference. `http_transport` and `clock` are for tests.
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
        if not 0 < delivery_timeout_seconds <= LONGEST_DELIVERY_TIMEOUT_SECONDS:
            raise InvalidArgument(
                f"delivery_timeout_seconds is {delivery_timeout_seconds:g}: it must be above 0 and at most "
                f"{LONGEST_DELIVERY_TIMEOUT_SECONDS:g}, as brokers do not remember producers for ever"
            )
        self._clock = clock or SystemClock()
        self._transport = Transport(
            Addresses(parse_addresses(url)),
            headers=headers or {},
            timeout_seconds=timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            retry=retry or Retry(),
            clock=self._clock,
            http_transport=http_transport,
        )
        self._admin = Admin(self._transport)
        self._by_files = self._admin if read_files else None
        self._discovery = Discovery(self._transport, self._admin)
        if direct:
            self._transport.heard = self._discovery.soon
        self._uploader = Uploader(self._transport)
        self._loader = Loader(self._transport, self._admin)
        self._routes = Routes(self._admin, self._transport.addresses, self._clock) if direct else None
        self._idempotent = idempotent
        self._publisher = Publisher(
            Delivery(self._transport, self._routes, timeout_seconds=delivery_timeout_seconds),
            self._uploader,
            Identities(self._clock) if idempotent else None,
            self._routes,
            upload_threshold_bytes=upload_threshold_bytes,
        )

    @property
    def url(self) -> str:
        """The first of the addresses that the client was given."""
        return self._transport.addresses.given[0]

    @property
    def urls(self) -> tuple[str, ...]:
        """The brokers' addresses that are known: those given, then those learned."""
        return self._transport.addresses.all

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection; later calls raise `ClientClosed`."""
        await self._transport.aclose()  # first: whoever waits for a route goes on, and finds the client closed
        await self._discovery.close()
        if self._routes is not None:
            await self._routes.close()

    async def create_topic(self, topic: str, **config: Any) -> Topic:
        """Create a topic, or change the configuration of one that exists: `segments=4`, `retention={…}`, ….

        Raises `InvalidName`, `InvalidConfig` (naming the nearest known setting) or `Conflict`.
        """
        return await self._admin.create_topic(topic, config)

    async def topic(self, topic: str) -> Topic:
        """A topic's configuration and segments; raises `TopicNotFound`."""
        return await self._admin.topic(topic)

    async def topics(self) -> AsyncIterator[TopicSummary]:
        """All topics by name."""
        after: str | None = None
        while True:
            page, after = await self._admin.topics(after)
            for each in page:
                yield each
            if after is None:
                return

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages; raises `TopicNotFound`."""
        await self._admin.delete_topic(topic)

    async def route(self, topic: str) -> Route:
        """A topic's open segments and the brokers that own them."""
        return await self._admin.route(topic)

    async def split_segment(
        self, topic: str, segment: int, *, at: Sequence[int] | None = None, parts: int | None = None
    ) -> tuple[Segment, ...]:
        """Cut an open segment at slots, or into parts (two unless said) that share its load; its successors by slots.

        Publishers and readers go on, in each key's order. Raises `SegmentNotFound`, `InvalidRequest` for slots that do
        not lie within it in ascending order, and `Conflict` where it is sealed or `max_segments` has no room.
        """
        return await self._admin.split_segment(topic, segment, at, parts)

    async def merge_segments(self, topic: str, segment: int, other: int) -> Segment:
        """Make one of two open segments that are neighbours in key order; their successor.

        Raises `SegmentNotFound`, and `Conflict` where they are no such neighbours or `min_segments` forbids it.
        """
        return await self._admin.merge_segments(topic, segment, other)

    async def history(self, topic: str) -> AsyncIterator[SegmentLife]:
        """Every segment that the topic has had, by id."""
        after: int | None = None
        while True:
            page, after = await self._admin.history(topic, after)
            for each in page:
                yield each
            if after is None:
                return

    async def cluster(self) -> Cluster:
        """The brokers of the cluster, its leader, and the transitions under way."""
        return await self._admin.cluster()

    async def drain_broker(self, broker: str) -> BrokerDrain:
        """Have the broker of that id hand over all it owns, so that it can be stopped; raises `NotFound`.

        The answer says how many segments are left: ask again until there are none.
        """
        return await self._admin.drain_broker(broker)

    async def undrain_broker(self, broker: str) -> BrokerDrain:
        """Let the broker of that id own segments again after it was drained; raises `NotFound`.

        The answer says how many it has; it gets its share within seconds.
        """
        return await self._admin.undrain_broker(broker)

    async def files(self, topic: str, *, from_: str | datetime | None = None) -> AsyncIterator[SegmentFile]:
        """A topic's live Parquet files, to be read without the broker: all, or those from a time on."""
        start = start_of(from_, None)
        after: str | None = None
        while True:
            page, after = await self._admin.files(topic, start, after)
            for each in page:
                yield each
            if after is None:
                return

    async def segment_files(
        self, topic: str, segment: int, *, offset: int = 0, end_offset: int | None = None
    ) -> AsyncIterator[SegmentFile]:
        """The live Parquet files of one segment that hold any of its messages from `offset` to `end_offset`.

        What is not on the store yet is in none of them. Raises `SegmentNotFound` and `PositionExpired`.
        """
        following: int | None = offset
        while following is not None:
            page, following = await self._admin.segment_files(topic, segment, following, end_offset)
            for each in page:
                yield each

    async def segment_page(
        self, topic: str, segment: int, *, offset: int = 0, limit: int = PAGE_ROWS, wait_seconds: float = 0.0
    ) -> SegmentPage:
        """Messages of one segment from an offset on, at most `limit`, waiting so long for a first one.

        For readers that keep offsets themselves; `browse` and `subscribe` read a whole topic in each key's order.
        Raises `SegmentNotFound`, `PositionExpired`, and `InvalidRequest` for an offset beyond the end.
        """
        return await segment_page(self._transport, topic, segment, offset, limit=limit, wait_seconds=wait_seconds)

    async def position(
        self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None
    ) -> TopicPosition:
        """The offset of each segment at a marker, at `"earliest"`, `"latest"` (the default) or at a time.

        Raises `InvalidMarker`, and `PositionExpired` where retention has taken what the marker names.
        """
        start = start_of(from_, marker) if marker is None else {"marker": marker}
        return await self._admin.position(topic, start)

    async def wait_behind(self, topic: str, marker: str, *, seconds: float) -> bool:
        """Wait so long for a message behind a marker; whether there is one. For readers that keep positions themselves.

        Raises `InvalidMarker`, and `PositionExpired` where retention has taken what the marker names.
        """
        return await is_more_behind(self._transport, topic, marker, wait_seconds=seconds)

    async def publish(
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
        answered = await self._publisher.publish(topic, OutgoingMessage(value, key, headers or {}, event_time))
        return Position(answered[0].segment, answered[0].offset)

    async def publish_many(self, topic: str, messages: Iterable[OutgoingMessage | Value]) -> Published:
        """Publish messages (or bare values) in order, in few requests, one at a time.

        A failure carries in `published` what was acknowledged before it.
        """
        return await self._publisher.publish_many(topic, messages)

    async def publish_table(
        self,
        topic: str,
        table: Any,
        *,
        progress: Progress | None = None,
        **columns: Unpack[Columns],
    ) -> Published:
        """Publish each row of a pyarrow, pandas or polars table, in order.

        `key`, `value` and `event_time` name columns. Without `value` the row goes as a JSON object of all
        columns; a value column of other than bytes or text goes as JSON too. `headers` names a map column, or
        gives the same headers for all. `progress` is called with the rows acknowledged and their total. A
        failure carries in `published` what was acknowledged before it: go on with
        `table[error.published.count:]`.
        """
        plan = TablePlan(**columns)
        return await self._publisher.publish_table(topic, table, plan, progress)

    async def publish_request(self, topic: str, table: pa.Table, *, producer_id: str, sequence: int) -> Published:
        """Publish a few rows as one request, under an id of the caller's own.

        Columns are `key`, `value`, `headers` and `event_time`, as far as they are there. Called again with the same
        id, sequence and rows, by whomever and wherever, it stores nothing twice and gives the same answer, as long as
        the id has been silent for less than an hour and has had fewer than 1,000 later sequences; only the id is
        compared. Raises `SequenceExpired` where brokers cannot tell any more.
        """
        return await self._publisher.publish_request(topic, table, checked_producer_id(producer_id), sequence)

    async def committed_load(self, topic: str, load: str) -> CommittedLoad | None:
        """The load of that name, if the topic has adopted it; one that is being committed is waited for."""
        return await self._loader.committed(topic, load)

    async def reserve_load(self, topic: str, load: str, *, segments: int | None = None) -> list[LoadSegment]:
        """Reserve segments for a load that is written piece by piece, or find those that it has; see `load`.

        Each takes the files that `filer.load_files` makes of its messages: `put_load_file`, and in the end
        `commit_load` with all of them.
        """
        return await self._loader.reserve(topic, load, segments)

    async def put_load_file(self, topic: str, load: str, file: LoadFile) -> WrittenFile:
        """Write one file of a load, once; raises `FileTaken` where another one has its name."""
        return await self._loader.put(topic, load, file)

    async def commit_load(self, topic: str, load: str, files: Sequence[WrittenFile]) -> CommittedLoad:
        """Have the topic adopt a load: all of these files or, raising `LoadRefused`, none; the same when repeated."""
        return await self._loader.commit(topic, load, files)

    async def load(
        self,
        topic: str,
        source: Any,
        *,
        load: str | None = None,
        segments: int | None = None,
        progress: Progress | None = None,
        **columns: Unpack[Columns],
    ) -> CommittedLoad:
        """Store all messages of a table, or of Parquet files, by one load: they go straight to the store, in files of
        segments that the topic adopts at once, and not before all are there.

        Give a pyarrow, pandas or polars table, a path (of a file or a folder), or several; columns are chosen as by
        `publish_table`. The same `load` run again with the same rows goes on where it stopped, and tells the same once
        it is committed. Each key has what was published before, then the load in the order of its rows, then what comes
        after. `progress` is called with the rows written and their total. Raises `LoadRefused`, `FileTaken` where an
        earlier run of that name had other rows, and `InvalidArgument` for what the topic cannot take.
        """
        plan = TablePlan(**columns)
        name = self._clock.ulid() if load is None else load
        return await self._loader.load(topic, source, plan, load=name, segments=segments, progress=progress)

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
    ) -> AsyncProducer:
        """A producer that sends messages of a topic in batches; see `AsyncProducer`.

        `idempotent` is the client's unless given. A `producer_id` of the caller's own (a random one otherwise) may
        be used again only with a `first_sequence` beyond every sequence it has had: what comes under an old one is
        taken for a repetition, and not stored.
        """
        wanted = self._idempotent if idempotent is None else idempotent
        return AsyncProducer(
            self._publisher,
            SegmentRanges(self._admin, topic),
            None if self._routes is None else self._routes.of(topic),
            topic,
            clock=self._clock,
            settings=ProducerSettings(linger_seconds, batch_bytes, max_pending_bytes),
            identity=self._identity(producer_id, first_sequence, idempotent=wanted),
        )

    def _identity(self, producer_id: str | None, first_sequence: int, *, idempotent: bool) -> Identity | None:
        if not idempotent:
            if producer_id is not None:
                raise InvalidArgument("a producer that is not idempotent has no producer_id")
            return None
        if first_sequence < 0:
            raise InvalidArgument(f"first_sequence is {first_sequence}: it must be 0 or more")
        known_as = self._clock.ulid() if producer_id is None else checked_producer_id(producer_id)
        return Identity(known_as, first_sequence=first_sequence)

    async def upload(self, topic: str, data: bytes | BinaryIO) -> Upload:
        """Store a payload, from bytes or a seekable binary file, to be published as a value of this topic."""
        return await self._uploader.upload(topic, data)

    def open(self, message: Message) -> AsyncPayload:
        """The payload of a message, inline or by reference: `async with client.open(message) as payload`."""
        return AsyncPayload(self._transport, message)

    def browse(
        self,
        topic: str,
        *,
        from_: str | datetime | None = None,
        marker: str | None = None,
        limit: int | None = None,
    ) -> AsyncMessages:
        """The messages from a position to the end of the topic, each key's in order.

        `from_` is `"earliest"` (the default), `"latest"` or a time; `marker` is where an earlier reader
        stopped. Raises `PositionExpired` where retention has taken the position.
        """
        return AsyncMessages(
            Reader(self._transport, topic, from_=from_, marker=marker, limit=limit, admin=self._by_files)
        )

    def subscribe(self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None) -> AsyncMessages:
        """The messages from a position on, without end.

        With neither `from_` nor `marker` it is the end of the topic at the moment that iterating begins.
        A broken connection or a restarted broker is waited for, without loss and without doubles. Keep a
        message's `marker` with what was made of it to go on from there in another process.
        """
        return AsyncMessages(self._following(topic, from_, marker, each_marker=True))

    def browse_tables(
        self,
        topic: str,
        *,
        from_: str | datetime | None = None,
        marker: str | None = None,
        limit: int | None = None,
    ) -> AsyncTables:
        """As `browse`, in pyarrow tables as they come from the broker, without an object per message.

        Columns: `segment`, `_offset`, `_timestamp`, `key`, `value`, `event_time`, `headers`, `_ref`.
        """
        reader = Reader(
            self._transport, topic, from_=from_, marker=marker, limit=limit, each_marker=False, admin=self._by_files
        )
        return AsyncTables(reader)

    async def read_table(
        self,
        topic: str,
        *,
        from_: str | datetime | None = None,
        marker: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """As `browse_tables`, as one table in memory."""
        return await self.browse_tables(topic, from_=from_, marker=marker, limit=limit).read_all()

    def subscribe_tables(
        self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None
    ) -> AsyncTables:
        """As `subscribe`, in pyarrow tables as they come from the broker."""
        return AsyncTables(self._following(topic, from_, marker, each_marker=False))

    def _following(self, topic: str, from_: str | datetime | None, marker: str | None, *, each_marker: bool) -> Reader:
        start = "latest" if from_ is None and marker is None else from_
        return Reader(
            self._transport,
            topic,
            from_=start,
            marker=marker,
            follow=True,
            each_marker=each_marker,
            admin=self._by_files,
        )
