"""`GET /v1/topics/{topic}/positions`: one offset per segment, from which a reader can go on."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from filer.topic.positions import advance, to_marker
from mq.broker import Broker
from mq.http.reply import json_response
from mq.http.routers import new_router
from mq.http.routes import POSITIONS
from mq.service.start import start_positions


def positions_router(broker: Broker) -> APIRouter:
    """The endpoint for readers that keep their own positions."""
    router = new_router("messages")

    @router.serves(POSITIONS)
    async def positions(
        topic: str,
        marker: str | None = None,
        from_: Annotated[str | None, Query(alias="from", description="earliest, latest or an RFC 3339 time.")] = None,
    ) -> Response:
        """Return the offset of each segment at a marker, a time, or the end of the topic: read on from there."""
        state = (await broker.topics.view(topic)).state
        reader = await broker.reader(topic)
        found = advance(state, await start_positions(topic, reader, marker, from_, default="latest"))
        listed = [{"segment": segment, "offset": found[segment]} for segment in sorted(found)]
        return json_response({"topic": topic, "marker": to_marker(topic, found), "positions": listed})

    return router
