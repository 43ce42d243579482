"""Reads a topic page by page.

If many messages lie ahead, they are read from the topic's files on the store (`stored_pages`). Otherwise a broker
sends pages in Arrow (`GET …/messages`, with `wait` at the end of the topic). The NDJSON stream of `…/subscribe` is
not used, for four reasons: values arrive byte for byte (JSON would normalise them and double the binary ones); a page
is decoded without an object per message; a slow reader holds no memory at the broker; and each page is a read that
can be repeated from its marker, so resuming needs nothing else.
"""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import datetime
from urllib.parse import urlencode

import httpx
import pyarrow as pa

from braidmq.cluster.admin import Admin
from braidmq.defaults import PAGE_ROWS
from braidmq.errors import InvalidArgument, NotABroker
from braidmq.message import MessagePage
from braidmq.names import topic_path
from braidmq.read.start import start_parameters
from braidmq.transport.problems import address_of
from braidmq.transport.retry import NEVER_GIVE_UP
from braidmq.transport.transport import ARROW, Call, Transport

PAGE_BYTES = 8 * 1024 * 1024
WAIT_SECONDS = 25
# After files turned out not to help, try them again after this many full pages.
_PAGES_BETWEEN_FILE_CHECKS = 8


class Reader:
    """Reads the pages of one topic in order; `marker` says where to go on.

    With `follow`, it waits for more messages at the end of the topic, also while brokers are away for a time. Without,
    it ends there. With `each_marker`, every message of a page has a marker. With `admin`, it reads files from the
    store if this machine reaches them: if many messages lie ahead, only the first page and the end come from a broker.
    """

    def __init__(
        self,
        transport: Transport,
        topic: str,
        *,
        from_: str | datetime | None,
        marker: str | None,
        limit: int | None = None,
        follow: bool = False,
        each_marker: bool = True,
        admin: Admin | None = None,
    ) -> None:
        self._admin = admin if limit is None else None
        self._stored: AsyncGenerator[MessagePage] | None = None
        self._pages_to_file_check = 1
        self._path = f"{topic_path(topic)}/messages"
        self.topic = topic
        self._transport = transport
        self._start = start_parameters(from_, marker)
        self.marker = marker
        self.schema: pa.Schema | None = None
        self._remaining = _checked_limit(limit)
        self._follow = follow
        self._each_marker = each_marker
        self._retry = transport.retry
        if follow and not transport.retry.for_all_calls:
            self._retry = replace(transport.retry, give_up_after_seconds=NEVER_GIVE_UP)

    async def next_page(self) -> MessagePage | None:
        """Return the next page with messages; None at the end of the topic or at the limit."""
        if (page := await self._next_stored()) is not None:
            return page
        page = await self._next_of_broker()
        if page is not None:
            self._look_ahead(page)
        return page

    def poll(self) -> str | None:
        """The target of a request for the page at the marker, which waits there for a first message.

        None if the next page needs another request. An answer changes the reader only by `go_behind`.
        """
        if not self._follow or self.marker is None or self._stored is not None:
            return None
        return f"{self._path}?{urlencode(self._parameters())}"

    def polled(self, body: bytes | bytearray, end: str) -> MessagePage:
        """The answer to such a request. Raises `NotABroker`."""
        return MessagePage(self.topic, _table(body, "a broker"), start=self.marker, end=end)

    def go_behind(self, page: MessagePage) -> None:
        """Go on behind a polled page; nothing changes if the reader is there."""
        if self.marker != page.end:
            self.marker, self.schema = page.end, page.table.schema
            self._look_ahead(page)

    async def _next_stored(self) -> MessagePage | None:
        """Return the next page from files; None if no files are being read, or no more are left."""
        if self._stored is None:
            return None
        page = await anext(self._stored, None)
        if page is None:
            self._stored = None
        else:
            self._pages_to_file_check = 1
            self.marker = page.end
        return page

    def _look_ahead(self, page: MessagePage) -> None:
        """Read from files next, unless that was tried recently. After a full page, many messages may lie ahead."""
        admin = self._admin
        if admin is None or not _is_full(page):
            return
        self._pages_to_file_check -= 1
        if not self._pages_to_file_check:
            # Imported here: most readers are not so far behind, and start sooner without it.
            from braidmq.read.stored_pages import stored_pages

            self._pages_to_file_check = _PAGES_BETWEEN_FILE_CHECKS
            self._stored = stored_pages(admin, self.topic, page.end, page.table.schema)

    async def _next_of_broker(self) -> MessagePage | None:
        idle_answers = 0
        while self._remaining is None or self._remaining > 0:
            asked_marker = self.marker
            started_seconds = self._transport.clock.monotonic_seconds()
            page = await self._page()
            if len(page):
                return page
            if asked_marker != self.marker:
                continue
            if not self._follow:
                return None
            # A draining broker answers at once: that must not become a busy loop.
            has_waited = self._transport.clock.monotonic_seconds() - started_seconds >= 1
            idle_answers = 0 if has_waited else idle_answers + 1
            if idle_answers:
                await self._transport.clock.sleep(self._transport.pause_seconds(idle_answers, self._retry))
        return None

    async def _page(self) -> MessagePage:
        """Return one answer, which may have no messages."""
        params = self._parameters()
        call = Call("GET", self._path, params=params, headers={"accept": ARROW}, wait_seconds=int(params["wait"]))
        response = await self._transport.request(call, retry=self._retry)
        table, end = _decoded(response)
        self.schema = table.schema
        page = MessagePage(self.topic, table, start=self.marker, end=end)
        self.marker = end
        if self._remaining is not None:
            self._remaining -= len(page)
        return page

    def _parameters(self) -> dict[str, str | int]:
        # A start given as a time, `earliest` or `latest` becomes a marker by a first page, which does not wait. From
        # then on nothing is missed. It has one message at most, so that every later page starts at a known marker.
        has_marker = self.marker is not None
        rows = PAGE_ROWS if has_marker or not self._each_marker else 1
        return {
            **({"marker": self.marker} if self.marker is not None else self._start),
            "limit": rows if self._remaining is None else min(rows, self._remaining),
            "max_bytes": PAGE_BYTES,
            "wait": WAIT_SECONDS if self._follow and has_marker else 0,
        }


