"""Topics: create, configure, list, describe, delete, and the route to their owners."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from filer.errors import InvalidInput
from filer.topic_state import Segment, TopicState
from mq.broker import Broker
from mq.http.answers import json_response
from mq.http.json_request import json_body
from mq.http.routers import new_router
from mq.load_report import ShownLoad
from mq.topic_runtime import TopicRuntime

_UNKNOWN = ShownLoad(None, None)


def topics_router(broker: Broker) -> APIRouter:
    """Endpoints of topics themselves."""
    router = new_router("topics")

    @router.put(
        "/v1/topics/{topic}",
        responses={201: {"description": "Created."}},
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}},
    )
    async def put_topic(request: Request, topic: str) -> Response:
        """Create a topic (201), or change its configuration (200): only the settings given change."""
        runtime, created = await broker.put_topic(topic, await _settings(request))
        return json_response(await describe(broker, runtime.state), status=201 if created else 200)

    @router.get("/v1/topics")
    async def list_topics(after: str | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
        """Topics by name, a page at a time."""
        states: list[TopicState] = []
        for name in await broker.catalogue.names(after=after):
            if len(states) > limit:
                break
            record = await broker.catalogue.read(name)
            if record is not None and not record.state.deleted:
                states.append(record.state)
        page = states[:limit]
        topics = [{"topic": s.topic, "segments": len(s.open_segments), "version": s.version} for s in page]
        return json_response({"topics": topics, "next": page[-1].topic if len(states) > limit else None})

    @router.get("/v1/topics/{topic}")
    async def get_topic(topic: str) -> Response:
        """Configuration and segments of a topic."""
        runtime = await broker.topic(topic)
        return json_response(await describe(broker, runtime.state))

    @router.delete("/v1/topics/{topic}", status_code=204)
    async def delete_topic(topic: str) -> Response:
        """Delete a topic: its files go after the grace period."""
        await broker.delete_topic(topic)
        return Response(status_code=204)

    @router.get("/v1/topics/{topic}/route")
    async def route(topic: str) -> Response:
        """Open segments and their owners' addresses."""
        state = (await broker.topic(topic)).state
        urls = {info.id: info.url for info in broker.coordinator.brokers()}
        segments = [
            {"segment": s.id, "range": list(s.range), "owner": {"broker": s.owner, "url": urls.get(s.owner)}}
            for s in state.open_segments
        ]
        return json_response({"topic": topic, "version": state.version, "segments": segments})

    return router


async def _settings(request: Request) -> dict[str, Any]:
    """The body of a PUT as an object; raises `InvalidInput` and as `json_body`."""
    document = await json_body(request, empty=b"{}")
    if not isinstance(document, dict):
        raise InvalidInput('the body is to be an object of settings, such as {"segments": 4}')
    return document


async def describe(broker: Broker, state: TopicState) -> dict[str, Any]:
    """A topic as answers show it (DESIGN.md §11)."""
    runtime = await broker.topic(state.topic)
    ends = await asyncio.gather(*(end_of(runtime, segment) for segment in state.segments))
    loads = await broker.shown_loads.of(runtime)
    segments = [
        _segment(segment, end) | (_load(loads.get(segment.id, _UNKNOWN)) if segment.state == "open" else {})
        for segment, end in zip(state.segments, ends, strict=True)
    ]
    return {
        "topic": state.topic,
        "config": state.config.model_dump(mode="json"),
        "version": state.version,
        "segments": segments,
    }


async def end_of(runtime: TopicRuntime, segment: Segment) -> int:
    """The offset after a segment's last message, which is how many it has had."""
    return segment.end_offset if segment.end_offset is not None else await runtime.end_of(segment.id)


def _segment(segment: Segment, end_offset: int) -> dict[str, Any]:
    return {**segment_shape(segment), "start_offset": segment.start_offset, "end_offset": end_offset}


def segment_shape(segment: Segment) -> dict[str, Any]:
    """What of a segment does not change with its messages."""
    return {
        "segment": segment.id,
        "range": list(segment.range),
        "state": segment.state,
        "predecessors": list(segment.predecessors),
        "successors": list(segment.successors),
        "brokers": list(segment.brokers),
    }


def _load(shown: ShownLoad) -> dict[str, Any]:
    rates = None if shown.load is None else {name: round(rate, 6) for name, rate in asdict(shown.load).items()}
    return {"load": rates, "hot_slot": shown.hot_slot}
