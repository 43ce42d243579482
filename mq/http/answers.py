"""What the endpoints share: negotiated answers, and reading bounds from the query."""

import asyncio
from functools import partial
from operator import itemgetter
from typing import Annotated, Any

import orjson
from fastapi import Query, Request
from fastapi.responses import Response

from filer.topic_state import TopicState
from mq.errors import UnsupportedMedia
from mq.render import ARROW_TYPE, MessageRenderer, arrow_stream, ndjson
from mq.topic_reader import Run
from mq.topic_runtime import TopicRuntime

MIB = 1024 * 1024
# Rendering more than this holds the event loop up for longer than handing it to a thread costs.
INLINE_ROWS = 200
JSON_PAGE_ROWS = 10_000
JSON_PAGE_BYTES = 8 * MIB
JSON = "application/json"
NDJSON = "application/x-ndjson"

Limit = Annotated[int, Query(ge=1, le=1_000_000, description="Most messages to return.")]
MaxBytes = Annotated[int, Query(ge=1, le=64 * MIB, description="About the most bytes of messages to return.")]
Wait = Annotated[float, Query(ge=0, le=60, description="Seconds to wait for a first message.")]


def negotiate(request: Request, offered: list[str]) -> str:
    """The first offered media type that the client accepts; raises `UnsupportedMedia` naming those offered."""
    accept = request.headers.get("accept", "*/*")
    wanted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for kind in wanted:
        if kind in ("*/*", "") or kind == "application/*":
            return offered[0]
        if kind in offered:
            return kind
    raise UnsupportedMedia(f"none of {accept!r:.120} can be given: ask for {', '.join(offered)}")


def page_bounds(kind: str, limit: int, max_bytes: int) -> tuple[int, int]:
    """Most messages and bytes of a page: as JSON a message takes an object or more in the broker's memory."""
    if kind in (JSON, NDJSON):
        return min(limit, JSON_PAGE_ROWS), min(max_bytes, JSON_PAGE_BYTES)
    return limit, max_bytes


def json_response(document: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(orjson.dumps(document), status, headers, JSON)


async def messages_response(
    kind: str, runtime: TopicRuntime, runs: list[Run], about: dict[str, Any], headers: dict[str, str]
) -> Response:
    """Messages in the negotiated form: `about` beside them in JSON, `headers` where a body has no place for it."""
    render = partial(_render, kind, runtime.state, runs, about)
    rows = sum(run.table.num_rows for run in runs)
    body = await asyncio.get_running_loop().run_in_executor(None, render) if rows > INLINE_ROWS else render()
    for run in runs:
        # What the body has besides messages, and which of them are longer, is not looked into.
        if run.table.num_rows:
            runtime.count_read(run.segment, run.table.num_rows, len(body) * run.table.num_rows // rows)
    return Response(body, 200, {} if kind == JSON else headers, kind)


def _render(kind: str, state: TopicState, runs: list[Run], about: dict[str, Any]) -> bytes:
    if kind == ARROW_TYPE:
        return arrow_stream(runs, state.config)
    renderer = MessageRenderer(state.topic, state.config)
    if kind == NDJSON:
        return ndjson(message for run in runs for message in renderer.messages(run))
    return orjson.dumps({"messages": in_time_order(state, runs, renderer), **about})


def in_time_order(state: TopicState, runs: list[Run], renderer: MessageRenderer) -> list[dict[str, Any]]:
    """Messages of all segments by time, but none before those of a predecessor, whatever its owner's clock said."""
    by_segment: dict[int, list[Run]] = {}
    for run in runs:
        by_segment.setdefault(run.segment, []).append(run)
    predecessors = {segment.id: segment.predecessors for segment in state.segments}
    reached: dict[int, str] = {}
    timed: list[tuple[str, int, int, dict[str, Any]]] = []
    for segment in sorted(by_segment.keys() | predecessors.keys()):
        time = max((reached.get(before, "") for before in predecessors.get(segment, ())), default="")
        for run in by_segment.get(segment, ()):
            for message in renderer.messages(run):
                time = max(time, message["timestamp"])
                timed.append((time, segment, message["offset"], message))
        reached[segment] = time
    timed.sort(key=itemgetter(0, 1, 2))
    return [message for _, _, _, message in timed]
