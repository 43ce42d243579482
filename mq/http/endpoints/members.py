"""Members of stream groups: join, heartbeats, leave; and their commits."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from mq.bodies.intake import ClientGone
from mq.broker import Broker
from mq.forms.group_bodies import BODY_BYTES, MOST_DECIDED, CommitBody, HeartbeatBody, JoinBody
from mq.forms.json_form import checked_in_steps
from mq.forms.shallow_json import object_in_steps
from mq.http.consuming.group_answer import response_of
from mq.http.consuming.group_router import GroupRouter
from mq.http.json_body import body_schema, read_body
from mq.http.large_bodies import large_body
from mq.http.metered import waiting
from mq.http.routers import new_router
from mq.http.routes import COMMIT, HEARTBEAT, JOIN, LEAVE
from mq.http.until_gone import NOBODY_READS, until_gone
from mq.limits.steps import Steps, in_turns
from mq.peers.group_call import GroupRequest


def members_router(broker: Broker) -> APIRouter:
    """The endpoints of members of stream groups."""
    router, groups = new_router("groups"), GroupRouter(broker)

    async def serve(topic: str, group: str, operation: str, body: bytes) -> Response:
        with broker.read_budget.lease() as lease:
            lease.turns = broker.turns.others
            return response_of(await groups.serve(GroupRequest(topic, group, operation, body), lease), lease)

    @router.serves(JOIN, status_code=201, openapi_extra=body_schema(JoinBody, required=False))
    async def join(request: Request, topic: str, group: str) -> Response:
        """Join a stream group, or start again under a name. A group that is not there is made."""
        return await serve(topic, group, "members", await read_body(request))

    @router.serves(HEARTBEAT, openapi_extra=_without_member(body_schema(HeartbeatBody)))
    async def heartbeat(request: Request, topic: str, group: str, member_id: str) -> Response:
        """Keep a session up: name the segments that are let go, and get those to read and those to let go."""
        async with large_body(broker, request, BODY_BYTES) as body:
            # It waits for long, and a long list of segments is a short text by then.
            told = await in_turns(_heartbeat(body, member_id), broker.turns.others)
        beat = GroupRequest(topic, group, "heartbeats", told.model_dump_json(exclude_unset=True).encode())
        async with waiting(request.scope, told.wait, broker.clock):
            return await beaten(request, beat, told.wait)

    async def beaten(request: Request, beat: GroupRequest, wait_seconds: float) -> Response:
        with broker.read_budget.lease() as lease:
            if wait_seconds:
                lease.turns = broker.turns.streams
            # The last heartbeat of a member that has gone away does not keep it in the group.
            work = groups.serve(beat, lease, wait_seconds=wait_seconds)
            try:
                return response_of(await until_gone(request.receive, work), lease)
            except ClientGone:
                lease.close()
                return Response(status_code=NOBODY_READS)

    @router.serves(LEAVE, status_code=204)
    async def leave(
        topic: str, group: str, member_id: str, member_epoch: Annotated[int | None, Query(ge=1, le=2**62)] = None
    ) -> Response:
        """Leave a group: its segments are free at once. Without the epoch, whichever start of the member there is."""
        told = {"member_id": member_id, "member_epoch": member_epoch}
        return await serve(topic, group, "leave", orjson.dumps(told))

    @router.serves(COMMIT, openapi_extra=body_schema(CommitBody))
    async def commit(request: Request, topic: str, group: str) -> Response:
        """Commit positions: everything below them is done. Answered when that is stored."""
        async with large_body(broker, request, BODY_BYTES) as body:
            return await serve(topic, group, "commits", body)

    return router


def _heartbeat(body: bytes, member_id: str) -> Steps[HeartbeatBody]:
    """The heartbeat of the member in the path. The body may name no other."""
    document = yield from object_in_steps(body or b"{}", HeartbeatBody.EXAMPLE, MOST_DECIDED)
    return (yield from checked_in_steps({"member_id": member_id, **document}, HeartbeatBody))


def _without_member(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without the member, which the path names already."""
    (content,) = schema["requestBody"]["content"].values()
    described = content["schema"]
    described["properties"] = {name: each for name, each in described["properties"].items() if name != "member_id"}
    described["required"] = [name for name in described["required"] if name != "member_id"]
    return schema
