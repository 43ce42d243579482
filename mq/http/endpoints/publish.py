"""`POST /v1/topics/{topic}/messages`: the hot path, a bare ASGI endpoint without a framework."""

import asyncio
import base64
import contextlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast
from urllib.parse import parse_qsl

import pyarrow as pa
from starlette.types import Receive, Scope

from filer import tracing
from filer.clock import Clock
from filer.errors import InvalidInput, OutcomeUnknown
from filer.format.requests import Position, RequestId
from filer.format.schema import REF, MessageSchema
from filer.json_texts import LARGE_BYTES
from filer.nearest import unknown_name
from filer.segment.next_file import Single, columns_of
from filer.topic.topic_config import TopicConfig
from filer.tracing import Span
from mq.base.errors import (
    Draining,
    InvalidReference,
    Malformed,
    PublishIncomplete,
    Repeatable,
    UnsupportedMedia,
)
from mq.bodies.arriving_body import arriving_body
from mq.bodies.delivery_times import DELIVERY_FIELDS, delivery_headers, delivery_parameters
from mq.bodies.intake import ClientGone, Intake, as_bytes
from mq.bodies.json_body import decode_base64, decode_json_value
from mq.bodies.rows import Rows, check_headers, json_string
from mq.broker import Broker
from mq.forms.formats import JSON, PUBLISH_FORMATS, Format
from mq.http import producer_sequence
from mq.http.principals import PRINCIPAL
from mq.http.problems import SLUGS, problem_of
from mq.http.reply import Reply
from mq.http.web_pages import Headers
from mq.limits.steps import Steps, at_once, begun_at_once, in_turns
from mq.topic.topic_publisher import SinglePublish, TopicPublisher
from mq.topic.topic_view import TopicView

_ANY_PARAMETERS = ("acks", *producer_sequence.PARAMETERS)
_RAW_PARAMETERS = (*_ANY_PARAMETERS, "key", "key_base64", *DELIVERY_FIELDS)
HEADER_PREFIX = b"braid-header-"
VALUE_HEADER = b"braid-value"
_FORMS = (b"application/x-www-form-urlencoded", b"multipart/form-data")
_PLAIN_KEY = re.compile(rb"key=([A-Za-z0-9._~-]*)\Z")
"""A query that decodes to itself."""
_ENVELOPE = re.compile(rb'\s{0,64}\{\s{0,64}"messages"\s{0,64}:')


class PublishRequest:
    """The headers and the query of a publish, parsed."""

    __slots__ = ("content_type", "declared_bytes", "encoding", "headers", "id", "is_text", "parameters")

    def __init__(self, headers: Headers, query: bytes) -> None:
        self.content_type = b""
        self.declared_bytes: int | None = None
        self.encoding = ""
        self.is_text = False
        self.headers: list[tuple[str, bytes]] = []
        for name, value in headers:
            if name == b"content-type":
                self.content_type = value.partition(b";")[0].strip().lower()
            elif name == b"content-length":
                self.declared_bytes = int(value)
            elif name == b"content-encoding":
                self.encoding = value.decode("latin-1").strip().lower()
            elif name == VALUE_HEADER:
                if value != b"text":
                    raise InvalidInput("Braid-Value must be 'text', or not be given")
                self.is_text = True
            elif name.startswith(HEADER_PREFIX):
                self.headers.append((name[len(HEADER_PREFIX) :].decode("latin-1"), value))
        if self.headers:
            check_headers(self.headers, "the request")
        self.parameters = _parameters(query) if query else {}
        self.id = producer_sequence.producer_sequence(self.parameters) if query else None

    def with_query(self, query: bytes) -> "PublishRequest":
        """A request with the same headers, and that query. Raises as the constructor."""
        other = PublishRequest.__new__(PublishRequest)
        other.content_type, other.declared_bytes = self.content_type, self.declared_bytes
        other.encoding, other.headers, other.is_text = self.encoding, self.headers, self.is_text
        other.parameters = _parameters(query)
        other.id = producer_sequence.producer_sequence(other.parameters)
        return other


def _parameters(query: bytes) -> dict[str, str]:
    if (key := _PLAIN_KEY.match(query)) is not None:
        return {"key": key[1].decode()}
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict")
    except (UnicodeDecodeError, ValueError) as error:
        raise Malformed(f"the query is not valid: {error}") from error
    parameters = dict(pairs)
    for name in parameters:
        if name not in _RAW_PARAMETERS:
            raise InvalidInput(unknown_name("parameter", name, _RAW_PARAMETERS))
    if len(parameters) < len(pairs):
        raise InvalidInput("a query parameter is given more than once")
    return parameters


