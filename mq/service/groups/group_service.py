"""The service of consumer groups: finds the coordinator of a group, here or elsewhere, and lets it serve a request."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import orjson

from filer.backoff import backoff_seconds
from filer.errors import SegmentMoved, StoreError
from filer.keys import GROUPS_TOPIC
from mq.base.errors import Draining, PeerProblem, PeerSilent, PeerUnreachable, Repeatable, repeatable
from mq.broker import Broker
from mq.forms.formats import JSON
from mq.groups.groups import Elsewhere
from mq.groups.segment_groups import SegmentGroups
from mq.limits.read_budget import ReadLease
from mq.peers.group_call import GroupRequest
from mq.security.principal import ACTING
from mq.service.groups.answers import Names
from mq.service.groups.group_desk import GroupDesk
from mq.service.groups.operations import LIST, Asked, Operation

RETRY_SECONDS = 10.0
"""As long as a failover mostly takes. A client that asks again later begins anew."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.05, 1.0
Q = TypeVar("Q")
A = TypeVar("A")
_T = TypeVar("_T")


class GroupService:
    """Serves requests about groups, wherever they are coordinated. Clients' rights are checked before.

    If a broker has stopped being the coordinator, the request is sent again, to the next one. Every request may be
    repeated: an ack that was stored gets the same answer as the first time.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker, self._desk = broker, GroupDesk(broker)

    async def ask(
        self, operation: Operation[Q, A], topic: str, group: str, body: Q, lease: ReadLease, *, accept: str = JSON
    ) -> A:
        """Serve a request here, or at another broker. Raises `PeerProblem`, and what `problem_of` knows."""
        principal = ACTING.get() if operation.makes_group else ""
        asked = Asked(topic, group, body, accept, principal)

        async def once() -> A:
            found = await self._broker.groups.coordinator(topic, group, make=operation.makes_group)
            return await self._serve_at(found, operation, asked, lease)

        return await self._until_found(once)

    async def list(self, topic: str, lease: ReadLease) -> Names:
        """The names of all groups of a topic, sorted, each with its mode. Raises as `ask`."""
        asked = Asked(topic, "", None)

        async def once() -> Names:
            coordinators = await self._broker.groups.coordinators(topic)
            try:
                named = await asyncio.gather(*(self._serve_at(each, LIST, asked, lease) for each in coordinators))
            except PeerProblem as error:
                # That broker will know better, or another one.
                raise SegmentMoved(f"a broker could not list its groups: {error}") from error
            return sorted(each for names in named for each in names)

        return await self._until_found(once)

    async def _serve_at(
        self, found: SegmentGroups | Elsewhere, operation: Operation[Q, A], asked: Asked[Q], lease: ReadLease
    ) -> A:
        if isinstance(found, Elsewhere):
            return await self._forward(found, operation, asked)
        return await self._desk.serve(found, operation, asked, lease)

    async def _until_found(self, once: Callable[[], Awaitable[_T]]) -> _T:
        clock, broker = self._broker.clock, self._broker
        until_seconds = clock.monotonic_seconds() + RETRY_SECONDS
        attempt = 0
        while True:
            try:
                return await once()
            except (SegmentMoved, PeerUnreachable, PeerSilent) as error:
                if broker.draining.is_set():
                    raise Draining(f"this broker is shutting down: {error}") from error
                if clock.monotonic_seconds() >= until_seconds:
                    raise Repeatable(error) from error
            except StoreError as error:
                raise repeatable(error) from error
            attempt += 1
            await clock.sleep(
                backoff_seconds(attempt, first_seconds=FIRST_WAIT_SECONDS, longest_seconds=LONGEST_WAIT_SECONDS)
            )
            await broker.groups.look_again()

    async def _forward(self, found: Elsewhere, operation: Operation[Q, A], asked: Asked[Q]) -> A:
        text = operation.body.write(asked.body)
        request = GroupRequest(asked.topic, asked.group, operation.name, text, asked.accept, asked.principal)
        wait_seconds = operation.wait_of(asked.body)
        reply = await self._broker.peers.ask_group(
            found.url, GROUPS_TOPIC, found.segment, found.version, request, wait_seconds=wait_seconds
        )
        if reply.status >= 400:
            raise PeerProblem(orjson.loads(reply.body))
        return operation.reply.read(reply)
