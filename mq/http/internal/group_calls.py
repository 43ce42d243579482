"""Calls to the coordinator of a consumer group."""

from typing import Any

from starlette.types import Receive

from filer.errors import BraidError, SegmentMoved
from mq.base.errors import Draining, NotFound, repeatable
from mq.bodies.intake import Intake
from mq.broker import Broker
from mq.forms.group_bodies import BODY_BYTES
from mq.groups.segment_groups import SegmentGroups
from mq.http.problems import MEDIA_TYPE, problem_of
from mq.http.until_gone import until_gone
from mq.limits.read_budget import ReadLease
from mq.peers.calls import Call, ToGroups
from mq.peers.group_call import GroupReply, GroupRequest, unpack_group_call
from mq.peers.transport import PeerAnswer
from mq.service.groups.group_desk import GroupDesk
from mq.service.groups.operations import OPERATIONS, Asked, Operation

_HEAD_BYTES = 4096


class GroupCalls:
    """The work of a group's coordinator for other brokers."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._desk = broker, GroupDesk(broker)

    async def ask(self, call: Call[ToGroups, GroupReply], asked: ToGroups, receive: Receive) -> PeerAnswer:
        """Serve a client's request that came to another broker.

        Its problems are answers too. Raises `SegmentMoved` if this broker does not coordinate the group: the other one
        then looks for the coordinator.
        """
        broker = self._broker
        with Intake(broker.front_store, BODY_BYTES + _HEAD_BYTES, None, wait=False) as intake:
            request = unpack_group_call(await intake.read(receive, None))
        groups = await broker.groups.own(asked.segment, asked.version)
        with broker.read_budget.lease() as lease:
            try:
                reply = await until_gone(receive, self._serve(groups, request, lease))
            except (SegmentMoved, Draining):
                raise
            except BraidError as error:
                problem = problem_of(repeatable(error))
                reply = GroupReply(problem.status, MEDIA_TYPE, problem.body())
            lease.close()
        return call.pack(reply)

    async def _serve(self, groups: SegmentGroups, request: GroupRequest, lease: ReadLease) -> GroupReply:
        operation: Operation[Any, Any] | None = OPERATIONS.get(request.operation)
        if operation is None:
            raise NotFound("path", f"groups know no {request.operation!r}")
        body = await operation.body.read(request.body, lease, self._broker.decisions)
        asked = Asked(request.topic, request.group, body, request.accept, request.principal)
        return operation.reply.write(await self._desk.serve(groups, operation, asked, lease))
