"""Acks, releases, extensions and commits that come over a socket: the same as over HTTP, many at a time."""

from dataclasses import dataclass
from typing import Any

import orjson

from filer.errors import InvalidInput
from filer.keys import check_name
from mq.broker import Broker
from mq.forms.group_bodies import CommitBody
from mq.http.sockets.answers import Answers
from mq.http.sockets.like_requests import OPERATIONS
from mq.http.sockets.member_delivery import MemberDelivery
from mq.http.sockets.requests import COMMIT, LET_GO, Id, Request, text_of
from mq.http.sockets.subscriptions import Subscriptions
from mq.service.groups.answers import Document
from mq.service.groups.group_service import GroupService
from mq.service.groups.operations import Operation


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A request about a group of the socket's topic. It is text: parsed it would take forty times as much memory."""

    group: str
    operation: Operation[bytes, Document]
    text: bytes


class GroupRequests:
    """The group requests of one socket."""

    def __init__(
        self, broker: Broker, topic: str, service: GroupService, subscriptions: Subscriptions, answers: Answers
    ) -> None:
        self._broker, self._topic, self._service = broker, topic, service
        self._subscriptions, self._answers = subscriptions, answers

    def group_of(self, request: Request) -> str:
        """The group that a request is about. Raises `InvalidInput` and `NotFound`."""
        if request.kind == COMMIT:
            return self._member(request).group
        named = text_of(request, "group")
        if named is not None:
            return check_name(named, what="group")
        known = {each.group for each in self._subscriptions.of_groups()}
        if len(known) != 1:
            raise InvalidInput(f'{request.kind} names its group: {{"id": 1, "{request.kind}": …, "group": "billing"}}')
        found = known.pop()
        assert found is not None
        return found

    def asked_of(self, request: Request, group: str) -> GroupRequest:
        """The request to the group, as it is kept until it is answered. Raises `InvalidInput`."""
        body: Any = request.asked
        if request.kind == COMMIT and isinstance(body, dict):
            body = {"member_id": self._member(request).member_id, **body}
        if not isinstance(body, dict):
            example = CommitBody.EXAMPLE if request.kind == COMMIT else '{"messages": [{"claim": "…", "id": "0-17"}]}'
            raise InvalidInput(f"{request.kind} is an object such as {example}")
        try:
            return GroupRequest(group, OPERATIONS[request.kind], orjson.dumps(body))
        except TypeError as error:
            raise InvalidInput(f"{request.kind} is nested too deeply") from error

    async def serve(self, id_: Id | None, asked: GroupRequest) -> None:
        """Let the group serve the request, and answer it. Raises what `problem_of` knows."""
        with self._broker.read_budget.lease() as lease:
            answer = await self._service.ask(asked.operation, self._topic, asked.group, asked.text, lease)
            lease.close()
        self._answers.ok(id_, b"".join(answer.parts))

    def let_go(self, request: Request) -> None:
        """Let go of segments that a member is done with. Raises `InvalidInput` and `NotFound`."""
        assert request.kind == LET_GO
        self._member(request).let_go(request.asked)
        self._answers.ok(request.id, b"{}")

    def _member(self, request: Request) -> MemberDelivery:
        found = self._subscriptions.named(request.fields.get("subscription"))
        if not isinstance(found, MemberDelivery):
            raise InvalidInput(f"{request.kind}: subscription {found.id!r} is none to a stream group")
        return found
