"""One log behind the addresses of several brokers that misbehave as they are told: a load's other side, without I/O."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx
import orjson

from filer.topic.positions import from_marker, to_marker

TOPIC = "t"
SEGMENT = 0
Manner = Literal["well", "down", "refuses", "swallows answers", "refuses for good"]


class ScriptedLog:
    """A topic of one segment. `manners` are by host; a stream breaks off after `stream_messages`."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.manners: dict[str, Manner] = {}
        self.hosts: list[str] = []
        self.stream_messages = 5
        self._windows: dict[tuple[str, str], list[dict[str, int]]] = {}

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.handle)

    async def handle(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        manner = self.manners.get(request.url.host, "well")
        self.hosts.append(request.url.host)
        if manner == "down":
            raise httpx.ConnectError("refused")
        if request.method == "POST":
            return self._publish(request, manner)
        if manner != "well":
            return httpx.Response(503, json={"retryable": True})
        if request.url.path.endswith("/subscribe"):
            return httpx.Response(200, content=self._stream(self._offset(request)))
        return self._page(request)

    def _publish(self, request: httpx.Request, manner: Manner) -> httpx.Response:
        if manner == "refuses":
            return httpx.Response(503, json={"retryable": True})
        if manner == "refuses for good":
            return httpx.Response(422, json={"retryable": False})
        params = request.url.params
        window = (params.get("producer", ""), params.get("sequence", ""))
        if not window[0] or window not in self._windows:
            rows = orjson.loads(request.content)["messages"]
            self._windows[window] = [{"segment": SEGMENT, "offset": len(self.rows), "count": len(rows)}]
            self.rows.extend({"key": row["key"], "value": _text(row["value_base64"])} for row in rows)
        if manner == "swallows answers":
            raise httpx.ReadTimeout("silence")
        return httpx.Response(200, json={"positions": self._windows[window]})

    def _offset(self, request: httpx.Request) -> int:
        params = request.url.params
        if "marker" in params:
            return from_marker(TOPIC, params["marker"])[SEGMENT]
        return len(self.rows) if params["from"] == "latest" else 0

    def _page(self, request: httpx.Request) -> httpx.Response:
        offset = self._offset(request)
        messages = self._messages(offset, int(request.url.params["limit"]))
        marker = to_marker(TOPIC, {SEGMENT: offset + len(messages)})
        return httpx.Response(200, json={"messages": messages, "marker": marker})

    async def _stream(self, offset: int) -> AsyncIterator[bytes]:
        yield _line({"keepalive": True, "marker": to_marker(TOPIC, {SEGMENT: offset})})
        for message in self._messages(offset, self.stream_messages):
            yield _line({"message": message, "marker": to_marker(TOPIC, {SEGMENT: message["offset"] + 1})})
        raise httpx.ReadError("cut")

    def _messages(self, offset: int, limit: int) -> list[dict[str, Any]]:
        rows = self.rows[offset : offset + limit]
        return [{"segment": SEGMENT, "offset": offset + index, **row} for index, row in enumerate(rows)]


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()


def _line(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
