"""The asynchronous client: every call of BraidMQ, for asyncio.

`client.py` is generated from this file: run `python tools/generate_client.py` (or `make format`) after a change here.
Modules that need Arrow are imported where they are used: calls that carry no messages, as most commands of `mq` make,
start in a third of the time without it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self, Unpack
from weakref import WeakSet

import httpx

from braidmq.cluster.admin import Admin
from braidmq.cluster.discovery import Discovery
from braidmq.cluster.routes import Routes
from braidmq.defaults import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_COMMIT_SECONDS,
    DEFAULT_CONNECT_TIMEOUT_SECONDS,
    DEFAULT_DELIVERY_TIMEOUT_SECONDS,
    DEFAULT_LINGER_SECONDS,
    DEFAULT_MAX_PENDING_BYTES,
    DEFAULT_PREFETCH,
    DEFAULT_TIMEOUT_SECONDS,
    DEFAULT_UPLOAD_THRESHOLD_BYTES,
    LONGEST_DELIVERY_TIMEOUT_SECONDS,
    PAGE_ROWS,
    default_url,
)
from braidmq.errors import BraidMQError, InvalidArgument
from braidmq.models import (
    BrokerDrain,
    Cluster,
    ClusterPolicy,
    CommittedLoad,
    GroupSummary,
    Route,
    Segment,
    SegmentFile,
    SegmentLife,
    Topic,
    TopicGroup,
    TopicGroupSummary,
    TopicPosition,
    TopicSummary,
    UnusableTopic,
    Verification,
)
from braidmq.positions import Position, Published
from braidmq.publish.identity import Identity, IdentityPool, checked_producer_id
from braidmq.read.start import start_parameters
from braidmq.read.verification import verification
from braidmq.short_tracebacks import short_tracebacks
from braidmq.topic_settings import TopicSettings
from braidmq.transport.addresses import Addresses, parse_addresses, shown
from braidmq.transport.retry import Retry
from braidmq.transport.tls import ClientCert, FileName, broker_tls
from braidmq.transport.tokens import token_of
from braidmq.transport.transport import Transport
from braidmq.transport.waits import Waiting
from filer.clock import Clock, SystemClock

if TYPE_CHECKING:
    import pyarrow as pa

    from braidmq.bulk_load.loader import Loader, WrittenFile
    from braidmq.consume.consumer import AsyncConsumer
    from braidmq.consume.group import AsyncGroup
    from braidmq.consume.worker import AsyncWorker
    from braidmq.message import Message
    from braidmq.publish.encoding.outgoing import Headers, Key, OutgoingMessage, Upload, Value
    from braidmq.publish.encoding.tables import Columns
    from braidmq.publish.producer import AsyncProducer
    from braidmq.publish.publisher import Progress, Publisher
    from braidmq.publish.uploads import Uploader
    from braidmq.read.cursors import AsyncMessages, AsyncTables
    from braidmq.read.payload import AsyncPayload
    from braidmq.read.reader import Reader
    from braidmq.read.segment_pages import SegmentPage
    from filer.bulk_load.load_files import LoadFile
    from filer.bulk_load.load_segment import LoadSegment


@short_tracebacks
class AsyncClient:
    """A client of one cluster, for asyncio.

    Use it as an asynchronous context manager, or call `aclose`. `url` is one broker's address, several addresses
    separated by commas, or a list of them; without it, that of the variable `BRAIDMQ_URL`, or this machine's. If a
    broker fails, the client asks the next one.

    - `timeout_seconds` bounds each wait for a broker, `connect_timeout_seconds` each attempt to connect.
    - `token`, or the current content of `token_file`, goes with every request to brokers; without them, that of the
      variables `BRAIDMQ_TOKEN` or `BRAIDMQ_TOKEN_FILE`. So do `headers`.
    - `ca` is a file of the certificates by which brokers are trusted, instead of the system's. `client_cert` is shown
      to brokers that ask for the client's identity: a file with a certificate and its key, or the files of the two.
      Without them, the variables `BRAIDMQ_CA`, `BRAIDMQ_CLIENT_CERT` and `BRAIDMQ_CLIENT_KEY` count.
    - `retry` says how long reads and other repeatable calls are retried.
    - `idempotent`: brokers recognise a repeated publish and store it once. So the client repeats a publish for
      `delivery_timeout_seconds` until it knows the outcome. Without `idempotent` it repeats a publish only if the
      broker reports, or the missing connection proves, that nothing was stored.
    - `direct`: the client learns the cluster's other brokers and sends messages straight to the owners of their
      segments. Without `direct` it uses only the given addresses, for example those of a load balancer.
    - `read_files`: readers that are far behind read the topic's files from the store, if this machine can reach it,
      and ask brokers only for the newest messages.
    - Values longer than `upload_threshold_bytes` are uploaded and published by reference.
    - `http_transport` and `clock` are for tests.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        headers: Mapping[str, str] | None = None,
        ca: FileName | None = None,
        client_cert: ClientCert | None = None,
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
                f"{LONGEST_DELIVERY_TIMEOUT_SECONDS:g}, because brokers forget silent producers after an hour"
            )
        self._clock = clock or SystemClock()
        self._transport = Transport(
            Addresses(parse_addresses(default_url() if url is None else url)),
            headers=headers or {},
            token=token_of(token, token_file, headers or {}, self._clock),
            tls=broker_tls(ca, client_cert),
            timeout_seconds=timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            retry=retry or Retry(),
            clock=self._clock,
            http_transport=http_transport,
        )
        self._admin = Admin(self._transport)
        self._file_admin = self._admin if read_files else None
        self._discovery = Discovery(self._transport, self._admin)
        if direct:
            self._transport.on_response = self._discovery.refresh_if_due
        # A publish finds the owners first. That must leave time for the publish itself.
        fetch_seconds = delivery_timeout_seconds / 2
        self._routes = (
            Routes(self._admin, self._transport.addresses, self._clock, fetch_seconds=fetch_seconds) if direct else None
        )
        self._workers: WeakSet[AsyncWorker | AsyncConsumer] = WeakSet()
        self._producers: WeakSet[AsyncProducer] = WeakSet()
        self._idempotent = idempotent
        self._delivery_timeout_seconds = delivery_timeout_seconds
        self._upload_threshold_bytes = upload_threshold_bytes

    @cached_property
    def _uploader(self) -> Uploader:
        from braidmq.publish.uploads import Uploader

        return Uploader(self._transport)

    @cached_property
    def _loader(self) -> Loader:
        from braidmq.bulk_load.loader import Loader

        return Loader(self._transport, self._admin)

    @cached_property
    def _publisher(self) -> Publisher:
        from braidmq.publish.delivery import Delivery
        from braidmq.publish.publisher import Publisher

        return Publisher(
            Delivery(self._transport, self._routes, timeout_seconds=self._delivery_timeout_seconds),
            self._uploader,
            IdentityPool(self._clock) if self._idempotent else None,
            self._routes,
            upload_threshold_bytes=self._upload_threshold_bytes,
        )

    def __repr__(self) -> str:
        return f"AsyncClient({shown(self.url)!r})"

    @property
    def url(self) -> str:
        """The first of the addresses that the client was given."""
        return self._transport.addresses.given[0]

    @property
    def current_url(self) -> str:
        """The address that calls try first: the one that has answered last, unless it has failed since."""
        return self._transport.addresses.current

    @property
    def urls(self) -> tuple[str, ...]:
        """The known addresses of brokers: first those given, then those learned."""
        return self._transport.addresses.all

    @property
    def waiting(self) -> Waiting | None:
        """The call that has waited longest for a broker, and why; None if none waits. For programs that report it."""
        return self._transport.waits.longest()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection; later calls raise `ClientClosed`. Workers and consumers are closed first.

        Receipts of producers that are still open raise it too: close those before, or use them in a block.
        """
        for worker in list(self._workers):
            # A program that needs its acks has called `flush`.
            with suppress(BraidMQError):
                await worker.close()
        for producer in list(self._producers):
            await producer.abandon()
        await self._transport.aclose()  # first: then callers that wait for a route wake up and find the client closed
        await self._discovery.close()
        if self._routes is not None:
            await self._routes.close()

    async def create_topic(self, topic: str, *, exist_ok: bool = True, **settings: Unpack[TopicSettings]) -> Topic:
        """Create a topic, or change the settings of an existing one: `segments=4`, `retention={"seconds": 3600}`, ….

        A program may call it whenever it starts. `created` of the answer says whether the topic is new. Settings that
        count only at creation (`segments`) are ignored if it is not new, and stand in `differs`. With `exist_ok=False`
        an existing topic is left alone. Raises `InvalidName`, `InvalidConfig` (which names the nearest known setting),
        `Conflict` for a change of `key_type` or `value_type`, and `TopicExists`.
        """
        return await self._admin.create_topic(topic, settings, exist_ok=exist_ok)

    async def topic(self, topic: str) -> Topic:
        """Return a topic's configuration and segments. Raises `TopicNotFound`."""
        return await self._admin.topic(topic)

    async def topics(self, *, internal: bool = False) -> AsyncIterator[TopicSummary]:
        """Iterate over all topics, ordered by name: with `internal`, also over the brokers' own (`__groups`)."""
        after: str | None = None
        while True:
            page, _, after = await self._admin.topics(after, internal=internal)
            for each in page:
                yield each
            if after is None:
                return

    async def unusable_topics(self) -> AsyncIterator[UnusableTopic]:
        """Iterate over the topics whose record on the store is damaged or missing, ordered by name."""
        after: str | None = None
        while True:
            _, page, after = await self._admin.topics(after)
            for each in page:
                yield each
            if after is None:
                return

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages. Raises `TopicNotFound`."""
        await self._admin.delete_topic(topic)

    async def create_topic_group(
        self,
        group: str,
        topics: Sequence[str] = (),
        *,
        splittable: bool | None = None,
        **settings: Unpack[TopicSettings],
    ) -> TopicGroup:
        """Create a topic group, whose topics share one chain of segments and one order, or add topics to it.

        The topics are published to and read by their own names, and all of them together by the group's. Only a
        `splittable` group may have several segments; its order is by key. The settings are those of a topic, and count
        for all topics of the group. A program may call it whenever it starts: `differs` has what was ignored. Raises
        `Conflict` for a name that is taken, `InvalidName` and `InvalidConfig`.
        """
        wanted: dict[str, Any] = dict(settings)
        if topics:
            wanted["topics"] = list(topics)
        if splittable is not None:
            wanted["splittable"] = splittable
        return await self._admin.put_topic_group(group, wanted)

    async def topic_group(self, group: str) -> TopicGroup:
        """Return a topic group: its topics, and the configuration and segments that they share.

        Raises `TopicGroupNotFound`.
        """
        return await self._admin.topic_group(group)

    async def topic_groups(self) -> AsyncIterator[TopicGroupSummary]:
        """Iterate over all topic groups, ordered by name."""
        after: str | None = None
        while True:
            page, after = await self._admin.topic_groups(after)
            for each in page:
                yield each
            if after is None:
                return

    async def delete_topic_group(self, group: str) -> None:
        """Delete a topic group with all its topics and their messages. Raises `TopicGroupNotFound`."""
        await self._admin.delete_topic_group(group)

    async def verify(self, topic: str | None = None) -> AsyncIterator[Verification]:
        """Have a broker check every byte of a topic on its store, or of the cluster's records; iterate over its report.

        The last report has `is_complete`. Raises `TopicNotFound`, and `ConnectionBroken` or the broker's own error if
        the check was not completed: it is not begun again.
        """
        async for report in verification(self._transport, topic):
            yield report

    async def route(self, topic: str) -> Route:
        """Return a topic's open segments and the brokers that own them."""
        return await self._admin.route(topic)

    async def split_segment(
        self, topic: str, segment: int, *, at: Sequence[int] | None = None, parts: int | None = None
    ) -> tuple[Segment, ...]:
        """Split an open segment and return its successors, ordered by slots.

        `at` gives the slots to cut at; `parts` is a number of successors (2 by default) that share its traffic.
        Publishers and readers go on, and each key keeps its order. Raises `SegmentNotFound`, `InvalidRequest` if the
        slots are not in the segment or not ascending, and `Conflict` if it is sealed or `max_segments` would be passed.
        """
        return await self._admin.split_segment(topic, segment, at, parts)

    async def merge_segments(self, topic: str, segment: int, other: int) -> Segment:
        """Merge two open segments that are neighbours in key order, and return their successor.

        Raises `SegmentNotFound`, and `Conflict` if they are not open neighbours or `min_segments` forbids the merge.
        """
        return await self._admin.merge_segments(topic, segment, other)

    async def history(self, topic: str) -> AsyncIterator[SegmentLife]:
        """Iterate over every segment that the topic has had, ordered by id."""
        after: int | None = None
        while True:
            page, after = await self._admin.history(topic, after)
            for each in page:
                yield each
            if after is None:
                return

    async def cluster(self) -> Cluster:
        """Return the brokers of the cluster, its leader, and the transitions under way."""
        return await self._admin.cluster()

    async def policy(self) -> ClusterPolicy:
        """Return the policy of the cluster: grants, revocations and quotas. Raises `Forbidden`."""
        return await self._admin.policy()

    async def set_policy(self, policy: Mapping[str, Any], *, etag: str) -> ClusterPolicy:
        """Put a policy in the place of the one with this `etag`, and return it: it is in force within a second.

        Anything that `policy` leaves out is no longer in force. Raises `PolicyChanged` if the policy has changed
        meanwhile, and `InvalidRequest`, which names what is wrong.
        """
        return await self._admin.set_policy(policy, etag)

    async def drain_broker(self, broker: str) -> BrokerDrain:
        """Make a broker hand over everything that it owns, so that it can be stopped. Raises `NotFound`.

        The answer says how many segments are left. Call it again until there are none.
        """
        return await self._admin.drain_broker(broker)

    async def undrain_broker(self, broker: str) -> BrokerDrain:
        """Let a drained broker own segments again. Raises `NotFound`.

        The answer says how many it owns now; it gets its share within seconds.
        """
        return await self._admin.undrain_broker(broker)

    async def files(self, topic: str, *, from_: str | datetime | None = None) -> AsyncIterator[SegmentFile]:
        """Iterate over a topic's live Parquet files, to read them without a broker: all, or those from a time on."""
        start = start_parameters(from_, None)
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
        """Iterate over the live Parquet files of one segment that hold messages of `[offset, end_offset)`.

        Messages that are not on the store yet are in no file. Raises `SegmentNotFound` and `PositionExpired`.
        """
        following: int | None = offset
        while following is not None:
            page, following = await self._admin.segment_files(topic, segment, following, end_offset)
            for each in page:
                yield each

    async def segment_page(
        self, topic: str, segment: int, *, offset: int = 0, limit: int = PAGE_ROWS, wait_seconds: float = 0.0
    ) -> SegmentPage:
        """Return at most `limit` messages of one segment from an offset on.

        If there is none, wait up to `wait_seconds` for the first. This is for readers that keep offsets themselves;
        `browse` and `subscribe` read a whole topic with each key in order. Raises `SegmentNotFound`,
        `PositionExpired`, and `InvalidRequest` for an offset beyond the end.
        """
        from braidmq.read.segment_pages import segment_page

        return await segment_page(self._transport, topic, segment, offset, limit=limit, wait_seconds=wait_seconds)

    async def position(
        self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None
    ) -> TopicPosition:
        """Return the offset of each segment at a marker, at `"earliest"`, `"latest"` (the default) or at a time.

        Raises `InvalidMarker`, and `PositionExpired` if retention has removed the marker's position.
        """
        start = start_parameters(from_, marker) if marker is None else {"marker": marker}
        return await self._admin.position(topic, start)

    async def wait_behind(self, topic: str, marker: str, *, seconds: float) -> bool:
        """Wait up to `seconds` for a message after a marker, and return whether there is one.

        This is for readers that keep positions themselves. Raises `InvalidMarker`, and `PositionExpired` if retention
        has removed the marker's position.
        """
        from braidmq.read.reader import has_message_after

        return await has_message_after(self._transport, topic, marker, wait_seconds=seconds)

    async def publish(
        self,
        topic: str,
        value: Value,
        *,
        key: Key = None,
        headers: Headers | None = None,
        event_time: datetime | None = None,
        deliver_at: datetime | None = None,
        delay: timedelta | None = None,
        expires_at: datetime | None = None,
    ) -> Position:
        """Publish one message and return its position once it is stored.

        See `OutgoingMessage` for possible values, and for the times. Raises `OutcomeUnknown` if no acknowledgement came
        in time.
        """
        from braidmq.publish.encoding.outgoing import OutgoingMessage

        times = (event_time, deliver_at, delay, expires_at)
        return await self._publish(topic, OutgoingMessage(value, key, headers or {}, *times))

    async def _publish(self, topic: str, message: OutgoingMessage) -> Position:
        positions = await self._publisher.publish(topic, message)
        return Position(positions[0].segment, positions[0].offset)

    async def _publish_again(self, topic: str, message: OutgoingMessage, producer_id: str, sequence: int) -> Position:
        """Publish a message again, after a try with an unknown outcome, with the same producer and sequence."""
        positions = await self._publisher.publish_as(topic, message, producer_id, sequence)
        return Position(positions[0].segment, positions[0].offset)

    async def publish_many(self, topic: str, messages: Iterable[OutgoingMessage | Value]) -> Published:
        """Publish messages (or bare values) in order, in few requests, one request at a time.

        If it fails, the error's `published` has what was acknowledged before.
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

        `key`, `value` and `event_time` name columns. Without `value`, the value is the row as a JSON object of all
        columns. A value column that is neither bytes nor text is sent as JSON too. `headers` names a map column, or
        gives the same headers for all rows. `deliver_at`, `delay` and `expires_at` name columns, or give the same time
        for all. `progress` is called with the number of acknowledged rows and the total. If it fails, the error's
        `published` has what was acknowledged before: go on with `table[error.published.count:]`.
        """
        from braidmq.publish.encoding.tables import TablePlan

        plan = TablePlan(**columns, now_us=self._clock.now_us())
        return await self._publisher.publish_table(topic, table, plan, progress)

    async def publish_request(self, topic: str, table: pa.Table, *, producer_id: str, sequence: int) -> Published:
        """Publish a few rows as one request, under a producer id of the caller's own.

        Columns are `key`, `value` and optionally `headers` and `event_time`. A second call with the same
        id, sequence and rows, from any process or machine, stores nothing twice and returns the same answer. This holds
        until the id has been silent for an hour or has sent 1,000 later sequences. Brokers compare only the id and the
        sequence, not the rows. Raises `SequenceExpired` if brokers no longer remember the sequence.
        """
        return await self._publisher.publish_request(topic, table, checked_producer_id(producer_id), sequence)

    async def committed_load(self, topic: str, load: str) -> CommittedLoad | None:
        """Return the bulk load of that name if the topic has adopted it. Waits if it is being committed right now."""
        return await self._loader.committed(topic, load)

    async def reserve_load(self, topic: str, load: str, *, segments: int | None = None) -> list[LoadSegment]:
        """Reserve segments for a bulk load that is written file by file, or return those it already has; see `load`.

        `filer.bulk_load.load_files` makes the files of each segment from its messages. Write each with
        `put_load_file`, then call `commit_load` with all of them.
        """
        return await self._loader.reserve(topic, load, segments)

    async def put_load_file(self, topic: str, load: str, file: LoadFile) -> WrittenFile:
        """Write one file of a bulk load, once. Raises `FileTaken` if another file has its name."""
        return await self._loader.put(topic, load, file)

    async def commit_load(self, topic: str, load: str, files: Sequence[WrittenFile]) -> CommittedLoad:
        """Make the topic adopt a bulk load: all of these files, or none and `LoadRefused`.

        A repeated call returns the same answer.
        """
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
        """Store all rows of a table, or of Parquet files, as messages of one bulk load.

        The messages go straight to the store, as the files of new segments. The topic adopts all of these segments at
        once, when every file is there.

        `source` is a pyarrow, pandas or polars table, the path of a file or folder, or a list of paths; columns are
        chosen as in `publish_table`. If the same `load` runs again with the same rows, it goes on where it stopped;
        once it is committed, it returns the same answer. Each key first has the messages published before, then the
        bulk load in the order of its rows, then the messages that follow. `progress` is called with the number of rows
        written and the total. Raises `LoadRefused`, `FileTaken` if an earlier run of that name had other rows, and
        `InvalidArgument` for rows that the topic cannot take.
        """
        from braidmq.publish.encoding.tables import TablePlan

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
        """Return a producer that sends messages of a topic in batches; see `AsyncProducer`.

        `idempotent` is the client's setting by default, `producer_id` a random id. An id may be used again only with
        a `first_sequence` above every sequence it has used: brokers take a request with a known sequence for a
        repetition and do not store it.
        """
        from braidmq.publish.producer import AsyncProducer, ProducerSettings
        from braidmq.publish.ranges import SegmentRanges

        wanted = self._idempotent if idempotent is None else idempotent
        producer = AsyncProducer(
            self._publisher,
            SegmentRanges(self._admin, topic),
            None if self._routes is None else self._routes.of(topic),
            topic,
            clock=self._clock,
            settings=ProducerSettings(linger_seconds, batch_bytes, max_pending_bytes),
            identity=self._identity(producer_id, first_sequence, idempotent=wanted),
        )
        self._producers.add(producer)
        return producer

    def _identity(self, producer_id: str | None, first_sequence: int, *, idempotent: bool) -> Identity | None:
        if not idempotent:
            if producer_id is not None:
                raise InvalidArgument("producer_id needs an idempotent producer: leave it out, or set idempotent=True")
            return None
        if first_sequence < 0:
            raise InvalidArgument(f"first_sequence is {first_sequence}: it must be 0 or more")
        chosen_id = self._clock.ulid() if producer_id is None else checked_producer_id(producer_id)
        return Identity(chosen_id, first_sequence=first_sequence)

    async def upload(self, topic: str, data: bytes | BinaryIO) -> Upload:
        """Store a payload, from bytes or a seekable binary file. Publish the result as a value of this topic."""
        return await self._uploader.upload(topic, data)

    def open(self, message: Message) -> AsyncPayload:
        """Return the payload of a message, inline or by reference: `async with client.open(message) as payload`.

        The ETag is checked when it is opened, the size and
        SHA-256 when the end is read. Raises `PayloadMismatch` if one of them differs.
        """
        from braidmq.read.payload import AsyncPayload

        return AsyncPayload(self._transport, message)

    def browse(
        self,
        topic: str,
        *,
        from_: str | datetime | None = None,
        marker: str | None = None,
        limit: int | None = None,
    ) -> AsyncMessages:
        """Iterate over the messages from a position to the end of the topic, each key in order.

        `from_` is `"earliest"` (the default), `"latest"` or a time; `marker` is where an earlier reader stopped.
        Raises `PositionExpired` if retention has removed the position.
        """
        from braidmq.read.cursors import AsyncMessages
        from braidmq.read.reader import Reader

        return AsyncMessages(
            Reader(self._transport, topic, from_=from_, marker=marker, limit=limit, admin=self._file_admin)
        )

    def subscribe(self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None) -> AsyncMessages:
        """Iterate over the messages from a position on, without end.

        With neither `from_` nor `marker` it starts at the end of the topic, at the moment that iteration begins.
        It waits out broken connections and broker restarts, without loss and without duplicates. To go on later or
        elsewhere, store a message's `marker` together with the result of processing the message.
        """
        from braidmq.read.cursors import AsyncMessages

        return AsyncMessages(self._following(topic, from_, marker, each_marker=True))

    def browse_tables(
        self,
        topic: str,
        *,
        from_: str | datetime | None = None,
        marker: str | None = None,
        limit: int | None = None,
    ) -> AsyncTables:
        """As `browse`, but in pyarrow tables, as the broker sends them, without an object per message.

        Columns: `segment`, `_offset`, `_timestamp`, `key`, `value`, `event_time`, `headers`, `_ref`.
        """
        from braidmq.read.cursors import AsyncTables
        from braidmq.read.reader import Reader

        reader = Reader(
            self._transport, topic, from_=from_, marker=marker, limit=limit, each_marker=False, admin=self._file_admin
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
        """As `browse_tables`, but as one table in memory."""
        return await self.browse_tables(topic, from_=from_, marker=marker, limit=limit).read_all()

    def subscribe_tables(
        self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None
    ) -> AsyncTables:
        """As `subscribe`, but in pyarrow tables, as the broker sends them."""
        from braidmq.read.cursors import AsyncTables

        return AsyncTables(self._following(topic, from_, marker, each_marker=False))

    def _following(self, topic: str, from_: str | datetime | None, marker: str | None, *, each_marker: bool) -> Reader:
        from braidmq.read.reader import Reader

        start = "latest" if from_ is None and marker is None else from_
        return Reader(
            self._transport,
            topic,
            from_=start,
            marker=marker,
            follow=True,
            each_marker=each_marker,
            admin=self._file_admin,
        )

    async def groups(self, topic: str) -> AsyncIterator[GroupSummary]:
        """Iterate over the consumer groups of a topic, ordered by name. Raises `TopicNotFound`."""
        after: str | None = None
        while True:
            page, after = await self._admin.groups(topic, after)
            for each in page:
                yield each
            if after is None:
                return

    def group(self, topic: str, group: str) -> AsyncGroup:
        """Return a consumer group, to create, describe or delete it. It need not exist."""
        from braidmq.consume.group import AsyncGroup
        from braidmq.consume.group_calls import GroupCalls

        return AsyncGroup(GroupCalls(self._transport, topic, group))

    def worker(
        self,
        topic: str,
        *,
        group: str,
        prefetch: int = DEFAULT_PREFETCH,
        lease_seconds: float | None = None,
        idle_seconds: float | None = None,
        name: str | None = None,
    ) -> AsyncWorker:
        """Return a worker of a queue group: iterate over it for deliveries, or let it `run` a handler.

        See `AsyncWorker`. All workers of a group share the topic's messages. At most `prefetch` messages are claimed
        ahead of the work, and fewer if it is slow. `lease_seconds` are those of the group by default, and at most
        those: how long after this process has died its messages come again. With `idle_seconds` iteration ends once
        there was no message for so long. `name` is its name in the group's description; by default it consists of the
        host and the process.
        """
        from braidmq.consume.group_calls import GroupCalls
        from braidmq.consume.worker import AsyncWorker, WorkerSettings

        settings = WorkerSettings(prefetch, lease_seconds, idle_seconds, name)
        worker = AsyncWorker(GroupCalls(self._transport, topic, group), settings)
        self._workers.add(worker)
        return worker

    def consumer(
        self,
        topic: str,
        *,
        group: str,
        member_id: str | None = None,
        prefetch: int = DEFAULT_PREFETCH,
        commit_seconds: float | None = DEFAULT_COMMIT_SECONDS,
        idle_seconds: float | None = None,
    ) -> AsyncConsumer:
        """Return a member of a stream group: iterate over it for the messages of the segments that it is given.

        See `AsyncConsumer`. All members of a group divide the topic's segments. Done messages are committed every
        `commit_seconds`; with None, only by `commit`. A member that starts again under its `member_id` has its segments
        at once, and ends an earlier process. At most `prefetch` messages of each segment are read ahead. With
        `idle_seconds` iteration ends once there was no message for so long.
        """
        from braidmq.consume.consumer import AsyncConsumer, ConsumerSettings
        from braidmq.consume.member_calls import MemberCalls

        settings = ConsumerSettings(member_id or self._clock.ulid(), prefetch, commit_seconds, idle_seconds)
        consumer = AsyncConsumer(MemberCalls(self._transport, topic, group, self._clock.ulid()), settings)
        self._workers.add(consumer)
        return consumer
