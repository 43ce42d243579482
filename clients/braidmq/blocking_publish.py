"""Single publishes of the blocking client: most go straight from the caller's thread to the broker.

A call through the client's loop changes threads twice, and goes through an HTTP library that can do everything. That
takes longer than the broker. So a small message is first sent once on a kept connection, with a producer and a sequence
of its own. If that has no plain answer within `TRY_SECONDS`, the same message is sent through the loop, with the same
producer and sequence. So whatever happened to the first try, and wherever this process stops, it is stored once. A
forked process shares connections and sequences with its parent, and uses neither: its client counts as closed
(`LoopThread`).
"""

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import cast
from urllib.parse import quote

import orjson

from braidmq.async_client import AsyncClient
from braidmq.blocking import LoopThread
from braidmq.names import topic_path
from braidmq.positions import Position
from braidmq.publish.encoding.outgoing import Headers, Key, OutgoingMessage, Value, is_inline, key_bytes, value_bytes
from braidmq.publish.identity import Identity
from braidmq.transport.plain_connection import NotPlain, PlainConnection, are_plain, plain_endpoint
from braidmq.transport.trace_context import trace_headers
from filer.clock import Clock

TRY_SECONDS = 1.0
SLOW_SECONDS = 5.0
"""After a try that took too long, all publishes go through the loop for so long."""
BY_THE_LOOP_SECONDS = 5.0
"""This often a publish goes through the loop all the same: from the answers there the client learns of brokers."""
MOST_BYTES = 32 * 1024
_MOST_KEY_BYTES = 300
_IDLE_SECONDS = 3.0
"""Servers commonly close idle connections after five seconds."""
_MOST_FREE = 16
_NEVER = float("-inf")
_NO_TIMES = (None, None, None, None)
_OCTETS = "application/octet-stream"
_TEXT = {"braid-value": "text"}
"""Only the broker knows whether a text is a JSON string there."""


class _Kept:
    """A connection, once there is one, and the identity of the callers that publish on it, one at a time."""

    def __init__(self, identity: Identity) -> None:
        self.identity, self.used_seconds = identity, _NEVER
        self._connection: PlainConnection | None = None

    def post(self, host: str, port: int, target: str, headers: dict[str, str], body: bytes) -> bytes:
        if self._connection is None:
            self._connection = PlainConnection(host, port, timeout_seconds=TRY_SECONDS)
        return self._connection.post(target, headers, body)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SinglePublishes:
    """Publishes single messages. Any thread may call it.

    Without `direct` all go through the loop. So they do if there is more than one broker, or none that is reached
    without TLS and without a proxy: the client's transport knows about these.
    """

    def __init__(
        self,
        client: AsyncClient,
        loop: LoopThread,
        *,
        headers: Mapping[str, str] | None,
        clock: Clock,
        upload_threshold_bytes: int,
        direct: bool,
    ) -> None:
        self._most_bytes = min(MOST_BYTES, upload_threshold_bytes)
        self._client, self._loop, self._clock = client, loop, clock
        self._headers = {**(headers or {}), "content-type": _OCTETS}
        is_plain = direct and len(client.urls) == 1 and are_plain([*(headers or {})])
        self._endpoint = plain_endpoint(client.url) if is_plain else None
        self._free: list[_Kept] = []
        self._by_the_loop_seconds = self._direct_from_seconds = _NEVER

    def publish(
        self,
        topic: str,
        value: Value,
        *,
        key: Key,
        headers: Headers | None,
        event_time: datetime | None,
        deliver_at: datetime | None,
        delay: timedelta | None,
        expires_at: datetime | None,
    ) -> Position:
        """As `AsyncClient.publish`."""
        endpoint = self._endpoint
        times = (event_time, deliver_at, delay, expires_at)
        if endpoint is None or headers or times != _NO_TIMES or not self._may_be_direct(value):
            return self._by_the_loop(topic, OutgoingMessage(value, key, headers or {}, *times))
        data, key_data = cast("bytes", value_bytes(value)[0]), key_bytes(key)
        if len(key_data or b"") > _MOST_KEY_BYTES:
            return self._by_the_loop(topic, OutgoingMessage(value, key))
        path = f"{topic_path(topic)}/messages"
        kept = self._take()
        sequence = kept.identity.next_sequence()
        target = f"{path}?producer={kept.identity.producer_id}&sequence={sequence}"
        if key_data is not None:
            target += f"&key_base64={quote(b64encode(key_data), safe='')}"
        began_seconds = self._clock.monotonic_seconds()
        try:
            sent = {**trace_headers(), **self._headers, **self._client._transport.token.headers()}
            if isinstance(value, str):
                sent |= _TEXT
            position = _position(kept.post(*endpoint, target, sent, data))
        except NotPlain:
            kept.close()
            if self._clock.monotonic_seconds() - began_seconds >= TRY_SECONDS:
                # A slow broker would get each message twice: the next ones go through the loop.
                self._direct_from_seconds = self._clock.monotonic_seconds() + SLOW_SECONDS
            message = OutgoingMessage(value, key)
            return self._loop.call(self._client._publish_again, topic, message, kept.identity.producer_id, sequence)
        except BaseException:
            kept.close()
            raise
        self._give_back(kept)
        return position

    def close(self) -> None:
        """Close all connections that are not in use. Those in use are closed when their publishes have ended."""
        self._endpoint = None
        while self._free:
            self._free.pop().close()

    def _may_be_direct(self, value: Value) -> bool:
        return (
            value is not None
            and is_inline(value, self._most_bytes)
            and self._loop.is_open
            and len(self._client.urls) == 1
            and self._direct_from_seconds
            <= self._clock.monotonic_seconds()
            < self._by_the_loop_seconds + BY_THE_LOOP_SECONDS
        )

    def _by_the_loop(self, topic: str, message: OutgoingMessage) -> Position:
        position = self._loop.call(self._client._publish, topic, message)
        self._by_the_loop_seconds = self._clock.monotonic_seconds()
        return position

    def _take(self) -> _Kept:
        """Take a connection for this caller alone, until it is returned: one thread at a time changes the lists."""
        try:
            kept = self._free.pop()
        except IndexError:
            return _Kept(Identity(self._clock.ulid()))
        if self._clock.monotonic_seconds() - kept.used_seconds > _IDLE_SECONDS:
            kept.close()
        return kept

    def _give_back(self, kept: _Kept) -> None:
        kept.used_seconds = self._clock.monotonic_seconds()
        if self._endpoint is not None and len(self._free) < _MOST_FREE:
            self._free.append(kept)
        else:
            kept.close()


def _position(answer: bytes) -> Position:
    """Raises `NotPlain`."""
    try:
        [found] = orjson.loads(answer)["positions"]
        return Position(int(found["segment"]), int(found["offset"]))
    except (ValueError, KeyError, TypeError) as error:
        raise NotPlain("the answer has no position") from error
