"""Logs each request when it has been answered, and a stream when it has ended; only with `--access-log on`."""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import lru_cache, partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mq.http.access_lines import log_answered
from mq.http.chunks import chunks_of
from mq.http.reply import WHOLE_BODY

MOST_PARTS = 16
MOST_REMEMBERED, MOST_CHARACTERS = 256, 300
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")
_NUMBER = re.compile(r"[0-9]{1,18}\Z")
_HIDDEN = "*"


class AccessLog:
    """Around the whole app, within the id of the request.

    `words` are the words in paths of the broker, besides names and numbers.
    """

    def __init__(self, app: ASGIApp, words: Collection[str], now_seconds: Callable[[], float]) -> None:
        self._app, self._now_seconds = app, now_seconds
        self._words = frozenset(words)
        self._recently_shown = lru_cache(MOST_REMEMBERED)(partial(shown, words=self._words))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_seconds = self._now_seconds()
        seen = _Seen(receive, send)
        try:
            await self._app(scope, seen.receive, seen.send)
        finally:
            path, topic = self._shown(scope["path"])
            client, chunks = scope.get("client"), chunks_of(scope)
            log_answered(
                scope["method"],
                path,
                topic,
                seen.status,
                is_whole=seen.is_whole,
                received_bytes=seen.received_bytes,
                sent_bytes=seen.sent_bytes + (0 if chunks is None else chunks.sent_bytes),
                duration_seconds=self._now_seconds() - began_seconds,
                client=client[0] if client else None,
            )

    def _shown(self, path: str) -> tuple[str, str | None]:
        # Most requests are for a few paths. Long ones are not kept: a client could make the log keep any number of
        # them.
        return shown(path, self._words) if len(path) > MOST_CHARACTERS else self._recently_shown(path)


class _Seen:
    """Counts the bytes of bodies as they are sent, without heads and chunks."""

    __slots__ = ("_receive", "_send", "is_whole", "received_bytes", "sent_bytes", "status")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self.status: int | None = None
        self.is_whole, self.received_bytes, self.sent_bytes = False, 0, 0

    async def receive(self) -> Message:
        """Receive a part of the request."""
        message = await self._receive()
        if message["type"] == "http.request":
            self.received_bytes += len(message.get("body", b""))
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Pass on a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if (body := message.get(WHOLE_BODY)) is not None:
                self.sent_bytes, self.is_whole = len(body), True
        elif message["type"] == "http.response.body":
            self.sent_bytes += len(message.get("body", b""))
            self.is_whole = not message.get("more_body", False)
        return self._send(message)


def words_of(templates: Iterable[str]) -> frozenset[str]:
    """The fixed parts of paths such as `/v1/topics/{topic}/messages`."""
    return frozenset(part for each in templates for part in each.split("/") if part and "{" not in part)


def shown(path: str, words: Collection[str]) -> tuple[str, str | None]:
    """A path as the log may have it, and the topic in it.

    Ids of uploads are secrets: a client with one may write. So the log shows only words of the broker, numbers and
    names of topics, and `*` for the rest. The query is left out: it has keys of messages.
    """
    topic: str | None = None
    before, parts = "", []
    for part in path.split("/")[1 : MOST_PARTS + 1]:
        if before == "topics" and topic is None and _TOPIC.match(part):
            topic = part
        elif part and part not in words and not _NUMBER.match(part):
            part = _HIDDEN
        parts.append(part)
        before = part
    return "/" + "/".join(parts), topic
