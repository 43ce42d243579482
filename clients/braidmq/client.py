"""The blocking client: the asynchronous one on an event loop in a thread of its own.

Generated from `async_client.py` by `tools/generate_client.py`: do not edit.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, BinaryIO, Self, Unpack

import httpx
import pyarrow as pa

from braidmq.async_client import AsyncClient
from braidmq.blocking import LoopThread, Messages, Payload, Tables, publish_in_batches
from braidmq.blocking_consumers import Consumer
from braidmq.blocking_groups import Group, Worker
from braidmq.blocking_producer import Producer
from braidmq.blocking_publish import SinglePublishes
from braidmq.bulk_load.loader import WrittenFile
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
    PAGE_ROWS,
)
from braidmq.message import Message
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
from braidmq.publish.encoding.outgoing import Headers, Key, OutgoingMessage, Upload, Value
from braidmq.publish.encoding.tables import Columns
from braidmq.publish.publisher import Progress
from braidmq.read.plain_polls import PlainPolls
from braidmq.read.segment_pages import SegmentPage
from braidmq.short_tracebacks import short_tracebacks
from braidmq.topic_settings import TopicSettings
from braidmq.transport.retry import Retry
from braidmq.transport.tls import ClientCert, FileName
from braidmq.transport.waits import Waiting
from filer.bulk_load.load_files import LoadFile
from filer.bulk_load.load_segment import LoadSegment
from filer.clock import Clock, SystemClock


@short_tracebacks
class Client:
    """A client of one cluster. Use it as a context manager, or call `close`.

    `AsyncClient` does the work; its docstring describes the settings, which are the same. Threads may share a client,
    but not an iterator or a payload.
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
        self._async = AsyncClient(
            url,
            token=token,
            token_file=token_file,
            headers=headers,
            ca=ca,
            client_cert=client_cert,
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
        self._singles = SinglePublishes(
            self._async,
            self._loop,
            headers=headers,
            clock=clock or SystemClock(),
            upload_threshold_bytes=upload_threshold_bytes,
            direct=idempotent and http_transport is None,
        )
        self._polls = PlainPolls(
            self._async._transport,
            self._loop,
            headers=headers,
            direct=http_transport is None,
        )

    def __repr__(self) -> str:
        return repr(self._async).removeprefix("Async")

    @property
    def url(self) -> str:
        """The first of the addresses that the client was given."""
        return self._async.url

    @property
    def current_url(self) -> str:
        """The address that calls try first: the one that has answered last, unless it has failed since."""
        return self._async.current_url

    @property
    def urls(self) -> tuple[str, ...]:
        """The known addresses of brokers: first those given, then those learned."""
        return self._async.urls

    @property
    def waiting(self) -> Waiting | None:
        """The call that has waited longest for a broker, and why; None if none waits. For programs that report it."""
        return self._async.waiting

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; later calls raise `ClientClosed`. Workers and consumers are closed first.

        Closing again does nothing.
        """
        self._singles.close()
        self._polls.close()
        if self._loop.is_open:
            self._loop.call(self._async.aclose)
            self._loop.close()

    def create_topic(self, topic: str, *, exist_ok: bool = True, **settings: Unpack[TopicSettings]) -> Topic:
        """Create a topic, or change the settings of an existing one: `segments=4`, `retention={"seconds": 3600}`, ….

        A program may call it whenever it starts. `created` of the answer says whether the topic is new. Settings that
        count only at creation (`segments`) are ignored if it is not new, and stand in `differs`. With `exist_ok=False`
        an existing topic is left alone. Raises `InvalidName`, `InvalidConfig` (which names the nearest known setting),
        `Conflict` for a change of `key_type` or `value_type`, and `TopicExists`.
        """
        return self._loop.call(self._async.create_topic, topic, exist_ok=exist_ok, **settings)

    def topic(self, topic: str) -> Topic:
        """Return a topic's configuration and segments. Raises `TopicNotFound`."""
        return self._loop.call(self._async.topic, topic)

    def topics(self, *, internal: bool = False) -> Iterator[TopicSummary]:
        """Iterate over all topics, ordered by name: with `internal`, also over the brokers' own (`__groups`)."""
        return self._loop.iterate(self._async.topics(internal=internal))

    def unusable_topics(self) -> Iterator[UnusableTopic]:
        """Iterate over the topics whose record on the store is damaged or missing, ordered by name."""
        return self._loop.iterate(self._async.unusable_topics())

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages. Raises `TopicNotFound`."""
        self._loop.call(self._async.delete_topic, topic)

    def create_topic_group(
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
        return self._loop.call(self._async.create_topic_group, group, topics, splittable=splittable, **settings)

    def topic_group(self, group: str) -> TopicGroup:
        """Return a topic group: its topics, and the configuration and segments that they share.

        Raises `TopicGroupNotFound`.
        """
        return self._loop.call(self._async.topic_group, group)

    def topic_groups(self) -> Iterator[TopicGroupSummary]:
        """Iterate over all topic groups, ordered by name."""
        return self._loop.iterate(self._async.topic_groups())

    def delete_topic_group(self, group: str) -> None:
        """Delete a topic group with all its topics and their messages. Raises `TopicGroupNotFound`."""
        self._loop.call(self._async.delete_topic_group, group)

    def verify(self, topic: str | None = None) -> Iterator[Verification]:
        """Have a broker check every byte of a topic on its store, or of the cluster's records; iterate over its report.

        The last report has `is_complete`. Raises `TopicNotFound`, and `ConnectionBroken` or the broker's own error if
        the check was not completed: it is not begun again.
        """
        return self._loop.iterate(self._async.verify(topic))

    def route(self, topic: str) -> Route:
        """Return a topic's open segments and the brokers that own them."""
        return self._loop.call(self._async.route, topic)

    def split_segment(
        self, topic: str, segment: int, *, at: Sequence[int] | None = None, parts: int | None = None
    ) -> tuple[Segment, ...]:
        """Split an open segment and return its successors, ordered by slots.

        `at` gives the slots to cut at; `parts` is a number of successors (2 by default) that share its traffic.
        Publishers and readers go on, and each key keeps its order. Raises `SegmentNotFound`, `InvalidRequest` if the
        slots are not in the segment or not ascending, and `Conflict` if it is sealed or `max_segments` would be passed.
        """
        return self._loop.call(self._async.split_segment, topic, segment, at=at, parts=parts)

    def merge_segments(self, topic: str, segment: int, other: int) -> Segment:
        """Merge two open segments that are neighbours in key order, and return their successor.

        Raises `SegmentNotFound`, and `Conflict` if they are not open neighbours or `min_segments` forbids the merge.
        """
        return self._loop.call(self._async.merge_segments, topic, segment, other)

    def history(self, topic: str) -> Iterator[SegmentLife]:
        """Iterate over every segment that the topic has had, ordered by id."""
        return self._loop.iterate(self._async.history(topic))

    def cluster(self) -> Cluster:
        """Return the brokers of the cluster, its leader, and the transitions under way."""
        return self._loop.call(self._async.cluster)

    def policy(self) -> ClusterPolicy:
        """Return the policy of the cluster: grants, revocations and quotas. Raises `Forbidden`."""
        return self._loop.call(self._async.policy)

    def set_policy(self, policy: Mapping[str, Any], *, etag: str) -> ClusterPolicy:
        """Put a policy in the place of the one with this `etag`, and return it: it is in force within a second.

        Anything that `policy` leaves out is no longer in force. Raises `PolicyChanged` if the policy has changed
        meanwhile, and `InvalidRequest`, which names what is wrong.
        """
        return self._loop.call(self._async.set_policy, policy, etag=etag)

    def drain_broker(self, broker: str) -> BrokerDrain:
        """Make a broker hand over everything that it owns, so that it can be stopped. Raises `NotFound`.

        The answer says how many segments are left. Call it again until there are none.
        """
        return self._loop.call(self._async.drain_broker, broker)

    def undrain_broker(self, broker: str) -> BrokerDrain:
        """Let a drained broker own segments again. Raises `NotFound`.

        The answer says how many it owns now; it gets its share within seconds.
        """
        return self._loop.call(self._async.undrain_broker, broker)

    def files(self, topic: str, *, from_: str | datetime | None = None) -> Iterator[SegmentFile]:
        """Iterate over a topic's live Parquet files, to read them without a broker: all, or those from a time on."""
        return self._loop.iterate(self._async.files(topic, from_=from_))

    def segment_files(
        self, topic: str, segment: int, *, offset: int = 0, end_offset: int | None = None
    ) -> Iterator[SegmentFile]:
        """Iterate over the live Parquet files of one segment that hold messages of `[offset, end_offset)`.

        Messages that are not on the store yet are in no file. Raises `SegmentNotFound` and `PositionExpired`.
        """
        return self._loop.iterate(self._async.segment_files(topic, segment, offset=offset, end_offset=end_offset))

    def segment_page(
        self, topic: str, segment: int, *, offset: int = 0, limit: int = PAGE_ROWS, wait_seconds: float = 0.0
    ) -> SegmentPage:
        """Return at most `limit` messages of one segment from an offset on.

        If there is none, wait up to `wait_seconds` for the first. This is for readers that keep offsets themselves;
        `browse` and `subscribe` read a whole topic with each key in order. Raises `SegmentNotFound`,
        `PositionExpired`, and `InvalidRequest` for an offset beyond the end.
        """
        return self._loop.call(
            self._async.segment_page, topic, segment, offset=offset, limit=limit, wait_seconds=wait_seconds
        )

    def position(self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None) -> TopicPosition:
        """Return the offset of each segment at a marker, at `"earliest"`, `"latest"` (the default) or at a time.

        Raises `InvalidMarker`, and `PositionExpired` if retention has removed the marker's position.
        """
        return self._loop.call(self._async.position, topic, from_=from_, marker=marker)

    def wait_behind(self, topic: str, marker: str, *, seconds: float) -> bool:
        """Wait up to `seconds` for a message after a marker, and return whether there is one.

        This is for readers that keep positions themselves. Raises `InvalidMarker`, and `PositionExpired` if retention
        has removed the marker's position.
        """
        return self._loop.call(self._async.wait_behind, topic, marker, seconds=seconds)

    def publish(
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
        return self._singles.publish(
            topic,
            value,
            key=key,
            headers=headers,
            event_time=event_time,
            deliver_at=deliver_at,
            delay=delay,
            expires_at=expires_at,
        )

    def publish_many(self, topic: str, messages: Iterable[OutgoingMessage | Value]) -> Published:
        """Publish messages (or bare values) in order, in few requests, one request at a time.

        If it fails, the error's `published` has what was acknowledged before.
        """
        return publish_in_batches(self._loop, self._async.publish_many, topic, messages)

    def publish_table(
        self, topic: str, table: Any, *, progress: Progress | None = None, **columns: Unpack[Columns]
    ) -> Published:
        """Publish each row of a pyarrow, pandas or polars table, in order.

        `key`, `value` and `event_time` name columns. Without `value`, the value is the row as a JSON object of all
        columns. A value column that is neither bytes nor text is sent as JSON too. `headers` names a map column, or
        gives the same headers for all rows. `deliver_at`, `delay` and `expires_at` name columns, or give the same time
        for all. `progress` is called with the number of acknowledged rows and the total. If it fails, the error's
        `published` has what was acknowledged before: go on with `table[error.published.count:]`.
        `progress` is called in the client's thread.
        """
        return self._loop.call(self._async.publish_table, topic, table, progress=progress, **columns)

    def publish_request(self, topic: str, table: pa.Table, *, producer_id: str, sequence: int) -> Published:
        """Publish a few rows as one request, under a producer id of the caller's own.

        Columns are `key`, `value` and optionally `headers` and `event_time`. A second call with the same
        id, sequence and rows, from any process or machine, stores nothing twice and returns the same answer. This holds
        until the id has been silent for an hour or has sent 1,000 later sequences. Brokers compare only the id and the
        sequence, not the rows. Raises `SequenceExpired` if brokers no longer remember the sequence.
        """
        return self._loop.call(self._async.publish_request, topic, table, producer_id=producer_id, sequence=sequence)

    def committed_load(self, topic: str, load: str) -> CommittedLoad | None:
        """Return the bulk load of that name if the topic has adopted it. Waits if it is being committed right now."""
        return self._loop.call(self._async.committed_load, topic, load)

    def reserve_load(self, topic: str, load: str, *, segments: int | None = None) -> list[LoadSegment]:
        """Reserve segments for a bulk load that is written file by file, or return those it already has; see `load`.

        `filer.bulk_load.load_files` makes the files of each segment from its messages. Write each with
        `put_load_file`, then call `commit_load` with all of them.
        """
        return self._loop.call(self._async.reserve_load, topic, load, segments=segments)

    def put_load_file(self, topic: str, load: str, file: LoadFile) -> WrittenFile:
        """Write one file of a bulk load, once. Raises `FileTaken` if another file has its name."""
        return self._loop.call(self._async.put_load_file, topic, load, file)

    def commit_load(self, topic: str, load: str, files: Sequence[WrittenFile]) -> CommittedLoad:
        """Make the topic adopt a bulk load: all of these files, or none and `LoadRefused`.

        A repeated call returns the same answer.
        """
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
        """Return a producer that sends messages of a topic in batches; see `Producer`.

        `idempotent` is the client's setting by default, `producer_id` a random id. An id may be used again only with
        a `first_sequence` above every sequence it has used: brokers take a request with a known sequence for a
        repetition and do not store it.
        """
        return Producer(
            self._loop,
            self._async.producer(
                topic,
                linger_seconds=linger_seconds,
                batch_bytes=batch_bytes,
                max_pending_bytes=max_pending_bytes,
                idempotent=idempotent,
                producer_id=producer_id,
                first_sequence=first_sequence,
            ),
        )

    def upload(self, topic: str, data: bytes | BinaryIO) -> Upload:
        """Store a payload, from bytes or a seekable binary file. Publish the result as a value of this topic."""
        return self._loop.call(self._async.upload, topic, data)

    def open(self, message: Message) -> io.BufferedReader:
        """Return the payload of a message, inline or by reference, as a binary file.

        Its ETag is checked when it is opened, its size and SHA-256 by the read that reaches the end. Raises
        `PayloadMismatch` if one of them differs.
        """
        return io.BufferedReader(Payload(self._loop, self._async.open(message)))

    def browse(
        self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None, limit: int | None = None
    ) -> Messages:
        """Iterate over the messages from a position to the end of the topic, each key in order.

        `from_` is `"earliest"` (the default), `"latest"` or a time; `marker` is where an earlier reader stopped.
        Raises `PositionExpired` if retention has removed the position.
        """
        return Messages(self._loop, self._async.browse(topic, from_=from_, marker=marker, limit=limit), self._polls)

    def subscribe(self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None) -> Messages:
        """Iterate over the messages from a position on, without end.

        With neither `from_` nor `marker` it starts at the end of the topic, at the moment that iteration begins.
        It waits out broken connections and broker restarts, without loss and without duplicates. To go on later or
        elsewhere, store a message's `marker` together with the result of processing the message.
        """
        return Messages(self._loop, self._async.subscribe(topic, from_=from_, marker=marker), self._polls)

    def browse_tables(
        self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None, limit: int | None = None
    ) -> Tables:
        """As `browse`, but in pyarrow tables, as the broker sends them, without an object per message.

        Columns: `segment`, `_offset`, `_timestamp`, `key`, `value`, `event_time`, `headers`, `_ref`.
        """
        return Tables(self._loop, self._async.browse_tables(topic, from_=from_, marker=marker, limit=limit))

    def read_table(
        self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None, limit: int | None = None
    ) -> pa.Table:
        """As `browse_tables`, but as one table in memory."""
        return self._loop.call(self._async.read_table, topic, from_=from_, marker=marker, limit=limit)

    def subscribe_tables(self, topic: str, *, from_: str | datetime | None = None, marker: str | None = None) -> Tables:
        """As `subscribe`, but in pyarrow tables, as the broker sends them."""
        return Tables(self._loop, self._async.subscribe_tables(topic, from_=from_, marker=marker))

    def groups(self, topic: str) -> Iterator[GroupSummary]:
        """Iterate over the consumer groups of a topic, ordered by name. Raises `TopicNotFound`."""
        return self._loop.iterate(self._async.groups(topic))

    def group(self, topic: str, group: str) -> Group:
        """Return a consumer group, to create, describe or delete it. It need not exist."""
        return Group(self._loop, self._async.group(topic, group))

    def worker(
        self,
        topic: str,
        *,
        group: str,
        prefetch: int = DEFAULT_PREFETCH,
        lease_seconds: float | None = None,
        idle_seconds: float | None = None,
        name: str | None = None,
    ) -> Worker:
        """Return a worker of a queue group: iterate over it for deliveries, or let it `run` a handler.

        See `Worker`. All workers of a group share the topic's messages. At most `prefetch` messages are claimed
        ahead of the work, and fewer if it is slow. `lease_seconds` are those of the group by default, and at most
        those: how long after this process has died its messages come again. With `idle_seconds` iteration ends once
        there was no message for so long. `name` is its name in the group's description; by default it consists of the
        host and the process.
        """
        return Worker(
            self._loop,
            self._async.worker(
                topic, group=group, prefetch=prefetch, lease_seconds=lease_seconds, idle_seconds=idle_seconds, name=name
            ),
        )

    def consumer(
        self,
        topic: str,
        *,
        group: str,
        member_id: str | None = None,
        prefetch: int = DEFAULT_PREFETCH,
        commit_seconds: float | None = DEFAULT_COMMIT_SECONDS,
        idle_seconds: float | None = None,
    ) -> Consumer:
        """Return a member of a stream group: iterate over it for the messages of the segments that it is given.

        See `Consumer`. All members of a group divide the topic's segments. Done messages are committed every
        `commit_seconds`; with None, only by `commit`. A member that starts again under its `member_id` has its segments
        at once, and ends an earlier process. At most `prefetch` messages of each segment are read ahead. With
        `idle_seconds` iteration ends once there was no message for so long.
        """
        return Consumer(
            self._loop,
            self._async.consumer(
                topic,
                group=group,
                member_id=member_id,
                prefetch=prefetch,
                commit_seconds=commit_seconds,
                idle_seconds=idle_seconds,
            ),
        )