class Publisher:
    """Serves the publishes of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._refused = broker.metrics.requests.refused
        for slug in SLUGS:
            self._refused.labels(slug)
        self._now_seconds = broker.clock.monotonic_seconds
        durations = broker.metrics.requests.publish
        self._stored, self._replicated = durations["stored"], durations["replicated"]

    async def __call__(self, scope: Scope, receive: Receive, topic: str) -> Reply:
        """Store the messages of one request. Raises errors that `problem_of` can answer."""
        try:
            return await self._publish(scope, receive, topic)
        except ClientGone:
            raise
        except Exception as error:
            self.count_refused(error)
            raise

    def count_refused(self, error: Exception) -> None:
        """Count a publish that is answered with that error's problem."""
        self._refused.labels(problem_of(error).slug).inc()

    async def _publish(self, scope: Scope, receive: Receive, topic: str) -> Reply:
        broker = self._broker
        view = await self.topic(topic)
        request = PublishRequest(scope["headers"], scope["query_string"])
        request.id = producer_sequence.of_owner(request.id, scope[PRINCIPAL].owner)
        config = view.state.config
        replicated = wants_replicated(request.parameters.get("acks"), config)
        limit_bytes = broker.settings.max_body_bytes
        refuse_forms(request.content_type, topic)
        body_format = PUBLISH_FORMATS.get(request.content_type)
        if body_format is not None and body_format.is_json:
            limit_bytes = min(limit_bytes, broker.settings.max_json_bytes)
        with intake_of(broker, topic, limit_bytes, wait=config.overflow == "block") as intake:
            arrived = await intake.read_in_place(receive, request.declared_bytes, arriving_body(scope))
            arrived_seconds = self._now_seconds()
            if request.encoding:
                arrived = await intake.inflate(arrived, request.encoding)
            # Arrow reads a body in place. All other formats need bytes.
            is_arrow = body_format is not None and not body_format.is_json
            body = cast("bytes", arrived) if is_arrow else await as_bytes(arrived, broker.turns.bodies)
            try:
                if body_format is not None:
                    positions = await self._publish_rows(view, request, body_format, body, intake, replicated)
                else:
                    if not request.content_type:
                        refuse_envelope(request, body)
                    single = await self._single(request, body, view.runtime.schema)
                    positions = await _publish_single(view, single, len(body), request.id, replicated)
            except (OutcomeUnknown, PublishIncomplete) as error:
                if request.id is None:
                    raise
                raise Repeatable(error) from error
        return self.acknowledge(positions, len(body), arrived_seconds, replicated=replicated)

    def acknowledge(
        self, positions: Sequence[Position], size_bytes: int, arrived_seconds: float, *, replicated: bool
    ) -> Reply:
        """The answer to a publish with messages at these positions, and with a body that had arrived at that time."""
        self.note(positions, size_bytes, arrived_seconds, replicated=replicated)
        return Reply(positions_body(positions))

    def acknowledge_stored(self, position: Position, began_seconds: float) -> Reply:
        """As `acknowledge`, for one stored message that is not traced."""
        self._stored.observe(self._now_seconds() - began_seconds)
        return Reply(single_position_body(position.segment, position.offset))

    def note(self, positions: Sequence[Position], size_bytes: int, arrived_seconds: float, *, replicated: bool) -> None:
        """Count a publish whose messages are acknowledged."""
        took = self._replicated if replicated else self._stored
        took.observe(self._now_seconds() - arrived_seconds)
        if (span := tracing.current()).is_recording:
            _note(span, positions, size_bytes)

    async def topic(self, topic: str) -> TopicView:
        """The topic to publish to. Raises errors that `problem_of` can answer."""
        broker = self._broker
        if broker.draining.is_set():
            raise Draining("this broker is shutting down: publish through another, or wait until it is back")
        found = broker.topics.get(topic)
        if found is not None and not found.state.deleted:
            view = TopicView(found)
        else:
            async with broker.deadlines.within(broker.deadlines.group()):
                view = await broker.topics.view(topic)
        view.check_is_published_to()
        return view

    async def finish_single(self, publisher: TopicPublisher, begun: SinglePublish) -> Reply:
        """The answer to a single message that this publisher has begun. Raises as a call does."""
        try:
            position = await publisher.finish_single(begun)
        except Exception as error:
            self.count_refused(error)
            if begun.request is None or not isinstance(error, OutcomeUnknown | PublishIncomplete):
                raise
            raise Repeatable(error) from error
        return self.acknowledge((position,), begun.size_bytes, begun.began_seconds, replicated=begun.replicated)

    async def _single(self, request: PublishRequest, body: bytes, schema: MessageSchema) -> Single:
        """The one value of a body. A large one is checked in a thread: it would hold up the event loop."""
        if schema.takes_all_values or len(body) <= LARGE_BYTES:
            return single_of(request, body, schema, self._broker.clock)
        work = partial(single_of, request, body, schema, self._broker.clock)
        return await asyncio.get_running_loop().run_in_executor(self._broker.decode_pool, work)

    async def _publish_rows(
        self,
        view: TopicView,
        request: PublishRequest,
        body_format: Format,
        body: bytes,
        intake: Intake,
        replicated: bool,
    ) -> Sequence[Position]:
        decoding = _decoding(request, body_format, body, view.runtime.schema, self._broker.clock.now_us())
        rows = await self.decoded(decoding(), len(body), body_format)
        return await self.store_rows(view, rows, intake, request.id, replicated=replicated)

    async def decoded(self, decode: Steps[Rows], size_bytes: int, body_format: Format) -> Rows:
        """The rows of a body of that size and format, decoded without holding up other work."""
        broker, turns = self._broker, self._broker.turns.bodies
        if not body_format.is_json:
            pool = None if size_bytes <= body_format.inline_decode_bytes else broker.decode_pool
            return await begun_at_once(decode, turns, pool)
        if size_bytes <= body_format.inline_decode_bytes:
            return at_once(decode)
        async with contextlib.nullcontext() if size_bytes <= LARGE_BYTES else broker.arrivals.decoding:
            return await in_turns(decode, turns)

    async def store_rows(
        self, view: TopicView, rows: Rows, intake: Intake, request: RequestId | None, *, replicated: bool
    ) -> Sequence[Position]:
        """Store the rows of a request whose body the intake holds. Raises errors that `problem_of` can answer."""
        batch = await self._pin(view, rows) if rows.claims else rows.batch
        if not batch.num_rows:
            return ()
        beside_bytes = view.beside_bytes(batch.num_rows) + rows.grown_bytes
        size_bytes = await intake.hold_rows(batch.num_rows, beside_bytes=beside_bytes)
        return await view.runtime.publisher.publish_rows(
            view.rows_of(batch), size_bytes, view.request_of(request), replicated=replicated
        )

    async def _pin(self, view: TopicView, rows: Rows) -> pa.RecordBatch:
        """The rows with their references, each verified against the store and pinned to the object found there."""
        refs: list[dict[str, str | int | None] | None] = [None] * rows.batch.num_rows
        for row, claim in rows.claims:
            try:
                found = await self._broker.uploads.verify(view.runtime.topic, claim, member=view.member)
                refs[row] = found.to_row()
            except InvalidInput as error:
                raise InvalidReference(f"row {row} of the request: {error}", error.remedy) from error
        arrays = [*rows.batch.columns[:-1], pa.array(refs, REF)]
        return pa.RecordBatch.from_arrays(arrays, schema=rows.batch.schema)


