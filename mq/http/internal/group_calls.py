"""Calls to the coordinator of a consumer group."""

from starlette.types import Receive

from filer.errors import BraidError, SegmentMoved
from mq.base.errors import Draining
from mq.bodies.intake import Intake
from mq.broker import Broker
from mq.forms.group_bodies import BODY_BYTES
from mq.http.consuming.group_desk import GroupDesk
from mq.http.problems import MEDIA_TYPE, problem_of, repeatable
from mq.http.until_gone import until_gone
from mq.peers.calls import Call, ToGroups
from mq.peers.group_call import GroupReply, unpack_group_call
from mq.peers.transport import PeerAnswer

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
                answer = await until_gone(receive, self._desk.serve(groups, request, lease))
                reply = GroupReply(answer.status, answer.media_type, b"".join(answer.parts))
            except (SegmentMoved, Draining):
                raise
            except BraidError as error:
                problem = problem_of(repeatable(error))
                reply = GroupReply(problem.status, MEDIA_TYPE, problem.body())
            lease.close()
        return call.pack(reply)
