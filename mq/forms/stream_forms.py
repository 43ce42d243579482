"""How a subscription writes messages: as server-sent events or as lines of JSON."""

from typing import Any, Protocol

import orjson


class StreamForm(Protocol):
    """Writes the parts of a stream. Each carries the marker from which a reader goes on after it."""

    def message(self, message: dict[str, Any], marker: str) -> bytes:
        """One message."""
        ...

    def keepalive(self, marker: str) -> bytes:
        """Shows that the connection is alive."""
        ...

    def end(self, reason: dict[str, Any], marker: str) -> bytes:
        """The last part, with the reason why the stream ends."""
        ...


class SseForm:
    """Server-sent events (WHATWG HTML §9.2). The marker is the event id."""

    def message(self, message: dict[str, Any], marker: str) -> bytes:
        """One event."""
        return b"event: message\nid: %b\ndata: %b\n\n" % (marker.encode(), orjson.dumps(message))

    def keepalive(self, marker: str) -> bytes:
        """A comment, which browsers ignore."""
        return b": keep-alive\n\n"

    def end(self, reason: dict[str, Any], marker: str) -> bytes:
        """The last event."""
        return b"event: end\nid: %b\ndata: %b\n\n" % (marker.encode(), orjson.dumps(reason))


class NdjsonForm:
    """One JSON object a line."""

    def message(self, message: dict[str, Any], marker: str) -> bytes:
        """One message with its marker."""
        return orjson.dumps({"message": message, "marker": marker}, option=orjson.OPT_APPEND_NEWLINE)

    def keepalive(self, marker: str) -> bytes:
        """A line without a message."""
        return orjson.dumps({"keepalive": True, "marker": marker}, option=orjson.OPT_APPEND_NEWLINE)

    def end(self, reason: dict[str, Any], marker: str) -> bytes:
        """The last line."""
        return orjson.dumps({**reason, "marker": marker}, option=orjson.OPT_APPEND_NEWLINE)
