"""Answers to the requests of a socket. All answers of one turn of the event loop go in one message."""

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson

from mq.forms.render import Part
from mq.http.hidden_names import HiddenNames
from mq.http.problems import Problem
from mq.http.sockets.requests import Id
from mq.http.sockets.wire import Wire

MOST_TOGETHER, MOST_BYTES = 1_000, 256 * 1024


class Answers:
    """Writes to one socket. Problems do not name what is `hidden` from its principal."""

    def __init__(self, wire: Wire, hidden: HiddenNames | None = None) -> None:
        self._wire, self._hidden = wire, hidden
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def ok(self, id_: Id | None, document: bytes) -> None:
        """Answer that a request is done; `document` is its result as JSON. A request without an id gets no answer."""
        if id_ is not None:
            self._add(b'{"id":%b,"ok":%b}' % (_id(id_), document))

    def problem(self, id_: Id | None, problem: Problem) -> None:
        """Answer that a request is refused, or has failed. A request without an id gets this answer as well."""
        self.refused(id_, problem.body())

    def refused(self, id_: Id | None, document: bytes) -> None:
        """As `problem`, with its JSON."""
        if self._hidden is not None:
            document = self._hidden.body(document)
        self._add(b'{"problem":%b}' % document if id_ is None else b'{"id":%b,"problem":%b}' % (_id(id_), document))

    def end(self, end: dict[str, Any]) -> dict[str, Any]:
        """The end of a subscription, without names that the client may not see."""
        if self._hidden is None or "problem" not in end:
            return end
        return end | {"problem": self._hidden.problem(end["problem"])}

    def write(self, parts: Sequence[Part], *, is_text: bool = True) -> None:
        """Write another message, behind all answers until now."""
        self.flush()
        self._wire.write(parts, is_text=is_text)

    def flush(self) -> None:
        """Write the answers that wait."""
        if self._waiting:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self._wire.write([b'{"answers":[%b]}' % b",".join(waiting)])

    def _add(self, answer: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(answer)
        self._waiting_bytes += len(answer)
        if len(self._waiting) >= MOST_TOGETHER or self._waiting_bytes >= MOST_BYTES:
            self.flush()


def _id(id_: Id) -> bytes:
    return b"%d" % id_ if isinstance(id_, int) else orjson.dumps(id_)
