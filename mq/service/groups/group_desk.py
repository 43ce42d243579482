"""Serves requests about consumer groups at the broker that coordinates them."""

from collections.abc import Mapping
from typing import Any, TypeVar

from mq.broker import Broker
from mq.groups.segment_groups import SegmentGroups
from mq.limits.read_budget import ReadLease
from mq.service.groups.handlers import Handler
from mq.service.groups.long_bodies import decision_bytes
from mq.service.groups.management_desk import ManagementDesk
from mq.service.groups.message_desk import MessageDesk
from mq.service.groups.operations import CLAIM, Asked, Operation
from mq.service.groups.queue_desk import QueueDesk
from mq.service.groups.stream_desk import StreamDesk

Q = TypeVar("Q")
A = TypeVar("A")


class GroupDesk:
    """Does the work for groups that this broker coordinates. All methods belong to the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._handlers: Mapping[Operation[Any, Any], Handler] = {
            **ManagementDesk(broker).handlers,
            **MessageDesk(broker).handlers,
            **QueueDesk(broker).handlers,
            **StreamDesk(broker).handlers,
        }

    async def serve(self, groups: SegmentGroups, operation: Operation[Q, A], asked: Asked[Q], lease: ReadLease) -> A:
        """Serve a request. The `lease` holds the memory of the answer. Raises what `problem_of` knows."""
        turns = self._broker.turns
        # Readers of pages wait for each other, and not for consumers.
        lease.turns = turns.streams if operation.wait_of(asked.body) else getattr(turns, operation.turn)
        handler = self._handlers[operation]
        if operation is CLAIM:
            claimed: A = await handler(groups, asked, lease)  # it has a time limit of its own
            return claimed
        work = self._bounded(handler, groups, asked, lease) if operation.is_bounded else handler(groups, asked, lease)
        # A decision is stored when the store is back. A client that asks again then gets the same answer.
        answer: A = await self._broker.patience.wait(work, f"the request {operation.name!r} to group {asked.group!r}")
        return answer

    async def _bounded(self, handler: Handler, groups: SegmentGroups, asked: Asked[Any], lease: ReadLease) -> Any:
        async with self._broker.decisions.held(decision_bytes(asked.body)):
            return await handler(groups, asked, lease)
