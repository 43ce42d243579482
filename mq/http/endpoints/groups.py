"""Consumer groups: create, configure, describe, delete; claim messages, ack, release and extend them."""

from collections.abc import Sequence
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from groups.settings import default_dead_letter_topic
from mq.bodies.intake import ClientGone
from mq.broker import Broker
from mq.forms.formats import ARROW, JSON, PAGE_FORMATS
from mq.forms.group_bodies import (
    BODY_BYTES,
    MOST_BYTES,
    AckBody,
    ClaimBody,
    ExtensionBody,
    RedriveBody,
    ReleaseBody,
    ResetBody,
)
from mq.forms.json_form import JsonBody, checked_body
from mq.forms.shallow_json import object_of
from mq.groups.group_view import MOST_SHOWN
from mq.http.answers import MIB, negotiate
from mq.http.consuming.group_answer import response_of
from mq.http.consuming.group_router import GroupRouter
from mq.http.consuming.hidden_letters import dead_letter_topic, without_hidden_letters
from mq.http.json_body import body_schema, read_body
from mq.http.large_bodies import large_body
from mq.http.metered import waiting
from mq.http.principals import check_members, principal_of
from mq.http.reply import json_response
from mq.http.routers import Router, new_router
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
from mq.http.until_gone import NOBODY_READS, until_gone
from mq.limits.read_budget import ReadLease
from mq.peers.group_call import GroupRequest
from mq.security.caller import credential_of
from mq.security.principal import Principal

_DESCRIBING = ("put", "describe", "reset")
_OFFERED = [each for each in PAGE_FORMATS if each.media_type in (JSON, ARROW)]
_SETTINGS = {"requestBody": {"content": {JSON: {"schema": {"type": "object"}}}}}


def groups_router(broker: Broker) -> APIRouter:
    """The endpoints of consumer groups."""
    router, groups = new_router("groups"), _Groups(broker)
    _add_claims(router, groups)
    _add_management(router, groups)
    _add_lists(router, groups)
    return router


