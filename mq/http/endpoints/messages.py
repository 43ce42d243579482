"""Reading messages: the whole topic by marker, one segment by offset, one message by id."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response

from filer import tracing
from filer.backoff import backoff_seconds
from filer.errors import CorruptFile, DataMissing, InvalidInput, ObjectNotFound
from filer.topic.positions import PositionExpired, Positions, to_marker
from filer.uploads import Reference
from filer.verification.payload_check import PayloadCheck, check_size
from mq.base.errors import NotFound, OwnerSilent
from mq.broker import Broker
from mq.forms.formats import JSON, PAGE_FORMATS, Format
from mq.forms.render import json_message, values_of
from mq.forms.rendering import rendered
from mq.http.answers import MIB, Limit, MaxBytes, Wait, messages_response, negotiate, page_bounds
from mq.http.metered import waiting
from mq.http.principals import presigned_seconds, principal_of
from mq.http.reply import PacedStream, PageResponse
from mq.http.routers import new_router
from mq.http.routes import BROWSE, GET_MESSAGE, GET_PAYLOAD, READ_SEGMENT
from mq.limits.read_budget import ReadLease
from mq.service.start import check_offset, check_positions, start_positions
from mq.topic.run import Run
from mq.topic.topic_reader import TopicReader
from mq.topic.topic_view import TopicView

PRESIGNED_SECONDS = 900
SILENT_SECONDS = 5.0
LONGEST_LOOK_SECONDS = 5.0
# The pause doubles each time. A takeover of the silent owner's segment ends the wait by itself.
ASK_AGAIN_FIRST_SECONDS, ASK_AGAIN_LONGEST_SECONDS = 0.2, 1.0
_MESSAGE_ID = re.compile(r"([0-9]{1,18})-([0-9]{1,18})\Z")


@dataclass(frozen=True, slots=True)
class Page:
    """The format and the bounds of an answer, and how long to wait for a first message."""

    format: Format
    rows: int
    size_bytes: int
    wait_seconds: float


async def _page_asked(request: Request, limit: Limit = 100, max_bytes: MaxBytes = 8 * MIB, wait: Wait = 0) -> Page:
    # Not a plain function: the framework would call it in a thread.
    chosen = negotiate(request, PAGE_FORMATS)
    rows, size_bytes = page_bounds(chosen, limit, max_bytes)
    return Page(chosen, rows, size_bytes, wait)


class _Patience:
    """How long a reader waits: for a first message as long as it asked, for a silent owner at least `SILENT_SECONDS`.

    Meanwhile the silent owner's segment is taken over. No reader waits while the broker drains.
    """

    def __init__(self, broker: Broker, wait_seconds: float) -> None:
        self._broker = broker
        self._began_seconds = broker.clock.monotonic_seconds()
        self._wait_seconds = wait_seconds
        self._asked = 0

    @property
    def is_over(self) -> bool:
        """Whether to answer now, with or without messages."""
        return self._left_seconds(self._wait_seconds) <= 0

    async def wait(self, news: "asyncio.Future[None]") -> None:
        """Wait until there is news, or the time is over."""
        await asyncio.wait([news], timeout=self._left_seconds(self._wait_seconds))

    async def wait_for_owner(self, news: "asyncio.Future[None]", silent: OwnerSilent) -> None:
        """Wait until there is news, or it is time to try again. Raises `silent` when the time is over."""
        left_seconds = self._left_seconds(max(self._wait_seconds, SILENT_SECONDS))
        if left_seconds <= 0:
            raise silent
        self._asked += 1
        pause_seconds = backoff_seconds(
            self._asked, first_seconds=ASK_AGAIN_FIRST_SECONDS, longest_seconds=ASK_AGAIN_LONGEST_SECONDS
        )
        await asyncio.wait([news], timeout=min(left_seconds, pause_seconds))

    def _left_seconds(self, longest_seconds: float) -> float:
        if self._broker.draining.is_set():
            return 0.0
        return max(self._began_seconds + longest_seconds - self._broker.clock.monotonic_seconds(), 0.0)


_PageAsked = Annotated[Page, Depends(_page_asked)]


def messages_router(broker: Broker) -> APIRouter:
    """The endpoints that return messages."""
    router = new_router("messages")

    @router.serves(BROWSE)
    async def browse(
        request: Request,
        topic: str,
        page: _PageAsked,
        marker: str | None = None,
        from_: Annotated[str | None, Query(alias="from", description="earliest, latest or an RFC 3339 time.")] = None,
    ) -> Response:
        """Read a whole topic page by page; the marker of an answer is where the next page begins."""
        with _lease(broker, page) as lease:
            async with waiting(request.scope, page.wait_seconds, broker.clock), broker.reads.cut_off():
                runtime = await broker.topics.view(topic)
                with tracing.current().child("plan"):
                    reader = await broker.reader(topic)
                    positions = await start_positions(topic, reader, marker, from_, default="earliest")
                reader = await broker.reader(topic, room=lease)
                runs, reached = await _browse(broker, runtime, reader, positions, page, lease)
            following = to_marker(topic, reached)
            about, headers = {"marker": following}, {"Braid-Marker": following}
            return await messages_response(page.format, runtime, runs, about, headers, lease)

    @router.serves(READ_SEGMENT)
    async def read_segment(
        request: Request,
        topic: str,
        segment: int,
        page: _PageAsked,
        offset: Annotated[int, Query(ge=0, le=2**62)] = 0,
    ) -> Response:
        """Read one segment from an offset on."""
        with _lease(broker, page) as lease:
            async with waiting(request.scope, page.wait_seconds, broker.clock), broker.reads.cut_off():
                runtime = await broker.topics.view(topic)
                run, end_offset = await _read_segment(broker, runtime, segment, offset, page, lease)
            about = {"next_offset": run.end, "end_offset": end_offset, "sealed": end_offset is not None}
            headers = {"Braid-Next-Offset": str(run.end)}
            if end_offset is not None:
                headers["Braid-End-Offset"] = str(end_offset)
            return await messages_response(page.format, runtime, [run], about, headers, lease)

    @router.serves(GET_MESSAGE)
    async def read_message(topic: str, message_id: str) -> Response:
        """Read one message by its id, `<segment>-<offset>`."""
        with broker.read_budget.lease() as lease:
            runtime = await broker.topics.view(topic)
            run = await _one(broker, runtime, message_id, lease)
            parts = await rendered(json_message(runtime.shown, run), 1, lease)
            runtime.reads.count_read(run.segment, 1, sum(map(len, parts)))
            return PageResponse(parts, {}, JSON, lease)

    @router.serves(GET_PAYLOAD)
    async def read_payload(request: Request, topic: str, message_id: str) -> Response:
        """The bytes a message stands for: its value, or the payload it refers to."""
        with broker.read_budget.lease() as lease:
            runtime = await broker.topics.view(topic)
            run = await _one(broker, runtime, message_id, lease)
            return await _payload_response(request, broker, runtime, run, lease)

    return router


def _lease(broker: Broker, page: Page) -> ReadLease:
    """The room for a page. A reader that waits for news takes turns with subscribers: both are woken by the hundred."""
    lease = broker.read_budget.lease()
    if page.wait_seconds:
        lease.turns = broker.turns.streams
    return lease


async def _browse(
    broker: Broker, runtime: TopicView, reader: TopicReader, positions: Positions, page: Page, lease: ReadLease
) -> tuple[list[Run], Positions]:
    """A page from these positions on, once it has messages or the time is over, and the positions after it.

    A reader of a member of a topic group may find only others' messages. It gets a page without messages after
    `LONGEST_LOOK_SECONDS`, or after the time for which it waits, if that is longer. The positions have moved on then.
    """
    patience, looked = (
        _Patience(broker, page.wait_seconds),
        _Patience(broker, max(page.wait_seconds, LONGEST_LOOK_SECONDS)),
    )
    while True:
        news = runtime.reads.news()
        try:
            runs, reached = await reader.read(positions, max_rows=page.rows, max_bytes=page.size_bytes)
            if runs or (patience.is_over and not reader.may_go_on) or looked.is_over:
                return runs, reached
            lease.release()
            if reader.may_go_on:
                # Only other members' messages so far. From the new positions on, they are not read again.
                positions = reached
                await lease.turns.wait()
                continue
            runtime.reads.follow(reached)
            with tracing.current().child("wait"):
                await patience.wait(news)
                await lease.turns.wait()
        except OwnerSilent as silent:
            lease.release()
            with tracing.current().child("wait") as span:
                span.event("owner silent", silent)
                await patience.wait_for_owner(news, silent)
        await _still_there(broker, reader, runtime.topic, positions)


async def _read_segment(
    broker: Broker, runtime: TopicView, segment: int, offset: int, page: Page, lease: ReadLease
) -> tuple[Run, int | None]:
    """As `_browse`, for one segment, with the end of the segment; None while it is open."""
    reader = await broker.reader(runtime.topic, room=lease)
    patience = _Patience(broker, page.wait_seconds)
    while True:
        news = runtime.reads.news()
        await check_offset(runtime, segment, offset, reader)
        try:
            run = await reader.read_segment(segment, offset, max_rows=page.rows, max_bytes=page.size_bytes)
            found = runtime.state.segment(segment)
            end_offset = found.end_offset if found else None
            if run.table.num_rows or run.end > offset or end_offset is not None or patience.is_over:
                return run, end_offset
            lease.release()
            runtime.reads.follow({segment: run.end})
            with tracing.current().child("wait"):
                await patience.wait(news)
                await lease.turns.wait()
        except OwnerSilent as silent:
            lease.release()
            with tracing.current().child("wait") as span:
                span.event("owner silent", silent)
                await patience.wait_for_owner(news, silent)
        await broker.topics.view(runtime.topic)


async def _payload_response(
    request: Request, broker: Broker, runtime: TopicView, run: Run, lease: ReadLease
) -> Response:
    """The payload of the one message in `run`: from here, or a redirect to the object store itself."""
    ref = run.table["_ref"][0].as_py()
    if ref is None:
        (value,) = values_of(run.table["value"])
        data = (value.encode() if isinstance(value, str) else value) or b""
        runtime.reads.count_read(run.segment, 1, len(data))
        return PageResponse([data], {}, "application/octet-stream", lease)
    lease.close()
    reference = Reference.from_row(ref)
    key = reference.key(runtime.state.topic)
    offset = run.table["_offset"][0].as_py()
    expires_seconds = presigned_seconds(request, broker.clock, PRESIGNED_SECONDS)
    presigned = await broker.store.presign_get(key, expires_seconds=expires_seconds)
    # An address has the name of the topic group in it. Not every reader of a member may know that.
    if presigned is not None and principal_of(request).sees(runtime.state.topic):
        with _of_message(key, run.segment, offset):
            check_size(reference, (await broker.store.head(key)).size_bytes)
        return RedirectResponse(presigned.url, 307)
    parts = _payload(broker, key, reference, run.segment, offset)
    # An error in the first part gets an answer of its own.
    first = await anext(parts, b"")
    headers = {"content-length": str(reference.size_bytes), "etag": f'"{reference.etag}"'}
    return PacedStream(_in_order(first, parts), headers, "application/octet-stream", broker.turns.pages)


@contextmanager
def _of_message(key: str, segment: int, offset: int) -> Iterator[None]:
    """Makes errors about the payload of a message name both."""
    try:
        yield
    except CorruptFile as error:
        raise CorruptFile(f"{key}: {error}", key=key, segment=segment, offset=offset) from error
    except ObjectNotFound as error:
        why = f"{key} is gone from the store: it is the payload of message {segment}-{offset}"
        raise DataMissing(why, key=key, segment=segment, offset=offset) from error


async def _still_there(broker: Broker, reader: TopicReader, topic: str, positions: Positions) -> None:
    """Look again after a wait. Raises `NotFound` if the topic has been deleted, and as `check_positions`."""
    await broker.topics.view(topic)
    await check_positions(topic, reader, positions)


async def _payload(
    broker: Broker, key: str, reference: Reference, segment: int, offset: int
) -> AsyncGenerator[bytes, None]:
    """The bytes of a message's payload, a mebibyte at a time. The last ones come only if all are as uploaded.

    Raises `CorruptFile` or `DataMissing` instead, so that the answer breaks off.
    """
    check, size_bytes = PayloadCheck(reference), reference.size_bytes
    # An empty payload is looked for as well.
    for start in range(0, max(size_bytes, 1), MIB):
        with _of_message(key, segment, offset):
            fetched = await broker.store.get(key, start=start, stop=min(start + MIB, size_bytes))
            check_size(reference, fetched.info.size_bytes)
            await asyncio.get_running_loop().run_in_executor(broker.decode_pool, check.add, fetched.data)
            if start + MIB >= size_bytes:
                check.finish(fetched.info.etag)
        yield fetched.data


async def _in_order(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for part in rest:
            yield part


async def _one(broker: Broker, runtime: TopicView, message_id: str, lease: ReadLease) -> Run:
    match = _MESSAGE_ID.match(message_id)
    if match is None:
        raise InvalidInput(f"{message_id!r:.80} is not a message id: it is <segment>-<offset>, such as 0-42")
    segment, offset = int(match[1]), int(match[2])
    reader = await broker.reader(runtime.topic, room=lease)
    try:
        if runtime.state.segment(segment) is not None:
            await check_offset(runtime, segment, offset, reader)
            run = await reader.read_segment(segment, offset, max_rows=1, max_bytes=1)
            if run.table.num_rows and run.table["_offset"][0].as_py() == offset:
                return run
    except (PositionExpired, InvalidInput) as error:
        raise NotFound(
            "message", f"topic {runtime.topic!r} has no message {message_id!r} (any more): {error}"
        ) from error
    raise NotFound("message", f"topic {runtime.topic!r} has no message {message_id!r}")
