"""Every segment that a topic has had: its key range, its times, and its messages and bytes."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from filer.times import rfc3339
from filer.topic.topic_state import Segment
from mq.broker import Broker
from mq.http.endpoints.topics import given_up_of
from mq.http.reply import json_response
from mq.http.routers import new_router
from mq.http.routes import HISTORY
from mq.topic.topic_runtime import TopicRuntime


def history_router(broker: Broker) -> APIRouter:
    """The history of topics."""
    router = new_router("topics")

    @router.serves(HISTORY)
    async def history(
        topic: str,
        after: Annotated[int, Query(ge=-1, le=2**62, description="Only segments of higher ids.")] = -1,
        limit: Annotated[int, Query(ge=1, le=1000, description="The most segments to return.")] = 1000,
    ) -> Response:
        """List every segment that a topic has had, by id: range, times, reason, messages, bytes; a page at a time."""
        runtime = await broker.topics.topic(topic)
        present = {segment.id: segment for segment in runtime.state.segments}
        segments = await _page(broker, topic, present, after, limit + 1)
        page = segments[:limit]
        now_us = broker.clock.now_us()
        lives = await asyncio.gather(*(_life(runtime, segment, segment.id in present, now_us) for segment in page))
        following = page[-1].id if len(segments) > limit else None
        return json_response({"topic": topic, "segments": lives, "next": following})

    return router


async def _page(broker: Broker, topic: str, present: Mapping[int, Segment], after: int, limit: int) -> list[Segment]:
    """The first segments after that id: those `present` in topic.json, and those in the history.

    No segment is missed, because topic.json was read first: a segment is in the history before it leaves topic.json.
    """
    kept = {segment.id: segment for segment in await broker.catalogue.read_history(topic, after=after, limit=limit)}
    found = kept | {i: segment for i, segment in present.items() if i > after}
    return [found[i] for i in sorted(found)[:limit]]


async def _life(runtime: TopicRuntime, segment: Segment, is_present: bool, now_us: int) -> dict[str, Any]:
    messages, size_bytes = segment.end_offset, segment.stored_bytes
    if messages is None:
        messages, size_bytes = await runtime.reads.carried(segment.id)
    until_us = now_us if segment.sealed_us is None else segment.sealed_us
    seconds = (until_us - segment.opened_us) / 1e6
    life = {
        "segment": segment.id,
        "range": list(segment.range),
        "state": segment.state if is_present else "removed",
        "reason": segment.reason,
        "opened": rfc3339(segment.opened_us),
        "sealed": None if segment.sealed_us is None else rfc3339(segment.sealed_us),
        "predecessors": list(segment.predecessors),
        "successors": list(segment.successors),
        "messages": messages,
        "messages_per_second": _rate(messages, seconds),
        "bytes": size_bytes,
        "bytes_per_second": _rate(size_bytes, seconds),
        **given_up_of(segment),
    }
    return life if segment.load is None else {**life, "load": segment.load}


def _rate(count: int | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else round(count / seconds, 3)
