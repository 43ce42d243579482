"""What the endpoints share: negotiated answers, and reading bounds from the query."""

import asyncio
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import Query, Request
from fastapi.responses import Response

from filer.topic_config import TopicConfig
from mq.errors import UnsupportedMedia
from mq.render import ARROW_TYPE, MessageRenderer, arrow_stream, ndjson
from mq.topic_reader import Run

MIB = 1024 * 1024
# Rendering more than this holds the event loop up for longer than handing it to a thread costs.
INLINE_ROWS = 200
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


def json_response(document: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(orjson.dumps(document), status, headers, JSON)


async def messages_response(
    kind: str,
    topic: str,
    config: TopicConfig,
    runs: list[Run],
    about: dict[str, Any],
    headers: dict[str, str],
) -> Response:
    """Messages in the negotiated form: `about` beside them in JSON, `headers` where a body has no place for it."""
    render = partial(_render, kind, topic, config, runs, about)
    body = await asyncio.get_running_loop().run_in_executor(None, render) if _large(runs) else render()
    return Response(body, 200, {} if kind == JSON else headers, kind)


def _large(runs: list[Run]) -> bool:
    return bool(sum(run.table.num_rows for run in runs) > INLINE_ROWS)


def _render(kind: str, topic: str, config: TopicConfig, runs: list[Run], about: dict[str, Any]) -> bytes:
    if kind == ARROW_TYPE:
        return arrow_stream(runs, config)
    renderer = MessageRenderer(topic, config)
    messages = [message for run in runs for message in renderer.messages(run)]
    if kind == NDJSON:
        return ndjson(messages)
    messages.sort(key=lambda m: (m["timestamp"], m["segment"], m["offset"]))
    return orjson.dumps({"messages": messages, **about})
