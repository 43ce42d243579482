"""Shared by the endpoints that return messages: the format of the answer and the bounds of a page."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response

from filer import tracing
from mq.base.errors import UnsupportedMedia
from mq.forms.formats import Format
from mq.forms.rendering import copied, rendered
from mq.http.reply import PageResponse
from mq.limits.read_budget import ReadLease
from mq.topic.run import Run
from mq.topic.topic_view import TopicView

MIB = 1024 * 1024
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
    chosen: Format,
    runtime: TopicView,
    runs: list[Run],
    about: dict[str, Any],
    headers: dict[str, str],
    lease: ReadLease,
) -> Response:
    """Messages in the chosen format. `about` goes into the body if the format has room for it, else into the `headers`.

    By the `lease` the response holds its part of the read budget until it has been sent.
    """
    assert chosen.page is not None
    rows = sum(run.table.num_rows for run in runs)
    rendering = rendered if chosen.is_json else copied
    with tracing.current().child("render") as span:
        parts = await rendering(chosen.page(runtime.shown, runs, about), rows, lease)
        body_bytes = sum(map(len, parts))
        span.note(size_bytes=body_bytes)
    tracing.current().note(messages=rows)
    for run in runs:
        # The bytes of the body are divided by the number of messages, however long each of them is.
        if run.table.num_rows:
            runtime.reads.count_read(run.segment, run.table.num_rows, body_bytes * run.table.num_rows // rows)
    runs.clear()
    return PageResponse(parts, {} if chosen.page_tells_about else headers, chosen.media_type, lease)
