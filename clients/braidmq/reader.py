"""Reading a topic page by page, from a position that moves on.

Where much lies ahead it is read from its files on the store (`stored_pages`). All else are pages of a broker, Arrow by
`GET …/messages`, with `wait` at the end of the topic, and not the NDJSON stream of
`…/subscribe`: values arrive byte for byte (JSON would normalise them and double the binary ones), a page is
decoded without an object per message, a slow reader holds nothing at the broker, and every page is a read
that can be repeated from its marker, which makes resuming the same as going on.
"""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import datetime

import httpx
import pyarrow as pa

from braidmq.admin import Admin
from braidmq.errors import InvalidArgument, NotABroker
from braidmq.message import MessagePage
from braidmq.names import topic_path
from braidmq.retry import NEVER_GIVE_UP
from braidmq.stored_pages import stored_pages
from braidmq.times import rfc3339
from braidmq.transport import ARROW, Call, Transport

PAGE_ROWS = 10_000
PAGE_BYTES = 8 * 1024 * 1024
WAIT_SECONDS = 25
# Files were no use just now: so many full pages later they may be.
_PAGES_BETWEEN_LOOKS = 8


class Reader:
    """Pages of one topic in order, with the marker to go on from.

    With `follow` it waits at the end of the topic for more and outlives a broker that goes away for a time;
    without, it is done there. With `each_marker` the marker of each message within a page can be told. With `admin`
    it reads from the store what is there, as far as that can be reached: where much lies ahead, pages of a broker are
    only the first one and the end.
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
        self._pages_to_look = 1
        self._path = f"{topic_path(topic)}/messages"
        self._topic = topic
        self._transport = transport
        self._start = start_of(from_, marker)
        self.marker = marker
        self.schema: pa.Schema | None = None
        self._remaining = _checked_limit(limit)
        self._follow = follow
        self._each_marker = each_marker
        self._retry = replace(transport.retry, give_up_after_seconds=NEVER_GIVE_UP) if follow else transport.retry

    async def next_page(self) -> MessagePage | None:
        """The next page with messages; None at the end of the topic or of the limit."""
        if (page := await self._next_stored()) is not None:
            return page
        page = await self._next_of_broker()
        if page is not None and self._admin is not None and _is_full(page):
            self._look_for_files(self._admin, page)
        return page

    async def _next_stored(self) -> MessagePage | None:
        """The next page from files; None where none are being read, or no more."""
        if self._stored is None:
            return None
        page = await anext(self._stored, None)
        if page is None:
            self._stored = None
        else:
            self._pages_to_look = 1
            self.marker = page.end
        return page

    def _look_for_files(self, admin: Admin, page: MessagePage) -> None:
        """A full page has more behind it, maybe much."""
        self._pages_to_look -= 1
        if not self._pages_to_look:
            self._pages_to_look = _PAGES_BETWEEN_LOOKS
            self._stored = stored_pages(admin, self._topic, page.end, page.table.schema)

    async def _next_of_broker(self) -> MessagePage | None:
        idle = 0
        while self._remaining is None or self._remaining > 0:
            asked = self.marker
            began = self._transport.clock.monotonic_seconds()
            page = await self._page()
            if len(page):
                return page
            if asked != self.marker:
                continue
            if not self._follow:
                return None
            # A broker that drains answers at once: such answers must not become a busy loop.
            held = self._transport.clock.monotonic_seconds() - began >= 1
            idle = 0 if held else idle + 1
            if idle:
                await self._transport.clock.sleep(self._transport.pause_seconds(idle, self._retry))
        return None

    async def _page(self) -> MessagePage:
        """One answer, maybe without messages."""
        # A position given as time or word becomes a marker by a first page that is not waited for: from then
        # on nothing is missed. One message at most, so that every later page starts from a known marker.
        fixed = self.marker is not None
        rows = PAGE_ROWS if fixed or not self._each_marker else 1
        wait = WAIT_SECONDS if self._follow and fixed else 0
        params: dict[str, str | int] = {
            **({"marker": self.marker} if self.marker is not None else self._start),
            "limit": rows if self._remaining is None else min(rows, self._remaining),
            "max_bytes": PAGE_BYTES,
            "wait": wait,
        }
        call = Call("GET", self._path, params=params, headers={"accept": ARROW}, wait_seconds=wait)
        response = await self._transport.request(call, retry=self._retry)
        table, end = _decoded(response)
        self.schema = table.schema
        page = MessagePage(self._topic, table, start=self.marker, end=end)
        self.marker = end
        if self._remaining is not None:
            self._remaining -= len(page)
        return page


async def is_more_behind(transport: Transport, topic: str, marker: str, *, wait_seconds: float) -> bool:
    """Whether there is a message behind a marker, waiting so long for one."""
    params: dict[str, str | int | float] = {"marker": marker, "limit": 1, "max_bytes": 1, "wait": wait_seconds}
    target = f"{topic_path(topic)}/messages"
    call = Call("GET", target, params=params, headers={"accept": ARROW}, wait_seconds=wait_seconds)
    return bool(_decoded(await transport.request(call))[0].num_rows)


def _decoded(response: httpx.Response) -> tuple[pa.Table, str]:
    """The table and the marker after it."""
    marker = response.headers.get("braid-marker")
    if marker is None:
        raise NotABroker(f"{response.request.url} answered without a marker: is a BraidMQ broker listening there?")
    return arrow_of(response), marker


def _is_full(page: MessagePage) -> bool:
    return len(page) >= PAGE_ROWS or page.table.nbytes >= PAGE_BYTES // 2


def arrow_of(response: httpx.Response) -> pa.Table:
    """The messages in an answer; raises `NotABroker` where there are none to be read."""
    try:
        with pa.ipc.open_stream(response.content) as stream:
            return stream.read_all()
    except (pa.ArrowInvalid, OSError) as failure:
        raise NotABroker(f"{response.request.url} answered with broken Arrow data: {failure}") from failure


def start_of(from_: str | datetime | None, marker: str | None) -> dict[str, str]:
    """The query parameters of a start that is no marker."""
    if marker is not None and from_ is not None:
        raise InvalidArgument("give either marker or from_, not both")
    if from_ is None:
        return {}
    return {"from": rfc3339(from_) if isinstance(from_, datetime) else from_}


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and limit < 0:
        raise InvalidArgument(f"limit is {limit}: it must be 0 or more, or None for no limit")
    return limit