async def has_message_after(transport: Transport, topic: str, marker: str, *, wait_seconds: float) -> bool:
    """Wait up to `wait_seconds` for a message after a marker, and return whether there is one."""
    params: dict[str, str | int | float] = {"marker": marker, "limit": 1, "max_bytes": 1, "wait": wait_seconds}
    target = f"{topic_path(topic)}/messages"
    call = Call("GET", target, params=params, headers={"accept": ARROW}, wait_seconds=wait_seconds)
    return bool(_decoded(await transport.request(call))[0].num_rows)


def _decoded(response: httpx.Response) -> tuple[pa.Table, str]:
    """The table of an answer, and the marker after it."""
    marker = response.headers.get("braid-marker")
    if marker is None:
        raise NotABroker(f"{address_of(response)} answered without a marker: is a BraidMQ broker listening there?")
    return arrow_of(response), marker


def _is_full(page: MessagePage) -> bool:
    # Arrow takes longer to compute the size than a page of a few messages takes.
    return len(page) >= PAGE_ROWS or page.table.get_total_buffer_size() >= PAGE_BYTES // 2


def arrow_of(response: httpx.Response) -> pa.Table:
    """Return the messages of an answer. Raises `NotABroker` if they cannot be decoded."""
    return _table(response.content, address_of(response))


def _table(body: bytes | bytearray, broker: str) -> pa.Table:
    try:
        with pa.ipc.open_stream(body) as stream:
            return stream.read_all()
    except (pa.ArrowInvalid, OSError) as failure:
        raise NotABroker(f"{broker} answered with broken Arrow data: {failure}") from failure


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and limit < 0:
        raise InvalidArgument(f"limit is {limit}: it must be 0 or more, or None for no limit")
    return limit
