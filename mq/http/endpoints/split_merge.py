"""Splitting and merging segments on request."""

from typing import Annotated, ClassVar

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import Field

from filer.errors import InvalidInput
from filer.slots import SLOTS
from mq.broker import Broker
from mq.forms.json_form import JsonBody
from mq.http.endpoints.topics import segment_shape
from mq.http.json_body import parse_body
from mq.http.reply import json_response
from mq.http.routers import new_router
from mq.http.routes import MERGE, SPLIT
from mq.transitions.split_merge_requests import MergeRequest, SplitRequest

_SegmentId = Annotated[int, Path(ge=0, le=2**62)]
_Slot = Annotated[int, Field(json_schema_extra={"minimum": 1, "maximum": SLOTS - 1})]


class SplitBody(JsonBody):
    """The slots at which to cut a segment, or the number of parts to cut it into."""

    EXAMPLE = '{"at": [32768]} or {"parts": 2}'
    WANTED: ClassVar = {"at": "a list of slots, such as [32768]", "parts": f"a whole number from 2 to {SLOTS}"}

    at: Annotated[list[_Slot] | None, Field(json_schema_extra={"minItems": 1})] = None
    parts: Annotated[int, Field(ge=2, le=SLOTS)] = 2


class MergeBody(JsonBody):
    """The neighbour to merge a segment with."""

    EXAMPLE = '{"with": 1}'
    WANTED: ClassVar = {"with": "the id of a neighbouring segment"}

    other: Annotated[int, Field(alias="with", json_schema_extra={"minimum": 0})]


def split_merge_router(broker: Broker) -> APIRouter:
    """The endpoints that split and merge segments."""
    router = new_router("topics")

    @router.serves(SPLIT, body=SplitBody, body_required=False)
    async def split(request: Request, topic: str, segment: _SegmentId) -> Response:
        """Cut an open segment at slots, or into parts (2) of equal traffic, or of equal width; its successors."""
        body = await parse_body(request, SplitBody, empty=b"{}")
        if len(body.model_fields_set) == 2:
            raise InvalidInput("give either 'at' or 'parts', not both")
        return await _carry_out(topic, SplitRequest(segment, None if body.at is None else tuple(body.at), body.parts))

    @router.serves(MERGE, body=MergeBody)
    async def merge(request: Request, topic: str, segment: _SegmentId) -> Response:
        """Make one segment of an open segment and its neighbour in key order; their successor."""
        body = await parse_body(request, MergeBody, empty=b"{}")
        return await _carry_out(topic, MergeRequest(segment, body.other))

    async def _carry_out(topic: str, wanted: SplitRequest | MergeRequest) -> Response:
        state, successors = await broker.patience.wait(
            broker.administration.split_or_merge(topic, wanted), f"the change of topic {topic!r}"
        )
        segments = [segment_shape(segment) for segment in successors]
        return json_response({"topic": topic, "version": state.version, "segments": segments})

    return router
