"""What the endpoints that give messages share: the format of the answer and the bounds of a page."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response

from mq.base.errors import UnsupportedMedia
from mq.http.formats import Format
from mq.topic.topic_reader import Run
from mq.topic.topic_runtime import TopicRuntime

MIB = 1024 * 1024
# Rendering more rows blocks the event loop for longer than it costs to use a thread.
INLINE_ROWS = 200
JSON_PAGE_ROWS = 10_000
JSON_PAGE_BYTES = 8 * MIB

Limit = Annotated[int, Query(ge=1, le=1_000_000, description="The most messages to return.")]
MaxBytes = Annotated[int, Query(ge=1, le=64 * MIB, description="About the most bytes of messages to return.")]
Wait = Annotated[float, Query(ge=0, le=60, description="How many seconds to wait for a first message.")]


def negotiate(request: Request, offered: Sequence[Format]) -> Format:
    """The first format that the client accepts, in the client's order. Raises `UnsupportedMedia` if it accepts none."""
    by_type = {each.media_type: each for each in offered}
    accept = request.headers.get("accept", "*/*")
    wanted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for kind in wanted:
        if kind in ("*/*", "") or kind == "application/*":
            return offered[0]
        if kind in by_type:
            return by_type[kind]
    raise UnsupportedMedia(f"none of {accept!r:.120} can be given: ask for {', '.join(by_type)}")


def page_bounds(chosen: Format, limit: int, max_bytes: int) -> tuple[int, int]:
    """The most messages and bytes of a page. JSON has lower bounds: each message takes objects in memory."""
    if chosen.is_json:
        return min(limit, JSON_PAGE_ROWS), min(max_bytes, JSON_PAGE_BYTES)
    return limit, max_bytes


async def messages_response(
    chosen: Format, runtime: TopicRuntime, runs: list[Run], about: dict[str, Any], headers: dict[str, str]
) -> Response:
    """Messages in the chosen format. `about` is in the body if the format has room for it, else in the `headers`."""
    assert chosen.page is not None
    render = partial(chosen.page, runtime.state, runs, about)
    rows = sum(run.table.num_rows for run in runs)
    body = await asyncio.get_running_loop().run_in_executor(None, render) if rows > INLINE_ROWS else render()
    for run in runs:
        # The bytes of the body are shared out by the number of messages, however long each of them is.
        if run.table.num_rows:
            runtime.reads.count_read(run.segment, run.table.num_rows, len(body) * run.table.num_rows // rows)
    return Response(body, 200, {} if chosen.page_tells_about else headers, chosen.media_type)
