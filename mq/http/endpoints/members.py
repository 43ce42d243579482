"""Members of stream groups: join, heartbeats, leave; and their commits."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from filer.errors import InvalidInput
from mq.bodies.intake import ClientGone
from mq.broker import Broker
from mq.forms.group_bodies import BODY_BYTES, MOST_DECIDED, BeatBody, CommitBody, HeartbeatBody, JoinBody, LeaveBody
from mq.forms.json_form import checked_body, checked_in_steps
from mq.forms.shallow_json import object_in_steps
from mq.http.document_response import document_response, done
from mq.http.json_body import parse_body
from mq.http.large_bodies import large_body
from mq.http.metered import waiting
from mq.http.routers import new_router
from mq.http.routes import COMMIT, HEARTBEAT, JOIN, LEAVE
from mq.http.until_gone import NOBODY_READS, until_gone
from mq.limits.steps import Steps, in_turns
from mq.service.groups import operations
from mq.service.groups.group_service import GroupService


def members_router(broker: Broker) -> APIRouter:
    """The endpoints of members of stream groups."""
    router, groups = new_router("groups"), GroupService(broker)

    @router.serves(JOIN, body=JoinBody, body_required=False)
    async def join(request: Request, topic: str, group: str) -> Response:
        """Join a stream group, or start again under a name. A group that is not there is made."""
        body = await parse_body(request, JoinBody, empty=b"{}")
        with broker.read_budget.lease() as lease:
            return document_response(await groups.ask(operations.JOIN, topic, group, body, lease), lease)

    @router.serves(HEARTBEAT, body=BeatBody)
    async def heartbeat(request: Request, topic: str, group: str, member_id: str) -> Response:
        """Keep a session up: name the segments that are let go, and get those to read and those to let go."""
        async with large_body(broker, request, BODY_BYTES) as text:
            # It waits for long, and a long list of segments is a short text by then.
            body = await in_turns(_heartbeat(text, member_id), broker.turns.others)
        async with waiting(request.scope, body.wait, broker.clock):
            return await beaten(request, topic, group, body)

    async def beaten(request: Request, topic: str, group: str, body: HeartbeatBody) -> Response:
        with broker.read_budget.lease() as lease:
            # The last heartbeat of a member that has gone away does not keep it in the group.
            work = groups.ask(operations.HEARTBEAT, topic, group, body, lease)
            try:
                return document_response(await until_gone(request.receive, work), lease)
            except ClientGone:
                lease.close()
                return Response(status_code=NOBODY_READS)

    @router.serves(LEAVE)
    async def leave(
        topic: str, group: str, member_id: str, member_epoch: Annotated[int | None, Query(ge=1, le=2**62)] = None
    ) -> Response:
        """Leave a group: its segments are free at once. Without the epoch, whichever start of the member there is."""
        body = checked_body({"member_id": member_id, "member_epoch": member_epoch}, LeaveBody)
        with broker.read_budget.lease() as lease:
            await groups.ask(operations.LEAVE, topic, group, body, lease)
            return done(lease)

    @router.serves(COMMIT, body=CommitBody)
    async def commit(request: Request, topic: str, group: str) -> Response:
        """Commit positions: everything below them is done. Answered when that is stored."""
        async with large_body(broker, request, BODY_BYTES) as body:
            with broker.read_budget.lease() as lease:
                return document_response(await groups.ask(operations.COMMIT, topic, group, body, lease), lease)

    return router


def _heartbeat(body: bytes, member_id: str) -> Steps[HeartbeatBody]:
    """The heartbeat of the member in the path. Raises `InvalidInput` for a body that names another one."""
    document = yield from object_in_steps(body or b"{}", HeartbeatBody.EXAMPLE, MOST_DECIDED)
    if (named := document.get("member_id", member_id)) != member_id:
        raise InvalidInput(f"member_id: the path names member {member_id!r:.80}, not {named!r:.80}: leave it out")
    return (yield from checked_in_steps({**document, "member_id": member_id}, HeartbeatBody))
