"""Consumer groups: create, configure, describe, delete; claim messages, ack, release and extend them."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

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
    MessagesBody,
    RedriveBody,
    ReleaseBody,
    ResetBody,
)
from mq.forms.json_form import JsonBody, checked_body
from mq.groups.group_view import MOST_SHOWN
from mq.http.answers import MIB, negotiate
from mq.http.document_response import document_response, done
from mq.http.hidden_letters import dead_letter_topic, without_hidden_letters
from mq.http.json_body import parse_body, parse_object
from mq.http.large_bodies import large_body
from mq.http.metered import waiting
from mq.http.principals import check_members, principal_of
from mq.http.reply import PageResponse, json_response
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
from mq.security.caller import credential_of
from mq.security.principal import Principal
from mq.service.groups import operations
from mq.service.groups.answers import Document
from mq.service.groups.group_service import GroupService
from mq.service.groups.operations import SETTINGS_EXAMPLE, Operation

Q = TypeVar("Q")
_OFFERED = [each for each in PAGE_FORMATS if each.media_type in (JSON, ARROW)]


def groups_router(broker: Broker) -> APIRouter:
    """The endpoints of consumer groups."""
    router, groups = new_router("groups"), _Groups(broker)
    _add_claims(router, groups)
    _add_management(router, groups)
    _add_lists(router, groups)
    return router


class _Groups:
    """Turns requests into requests of the service, and its answers into responses."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.service = broker, GroupService(broker)

    async def answered(self, operation: Operation[Q, Document], topic: str, group: str, body: Q) -> Response:
        """The response with the document that answers a request."""
        with self.broker.read_budget.lease() as lease:
            return document_response(await self.service.ask(operation, topic, group, body, lease), lease)

    async def described(
        self, principal: Principal, operation: Operation[Q, Document], topic: str, group: str, body: Q
    ) -> Response:
        """As `answered`, for a document that describes the group."""
        with self.broker.read_budget.lease() as lease:
            answer = await self.service.ask(operation, topic, group, body, lease)
            return document_response(without_hidden_letters(answer, topic, principal), lease)

    async def delete(self, topic: str, group: str) -> Response:
        """Delete a group."""
        with self.broker.read_budget.lease() as lease:
            await self.service.ask(operations.DELETE, topic, group, None, lease)
            return done(lease)

    async def decide(self, request: Request, operation: Operation[bytes, Document], topic: str, group: str) -> Response:
        """Ack, release or extend messages."""
        async with large_body(self.broker, request, BODY_BYTES) as body:
            return await self.answered(operation, topic, group, body)

    async def claim(self, request: Request, topic: str, group: str, body: ClaimBody) -> Response:
        """Claim messages. If the consumer goes away meanwhile, its messages are for others."""
        accept = negotiate(request, _OFFERED).media_type
        with self.broker.read_budget.lease() as lease:
            work = self.service.ask(operations.CLAIM, topic, group, body, lease, accept=accept)
            standings, need = self.broker.access.standings, match_of(request.scope).need
            try:
                with standings.of(credential_of(request.scope), need) as standing:
                    over = None if standing is None else standing.over
                    claimed = await until_gone(request.receive, work, over=over)
                    return PageResponse(claimed.parts, {}, claimed.media_type, lease)
            except ClientGone:
                lease.close()
                return Response(status_code=NOBODY_READS)

    async def seen_by(self, principal: Principal, topic: str) -> Sequence[tuple[str, str]]:
        """The groups of a topic that a principal may observe, each with its mode, in order."""
        with self.broker.read_budget.lease() as lease:
            found = await self.service.list(topic, lease)
            lease.close()
        return [each for each in found if principal.grants.allow("observe", topic, each[0])]


def _add_claims(router: Router, groups: _Groups) -> None:
    """Add the endpoints by which consumers get messages and decide about them."""

    @router.serves(CLAIM, body=ClaimBody, body_required=False)
    async def claim(request: Request, topic: str, group: str) -> Response:
        """Claim messages: no other consumer gets them while the lease runs. Creates a group that does not exist."""
        body = await parse_body(request, ClaimBody, empty=b"{}")
        async with waiting(request.scope, body.wait, groups.broker.clock):
            return await groups.claim(request, topic, group, body)

    def add(route: Route, operation: Operation[bytes, Document], model: type[JsonBody], what: str) -> None:
        @router.serves(route, body=model, name=operation.name, description=what)
        async def decide(request: Request, topic: str, group: str) -> Response:
            return await groups.decide(request, operation, topic, group)

    add(ACK, operations.ACK, AckBody, "Ack messages: they are done. A repeated ack is answered as the first time.")
    add(RELEASE, operations.RELEASE, ReleaseBody, "Give messages back, after a delay, or as dead letters.")
    add(EXTEND, operations.EXTEND, ExtensionBody, "Have leases run longer.")


def _add_management(router: Router, groups: _Groups) -> None:
    """Add the endpoints that describe and change groups."""

    @router.serves(PUT_GROUP)
    async def put_group(request: Request, topic: str, group: str) -> Response:
        """Create a group (201), or change its settings (200). `from` counts only when it is created."""
        settings, principal = await parse_object(request, SETTINGS_EXAMPLE, empty=b"{}"), principal_of(request)
        named = dead_letter_topic(settings)
        if named not in (None, topic, default_dead_letter_topic(topic)):
            # The brokers would publish there for any client that may manage this group.
            principal.require("publish", named)
        return await groups.described(principal, operations.PUT, topic, group, settings)

    @router.serves(GET_GROUP)
    async def get_group(request: Request, topic: str, group: str) -> Response:
        """Describe a group: its settings, its lag, and how many messages are in flight."""
        return await groups.described(principal_of(request), operations.DESCRIBE, topic, group, None)

    @router.serves(DELETE_GROUP)
    async def delete_group(topic: str, group: str) -> Response:
        """Delete a group. Its messages stay in their topic."""
        return await groups.delete(topic, group)

    @router.serves(RESET, body=ResetBody)
    async def reset(request: Request, topic: str, group: str) -> Response:
        """Have a group begin anew somewhere. What was claimed before cannot be acked any more."""
        body = await parse_body(request, ResetBody, empty=b"{}")
        return await groups.described(principal_of(request), operations.RESET, topic, group, body)

    @router.serves(REDRIVE, body=RedriveBody, body_required=False)
    async def redrive(request: Request, topic: str, group: str) -> Response:
        """Publish dead letters to their topic again, once each, or discard them."""
        principal = principal_of(request)
        principal.require("publish", topic)
        await check_members(groups.broker, principal, topic, "publish")
        body = await parse_body(request, RedriveBody, empty=b"{}")
        return await groups.answered(operations.REDRIVE, topic, group, body)


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
        return await groups.answered(operations.LOOK, topic, group, checked_body(given, MessagesBody))
