"""Consumer groups: create, configure, describe, delete; claim messages, ack, release and extend them."""

from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from groups.settings import default_dead_letter_topic
from mq.bodies.intake import ClientGone
from mq.broker import Broker
from mq.groups.group_view import MOST_SHOWN
from mq.http.answers import MIB, negotiate
from mq.http.consuming.group_answer import response_of
from mq.http.consuming.group_bodies import (
    BODY_BYTES,
    MOST_BYTES,
    AckBody,
    ClaimBody,
    ExtensionBody,
    RedriveBody,
    ReleaseBody,
    ResetBody,
)
from mq.http.consuming.group_router import GroupRouter
from mq.http.consuming.hidden_letters import dead_letter_topic, without_hidden_letters
from mq.http.formats import ARROW, PAGE_FORMATS
from mq.http.json_body import JsonBody, body_schema, checked_body, read_body
from mq.http.large_bodies import large_body
from mq.http.metered import waiting
from mq.http.principals import check_members, principal_of
from mq.http.reply import JSON, json_response
from mq.http.routers import new_router
from mq.http.routes import (
    ACK,
    CLAIM,
    DELETE_GROUP,
    EXTEND,
    GET_GROUP,
    GROUP_MESSAGES,
    LIST_GROUPS,
    PUT_GROUP,
    REDRIVE,
    RELEASE,
    RESET,
    Route,
    match_of,
)
from mq.http.shallow_json import object_of
from mq.http.until_gone import NOBODY_READS, until_gone
from mq.peers.group_call import GroupRequest
from mq.security.caller import credential_of

_DESCRIBING = ("put", "describe", "reset")
_OFFERED = [each for each in PAGE_FORMATS if each.media_type in (JSON, ARROW)]
_SETTINGS = {"requestBody": {"content": {JSON: {"schema": {"type": "object"}}}}}


def groups_router(broker: Broker) -> APIRouter:
    """The endpoints of consumer groups."""
    router, groups = new_router("groups"), GroupRouter(broker)

    async def serve(request: Request, topic: str, group: str, operation: str) -> Response:
        body = await read_body(request)
        named = dead_letter_topic(body) if operation == "put" else None
        if named not in (None, topic, default_dead_letter_topic(topic)):
            # The brokers would publish there for any client that may manage this group.
            principal_of(request).require("publish", named)
        asked = GroupRequest(topic, group, operation, body)
        with broker.read_budget.lease() as lease:
            # Readers of pages wait for each other, and not for consumers.
            lease.turns = broker.turns.others
            answer = await groups.serve(asked, lease)
            if operation in _DESCRIBING:
                answer = without_hidden_letters(answer, topic, principal_of(request))
            return response_of(answer, lease)

    @router.serves(CLAIM, openapi_extra=body_schema(ClaimBody, required=False))
    async def claim(request: Request, topic: str, group: str) -> Response:
        """Claim messages: no other consumer gets them while the lease runs. Creates a group that does not exist."""
        body = await read_body(request)
        wait_seconds = checked_body(object_of(body or b"{}", ClaimBody.EXAMPLE), ClaimBody).wait
        claiming = GroupRequest(topic, group, "claims", body, negotiate(request, _OFFERED).media_type)
        async with waiting(request.scope, wait_seconds, broker.clock):
            return await claimed(request, claiming, wait_seconds)

    async def claimed(request: Request, claiming: GroupRequest, wait_seconds: float) -> Response:
        with broker.read_budget.lease() as lease:
            lease.turns = broker.turns.streams if wait_seconds else broker.turns.others
            # If the consumer has gone away, its messages are for others.
            work = groups.serve(claiming, lease, wait_seconds=wait_seconds)
            allowed = broker.access.standings.of(credential_of(request.scope), match_of(request.scope).need)
            try:
                with allowed as standing:
                    over = None if standing is None else standing.over
                    return response_of(await until_gone(request.receive, work, over=over), lease)
            except ClientGone:
                lease.close()
                return Response(status_code=NOBODY_READS)

    def add(route: Route, operation: str, model: type[JsonBody], what: str) -> None:
        @router.serves(route, openapi_extra=body_schema(model), name=operation, description=what)
        async def decide(request: Request, topic: str, group: str) -> Response:
            async with large_body(broker, request, BODY_BYTES) as body:
                asked = GroupRequest(topic, group, operation, body)
                with broker.read_budget.lease() as lease:
                    lease.turns = broker.turns.others
                    return response_of(await groups.serve(asked, lease), lease)

    add(ACK, "acks", AckBody, "Ack messages: they are done. A repeated ack is answered as the first time.")
    add(RELEASE, "releases", ReleaseBody, "Give messages back, after a delay, or as dead letters.")
    add(EXTEND, "extensions", ExtensionBody, "Have leases run longer.")

    @router.serves(LIST_GROUPS)
    async def list_groups(
        request: Request,
        topic: str,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Response:
        """List the groups of a topic that one may observe, a page after another."""
        principal = principal_of(request)
        with broker.read_budget.lease() as lease:
            found = await groups.list(topic, lease)
            lease.close()
        seen = [each for each in found if principal.grants.allow("observe", topic, each[0])]
        behind = [each for each in seen if after is None or each[0] > after]
        page = behind[:limit]
        return json_response(
            {
                "groups": [{"group": name, "mode": mode} for name, mode in page],
                "next": page[-1][0] if len(behind) > limit else None,
            }
        )

    @router.serves(PUT_GROUP, responses={201: {"description": "Created."}}, openapi_extra=_SETTINGS)
    async def put_group(request: Request, topic: str, group: str) -> Response:
        """Create a group (201), or change its settings (200). `from` counts only when it is created."""
        return await serve(request, topic, group, "put")

    @router.serves(GET_GROUP)
    async def get_group(request: Request, topic: str, group: str) -> Response:
        """Describe a group: its settings, its lag, and how many messages are in flight."""
        return await serve(request, topic, group, "describe")

    @router.serves(DELETE_GROUP, status_code=204)
    async def delete_group(request: Request, topic: str, group: str) -> Response:
        """Delete a group. Its messages stay in their topic."""
        return await serve(request, topic, group, "delete")

    @router.serves(RESET, openapi_extra=body_schema(ResetBody))
    async def reset(request: Request, topic: str, group: str) -> Response:
        """Have a group begin anew somewhere. What was claimed before cannot be acked any more."""
        return await serve(request, topic, group, "reset")

    @router.serves(REDRIVE, openapi_extra=body_schema(RedriveBody, required=False))
    async def redrive(request: Request, topic: str, group: str) -> Response:
        """Publish dead letters to their topic again, once each, or discard them."""
        principal = principal_of(request)
        principal.require("publish", topic)
        await check_members(broker, principal, topic, "publish")
        return await serve(request, topic, group, "redrive")

    @router.serves(GROUP_MESSAGES)
    async def look(
        topic: str,
        group: str,
        state: Literal["backlog", "in_flight", "dead"],
        after: Annotated[str | None, Query(description="The id of the last message of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_SHOWN)] = 100,
        max_bytes: Annotated[int, Query(ge=1, le=MOST_BYTES)] = 8 * MIB,
    ) -> Response:
        """Look at a group's messages without claiming any: what waits, what consumers have, or dead letters."""
        given = {"state": state, "limit": limit, "max_bytes": max_bytes} | ({} if after is None else {"after": after})
        asked = GroupRequest(topic, group, "messages", orjson.dumps(given))
        with broker.read_budget.lease() as lease:
            return response_of(await groups.serve(asked, lease), lease)

    return router
