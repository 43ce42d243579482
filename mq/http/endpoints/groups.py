"""Consumer groups: create, configure, describe, delete; claim messages, ack, release and extend them."""

import contextlib
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from mq.bodies.intake import ClientGone
from mq.broker import Broker
from mq.http.answers import negotiate
from mq.http.consuming.group_bodies import BODY_BYTES, AckBody, ClaimBody, ExtensionBody, ReleaseBody
from mq.http.consuming.group_desk import GroupAnswer, GroupRequest
from mq.http.consuming.group_router import GroupRouter
from mq.http.formats import ARROW, PAGE_FORMATS
from mq.http.json_body import JsonBody, body_schema, checked_body, parse_object
from mq.http.reply import JSON, PageResponse
from mq.http.routers import new_router
from mq.http.until_gone import until_gone
from mq.limits.read_budget import ReadLease

# No code is defined for it; this is the one of nginx, which shows in the access log.
_NOBODY_READS = 499
_GROUP = "/v1/topics/{topic}/groups/{group}"
_OFFERED = [each for each in PAGE_FORMATS if each.media_type in (JSON, ARROW)]
_SETTINGS = {"requestBody": {"content": {JSON: {"schema": {"type": "object"}}}}}


def groups_router(broker: Broker) -> APIRouter:
    """The endpoints of consumer groups."""
    router, groups = new_router("groups"), GroupRouter(broker)

    async def serve(topic: str, group: str, operation: str, body: dict[str, Any]) -> Response:
        request = GroupRequest(topic, group, operation, orjson.dumps(body))
        with broker.read_budget.lease() as lease:
            return _response(await groups.serve(request, lease), lease)

    @router.put(_GROUP, responses={201: {"description": "Created."}}, openapi_extra=_SETTINGS)
    async def put_group(request: Request, topic: str, group: str) -> Response:
        """Create a group (201), or change its settings (200). `from` counts only when it is created."""
        return await serve(topic, group, "put", await parse_object(request, '{"lease_seconds": 60}', empty=b"{}"))

    @router.get(_GROUP)
    async def get_group(topic: str, group: str) -> Response:
        """Describe a group: its settings, its lag, and how many messages are in flight."""
        return await serve(topic, group, "describe", {})

    @router.delete(_GROUP, status_code=204)
    async def delete_group(topic: str, group: str) -> Response:
        """Delete a group. Its messages stay in their topic."""
        return await serve(topic, group, "delete", {})

    @router.post(f"{_GROUP}/claims", openapi_extra=body_schema(ClaimBody, required=False))
    async def claim(request: Request, topic: str, group: str) -> Response:
        """Claim messages: nobody else gets them while the lease runs. A group that is not there is made."""
        document = await parse_object(request, ClaimBody.EXAMPLE, empty=b"{}")
        asked = checked_body(document, ClaimBody)
        accept = negotiate(request, _OFFERED).media_type
        claiming = GroupRequest(topic, group, "claims", orjson.dumps(document), accept)
        with broker.read_budget.lease() as lease:
            if asked.wait:
                lease.turns = broker.turns.streams
            # What a consumer that has gone away would get is for others.
            work = groups.serve(claiming, lease, wait_seconds=asked.wait)
            try:
                return _response(await until_gone(request.receive, work), lease)
            except ClientGone:
                lease.close()
                return Response(status_code=_NOBODY_READS)

    def add(operation: str, model: type[JsonBody], what: str) -> None:
        @router.post(f"{_GROUP}/{operation}", openapi_extra=body_schema(model), name=operation, description=what)
        async def decide(request: Request, topic: str, group: str) -> Response:
            document = await parse_object(request, model.EXAMPLE, most_bytes=BODY_BYTES)
            return await serve(topic, group, operation, document)

    add("acks", AckBody, "Ack messages: they are done. A repeated ack is answered as the first time.")
    add("releases", ReleaseBody, "Give messages back, after a delay, or as dead letters.")
    add("extensions", ExtensionBody, "Have leases run longer.")
    return router


def _response(answer: GroupAnswer, lease: ReadLease) -> Response:
    if not answer.parts:
        with contextlib.closing(lease):
            return Response(status_code=answer.status)
    return PageResponse(answer.parts, {}, answer.media_type, lease, answer.status)