class _Groups:
    """Turns requests into calls of the coordinators of groups, and their answers into responses."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.router = broker, GroupRouter(broker)

    async def manage(self, request: Request, topic: str, group: str, operation: str) -> Response:
        """Describe or change a group."""
        body = await read_body(request)
        named = dead_letter_topic(body) if operation == "put" else None
        if named not in (None, topic, default_dead_letter_topic(topic)):
            # The brokers would publish there for any client that may manage this group.
            principal_of(request).require("publish", named)
        with self._lease() as lease:
            answer = await self.router.serve(GroupRequest(topic, group, operation, body), lease)
            if operation in _DESCRIBING:
                answer = without_hidden_letters(answer, topic, principal_of(request))
            return response_of(answer, lease)

    async def decide(self, request: Request, topic: str, group: str, operation: str) -> Response:
        """Ack, release or extend messages."""
        async with large_body(self.broker, request, BODY_BYTES) as body:
            with self._lease() as lease:
                return response_of(await self.router.serve(GroupRequest(topic, group, operation, body), lease), lease)

    async def claim(self, request: Request, claiming: GroupRequest, wait_seconds: float) -> Response:
        """Claim messages. If the consumer goes away meanwhile, its messages are for others."""
        with self._lease() as lease:
            lease.turns = self.broker.turns.streams if wait_seconds else self.broker.turns.others
            work = self.router.serve(claiming, lease, wait_seconds=wait_seconds)
            standings, need = self.broker.access.standings, match_of(request.scope).need
            try:
                with standings.of(credential_of(request.scope), need) as standing:
                    over = None if standing is None else standing.over
                    return response_of(await until_gone(request.receive, work, over=over), lease)
            except ClientGone:
                lease.close()
                return Response(status_code=NOBODY_READS)

    async def seen_by(self, principal: Principal, topic: str) -> Sequence[tuple[str, str]]:
        """The groups of a topic that a principal may observe, each with its mode, in order."""
        with self.broker.read_budget.lease() as lease:
            found = await self.router.list(topic, lease)
            lease.close()
        return [each for each in found if principal.grants.allow("observe", topic, each[0])]

    async def look(self, asked: GroupRequest) -> Response:
        """Look at messages of a group."""
        with self.broker.read_budget.lease() as lease:
            return response_of(await self.router.serve(asked, lease), lease)

    def _lease(self) -> ReadLease:
        """Room for an answer. Readers of pages wait for each other, and not for consumers."""
        lease = self.broker.read_budget.lease()
        lease.turns = self.broker.turns.others
        return lease


def _add_claims(router: Router, groups: _Groups) -> None:
    """Add the endpoints by which consumers get messages and decide about them."""

    @router.serves(CLAIM, openapi_extra=body_schema(ClaimBody, required=False))
    async def claim(request: Request, topic: str, group: str) -> Response:
        """Claim messages: no other consumer gets them while the lease runs. Creates a group that does not exist."""
        body = await read_body(request)
        wait_seconds = checked_body(object_of(body or b"{}", ClaimBody.EXAMPLE), ClaimBody).wait
        claiming = GroupRequest(topic, group, "claims", body, negotiate(request, _OFFERED).media_type)
        async with waiting(request.scope, wait_seconds, groups.broker.clock):
            return await groups.claim(request, claiming, wait_seconds)

    def add(route: Route, operation: str, model: type[JsonBody], what: str) -> None:
        @router.serves(route, openapi_extra=body_schema(model), name=operation, description=what)
        async def decide(request: Request, topic: str, group: str) -> Response:
            return await groups.decide(request, topic, group, operation)

    add(ACK, "acks", AckBody, "Ack messages: they are done. A repeated ack is answered as the first time.")
    add(RELEASE, "releases", ReleaseBody, "Give messages back, after a delay, or as dead letters.")
    add(EXTEND, "extensions", ExtensionBody, "Have leases run longer.")


def _add_management(router: Router, groups: _Groups) -> None:
    """Add the endpoints that describe and change groups."""

    @router.serves(PUT_GROUP, responses={201: {"description": "Created."}}, openapi_extra=_SETTINGS)
    async def put_group(request: Request, topic: str, group: str) -> Response:
        """Create a group (201), or change its settings (200). `from` counts only when it is created."""
        return await groups.manage(request, topic, group, "put")

    @router.serves(GET_GROUP)
    async def get_group(request: Request, topic: str, group: str) -> Response:
        """Describe a group: its settings, its lag, and how many messages are in flight."""
        return await groups.manage(request, topic, group, "describe")

    @router.serves(DELETE_GROUP, status_code=204)
    async def delete_group(request: Request, topic: str, group: str) -> Response:
        """Delete a group. Its messages stay in their topic."""
        return await groups.manage(request, topic, group, "delete")

    @router.serves(RESET, openapi_extra=body_schema(ResetBody))
    async def reset(request: Request, topic: str, group: str) -> Response:
        """Have a group begin anew somewhere. What was claimed before cannot be acked any more."""
        return await groups.manage(request, topic, group, "reset")

    @router.serves(REDRIVE, openapi_extra=body_schema(RedriveBody, required=False))
    async def redrive(request: Request, topic: str, group: str) -> Response:
        """Publish dead letters to their topic again, once each, or discard them."""
        principal = principal_of(request)
        principal.require("publish", topic)
        await check_members(groups.broker, principal, topic, "publish")
        return await groups.manage(request, topic, group, "redrive")


def _add_lists(router: Router, groups: _Groups) -> None:
    """Add the endpoints that list groups, and the messages of one."""

    @router.serves(LIST_GROUPS)
    async def list_groups(
        request: Request,
        topic: str,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Response:
        """List the groups of a topic that one may observe, a page after another."""
        seen = await groups.seen_by(principal_of(request), topic)
        behind = [each for each in seen if after is None or each[0] > after]
        page = behind[:limit]
        return json_response(
            {
                "groups": [{"group": name, "mode": mode} for name, mode in page],
                "next": page[-1][0] if len(behind) > limit else None,
            }
        )

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
        return await groups.look(GroupRequest(topic, group, "messages", orjson.dumps(given)))