async def _publish_single(
    view: TopicView, single: Single, size_bytes: int, request: RequestId | None, replicated: bool
) -> Sequence[Position]:
    """Store one value."""
    publisher = view.runtime.publisher
    if view.member is None:
        return (await publisher.publish_single(single, size_bytes, request, replicated=replicated),)
    row = columns_of([single], view.runtime.schema.published)
    return await publisher.publish_rows(view.rows_of(row), size_bytes, view.request_of(request), replicated=replicated)


def intake_of(broker: Broker, topic: str, limit_bytes: int, *, wait: bool) -> Intake:
    """The intake that holds the room of one publish to a topic."""
    deadlines = broker.deadlines
    return Intake(
        broker.front_store,
        limit_bytes,
        topic,
        wait=wait,
        patience_seconds=deadlines.timeout_seconds,
        too_late=deadlines.nothing_stored,
        arrivals=broker.arrivals,
    )


def wants_replicated(acks: str | None, config: TopicConfig) -> bool:
    """Whether to answer the request as soon as all replicas hold it. Raises `InvalidInput`."""
    wanted = acks or config.acks
    if wanted not in ("stored", "replicated"):
        raise InvalidInput(f"acks must be 'stored' or 'replicated', not {wanted!r:.80}")
    if wanted == "replicated" and config.replicas < 2:
        raise InvalidInput("acks=replicated needs a topic with at least 2 replicas; this one has 1")
    return wanted == "replicated"


