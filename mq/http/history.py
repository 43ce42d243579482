"""Every segment that a topic has had: its key range, its time, and the load it carried."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from filer.topic_state import Segment
from mq.broker import Broker
from mq.http.answers import json_response
from mq.http.topics import end_of
from mq.render import rfc3339
from mq.topic_runtime import TopicRuntime


def history_router(broker: Broker) -> APIRouter:
    """The history of topics."""
    router = APIRouter(tags=["topics"])

    @router.get("/v1/topics/{topic}/history")
    async def history(
        topic: str,
        after: Annotated[int, Query(ge=-1, le=2**62, description="Only segments of higher ids.")] = -1,
        limit: Annotated[int, Query(ge=1, le=1000, description="Most segments to return.")] = 1000,
    ) -> Response:
        """Every segment a topic has had, by id, with its range, times, reason and load; a page at a time."""
        runtime = await broker.topic(topic)
        segments = await _page(broker, runtime, after, limit + 1)
        page = segments[:limit]
        now_us = broker.clock.now_us()
        lives = await asyncio.gather(*(_life(runtime, segment, now_us) for segment in page))
        following = page[-1].id if len(segments) > limit else None
        return json_response({"topic": topic, "segments": lives, "next": following})

    return router


async def _page(broker: Broker, runtime: TopicRuntime, after: int, limit: int) -> list[Segment]:
    """The first segments behind that id: of topic.json, and of what has been kept of those that left it.

    topic.json is looked at first: what leaves it meanwhile has been kept before.
    """
    present = {segment.id: segment for segment in runtime.state.segments if segment.id > after}
    since_us = runtime.state.created_us
    removed: dict[int, Segment] = {}
    while len(removed) < limit:
        read = await broker.catalogue.read_history(runtime.topic, after=after, limit=limit)
        # Whatever had the topic's name before it is no part of it.
        removed |= {segment.id: segment for segment in read if segment.opened_us >= since_us}
        if len(read) < limit:
            break
        after = read[-1].id
    found = removed | present
    return [found[i] for i in sorted(found)[:limit]]


async def _life(runtime: TopicRuntime, segment: Segment, now_us: int) -> dict[str, Any]:
    messages = await end_of(runtime, segment)
    size_bytes = _size_bytes(runtime, segment)
    until_us = now_us if segment.sealed_us is None else segment.sealed_us
    seconds = (until_us - segment.opened_us) / 1e6
    return {
        "segment": segment.id,
        "range": list(segment.range),
        "state": segment.state if runtime.state.segment(segment.id) is not None else "removed",
        "reason": segment.reason,
        "opened": rfc3339(segment.opened_us),
        "sealed": None if segment.sealed_us is None else rfc3339(segment.sealed_us),
        "predecessors": list(segment.predecessors),
        "successors": list(segment.successors),
        "messages": messages,
        "messages_per_second": _rate(messages, seconds),
        "bytes": size_bytes,
        "bytes_per_second": _rate(size_bytes, seconds),
    }


def _size_bytes(runtime: TopicRuntime, segment: Segment) -> int | None:
    """Bytes of its files, where they are all there and this broker knows them without asking the store."""
    index = runtime.known_index(segment.id)
    whole = index is not None and segment.start_offset == 0 and index.end >= (segment.end_offset or 0)
    return index.size_bytes if index is not None and whole else None


def _rate(count: int | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else round(count / seconds, 3)
