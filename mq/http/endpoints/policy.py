"""The policy: additional grants, revocations and quotas."""

import asyncio
import re
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import Response

from mq.base.errors import Conflict, PolicyChanged, PreconditionMissing
from mq.broker import Broker
from mq.http.json_body import parse_object
from mq.http.reply import json_response
from mq.http.routers import new_router
from mq.http.routes import GET_POLICY, PUT_POLICY
from mq.security.policy.document import EXAMPLE, Policy, parse_policy
from mq.security.policy.policy_object import tag_of

if TYPE_CHECKING:
    from mq.security.policy.in_force import PolicyInForce

_TAG = re.compile(r'"[!#-~]{1,200}"')
_MOST_BODY_BYTES = 2 * 1024 * 1024
_CONDITION = {
    "parameters": [
        {
            "name": "If-Match",
            "in": "header",
            "required": True,
            "description": "The ETag of the policy that this one is to follow.",
            "schema": {"type": "string"},
        }
    ],
}


def policy_router(broker: Broker) -> APIRouter:
    """The endpoints of the policy."""
    router = new_router("cluster")

    @router.serves(GET_POLICY)
    async def get_policy() -> Response:
        """Show the policy in force, the newest that the store has. Its ETag is what a change of it has to name."""
        in_force = _policy_of(broker)
        await in_force.refresh()
        return _answer(in_force.policy)

    @router.serves(PUT_POLICY, openapi_extra=_CONDITION)
    async def put_policy(request: Request) -> Response:
        """Put a policy in the place of the one that `If-Match` names; what it does not say is in force no more.

        Another one there is answered 412. The answer comes once it is in force at this broker; the others have it
        within a second. Repeated, it finds that it has been done. Revocations of tokens that have ended are left out.
        """
        in_force, expected = _policy_of(broker), _expected(request)
        document = await parse_object(request, EXAMPLE, most_bytes=_MOST_BODY_BYTES)
        version = document.pop("version", None)
        if version is not None and not expected.startswith(f'"{version}-'):
            raise PolicyChanged(f"the body is of version {version!r:.40}, and If-Match names {expected:.80}")
        # The largest policy takes as long as some hundred requests.
        given = await asyncio.to_thread(parse_policy, document)
        return _answer(await in_force.replace(given, expected))

    return router


def _policy_of(broker: Broker) -> "PolicyInForce":
    """The policy in force. Raises `Conflict` if no principal has a name."""
    if broker.access.policy is None:
        raise Conflict("no-policy", "this broker asks nobody for tokens, so it has no policy: see --authorizer")
    return broker.access.policy


def _expected(request: Request) -> str:
    """The ETag that the request names. Raises `PreconditionMissing`."""
    given = request.headers.get("if-match", "").strip()
    if not given:
        raise PreconditionMissing("name the policy that this one is to follow: its ETag in the header If-Match")
    if not _TAG.fullmatch(given):
        raise PreconditionMissing(
            f"the header If-Match is {given!r:.80}, and no ETag of a policy: it has to be the text in double quotes "
            "that reading the policy gives in the header ETag"
        )
    return given


def _answer(policy: Policy) -> Response:
    response = json_response({"version": policy.version, **policy.sections()})
    response.headers["etag"] = tag_of(policy)
    return response