def refuse_forms(content_type: bytes, topic: str) -> None:
    """Raise `UnsupportedMedia` for a form. curl declares a body as a form by default, and no client means that."""
    if content_type in _FORMS:
        raise UnsupportedMedia(
            f"the body is declared as a form ({content_type.decode('ascii')}), which curl does by itself. For several "
            f"messages as JSON send 'content-type: application/json' (curl /v1/topics/{topic}/messages --json "
            """'{"messages": [...]}', or with ?key=… in the address the value alone); for one value of another kind """
            "send its own type, such as text/plain"
        )


def refuse_envelope(request: PublishRequest, body: bytes) -> None:
    """Raise `UnsupportedMedia` if a body without a type is a document of messages: no client means that as a value.

    With a key in the query, it is one value.
    """
    if _ENVELOPE.match(body) and request.parameters.keys().isdisjoint(("key", "key_base64")):
        raise UnsupportedMedia(
            "the body has no content type and looks like several messages as JSON: send 'content-type: "
            "application/json' for them; to store it as one value send its type, such as application/octet-stream"
        )


def _decoding(
    request: PublishRequest, body_format: Format, body: bytes, schema: MessageSchema, received_us: int
) -> Callable[[], Steps[Rows]]:
    """A decoder for a body of several messages, or of one in JSON whose key is in the query."""
    if request.is_text:
        raise InvalidInput("Braid-Value is only for a body that is a single value, and not declared as JSON")
    keys = {name: value for name, value in request.parameters.items() if name not in _ANY_PARAMETERS}
    if keys and body_format.media_type == JSON:
        headers = {name: {"base64": base64.b64encode(value).decode()} for name, value in request.headers}
        fields = {**delivery_parameters(keys), "headers": headers}
        return partial(decode_json_value, body, schema, fields, received_us)
    for name in keys:
        raise InvalidInput(
            f"parameter {name!r} is only for a body that is a single value; here, each message has its own key"
        )
    if request.headers:
        raise InvalidInput(
            "Braid-Header-… is only for a body that is a single value; here, each message has its own headers"
        )
    assert body_format.decode is not None
    return partial(body_format.decode, body, schema, received_us)


def single_of(request: PublishRequest, body: bytes, schema: MessageSchema, clock: Clock) -> Single:
    """The one value of a body, with its key and its headers. Raises `InvalidInput`."""
    key: bytes | None = None
    headers = request.headers
    if request.parameters:
        if not request.parameters.keys().isdisjoint(DELIVERY_FIELDS):
            fields = delivery_parameters(request.parameters)
            headers = [*headers, *delivery_headers(fields, headers, clock.now_us(), "the query")]
        if "key_base64" in request.parameters:
            if "key" in request.parameters:
                raise InvalidInput("give key or key_base64, not both")
            key = decode_base64(request.parameters["key_base64"], "key_base64")
        elif "key" in request.parameters:
            key = request.parameters["key"].encode()
    if request.is_text and schema.is_json:
        body = json_string(body, "the body", most_bytes=2 * len(body) + 2)
    schema.check(key, body, "the body")
    return Single(key, body, tuple(headers) or None, None)


def _note(span: Span, positions: Sequence[Position], size_bytes: int) -> None:
    messages = sum(position.count for position in positions)
    span.note(messages=messages, size_bytes=size_bytes)
    if messages == 1:
        span.note(message_id=f"{positions[0].segment}-{positions[0].offset}")


def positions_body(positions: Sequence[Position]) -> bytes:
    """The body of the answer to a publish."""
    parts = [b'{"segment":%d,"offset":%d,"count":%d}' % (p.segment, p.offset, p.count) for p in positions]
    return b'{"positions":[%b]}' % b",".join(parts)


def single_position_body(segment: int, offset: int) -> bytes:
    """As `positions_body`, for one message."""
    return b'{"positions":[{"segment":%d,"offset":%d,"count":1}]}' % (segment, offset)
