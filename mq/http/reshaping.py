"""Splitting and merging segments by hand."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from filer.errors import InvalidInput
from filer.nearest import unknown_name
from filer.slots import SLOTS
from mq.broker import Broker
from mq.http.answers import json_response
from mq.http.json_request import json_body
from mq.http.routers import new_router
from mq.http.topics import segment_shape
from mq.shape_requests import Merge, Split

_SegmentId = Annotated[int, Path(ge=0, le=2**62)]


def reshaping_router(broker: Broker) -> APIRouter:
    """Endpoints that change which segments a topic has."""
    router = new_router("topics")

    @router.post("/v1/topics/{topic}/segments/{segment}/split", openapi_extra=_body({"at": _SLOTS, "parts": _PARTS}))
    async def split(request: Request, topic: str, segment: _SegmentId) -> Response:
        """Cut an open segment at slots, or into parts (2) of equal load, else of equal width; its successors."""
        return await _reshape(topic, _split(segment, await json_body(request, empty=b"{}")))

    @router.post("/v1/topics/{topic}/segments/{segment}/merge", openapi_extra=_body({"with": _OTHER}, ["with"]))
    async def merge(request: Request, topic: str, segment: _SegmentId) -> Response:
        """Make one of an open segment and its neighbour in key order; their successor."""
        return await _reshape(topic, _merge(segment, await json_body(request, empty=b"{}")))

    async def _reshape(topic: str, wanted: Split | Merge) -> Response:
        state, successors = await broker.reshape(topic, wanted)
        segments = [segment_shape(segment) for segment in successors]
        return json_response({"topic": topic, "version": state.version, "segments": segments})

    return router


_SLOTS = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": SLOTS - 1}, "minItems": 1}
_PARTS = {"type": "integer", "minimum": 2, "maximum": SLOTS}
_OTHER = {"type": "integer", "minimum": 0}


def _body(properties: Mapping[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    return {"requestBody": {"required": bool(required), "content": {"application/json": {"schema": schema}}}}


def _split(segment: int, document: Any) -> Split:
    """Raises `InvalidInput` for a body that is none of `{"at": [slot, …]}`, `{"parts": n}` and `{}`."""
    fields = _fields(document, ("at", "parts"), example='{"at": [32768]} or {"parts": 2}')
    if len(fields) == 2:
        raise InvalidInput("either 'at' or 'parts' says where to cut, not both")
    at, parts = fields.get("at"), fields.get("parts", 2)
    if at is not None and not (isinstance(at, list) and all(_is_whole(slot) for slot in at)):
        raise InvalidInput(f"'at' is a list of slots, such as [32768], not {at!r:.80}")
    if not _is_whole(parts) or not 2 <= parts <= SLOTS:
        raise InvalidInput(f"'parts' is a whole number from 2 to {SLOTS}, not {parts!r:.80}")
    return Split(segment, None if at is None else tuple(at), parts)


def _merge(segment: int, document: Any) -> Merge:
    """Raises `InvalidInput` for a body that is not `{"with": segment}`."""
    other = _fields(document, ("with",), example='{"with": 1}').get("with")
    if other is None or not _is_whole(other):
        raise InvalidInput(f"'with' is the id of a neighbouring segment, not {other!r:.80}")
    return Merge(segment, other)


def _fields(document: Any, known: Sequence[str], *, example: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InvalidInput(f"the body is to be an object such as {example}")
    for name in document:
        if name not in known:
            raise InvalidInput(unknown_name("field", name, known))
    return document


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
