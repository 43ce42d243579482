"""Finds the coordinator of a group, and lets it serve the request."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import orjson

from filer.backoff import backoff_seconds
from filer.errors import SegmentMoved, StoreError
from filer.keys import GROUPS_TOPIC
from mq.base.errors import Draining, PeerSilent, PeerUnreachable, Repeatable
from mq.broker import Broker
from mq.groups.groups import Elsewhere
from mq.groups.segment_groups import SegmentGroups
from mq.http.consuming.group_answer import GroupAnswer
from mq.http.consuming.group_desk import GroupDesk
from mq.http.problems import repeatable
from mq.limits.read_budget import ReadLease
from mq.peers.group_call import GroupRequest
from mq.security.principal import ACTING

RETRY_SECONDS = 10.0
"""As long as a failover mostly takes. A client that asks again later begins anew."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.05, 1.0
_T = TypeVar("_T")
_MAKING = frozenset(("put", "claims", "members"))


class GroupRouter:
    """Serves requests about groups, wherever they are coordinated.

    If a broker has stopped being the coordinator, the request is sent again, to the next one. Every request may be
    repeated: an ack that was stored gets the same answer as the first time.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker, self._desk = broker, GroupDesk(broker)

    async def serve(self, request: GroupRequest, lease: ReadLease, *, wait_seconds: float = 0.0) -> GroupAnswer:
        """Serve a request here, or at another broker. Raises what `problem_of` knows."""
        groups, make = self._broker.groups, request.operation in _MAKING
        if make:
            request = replace(request, principal=ACTING.get())

        async def once() -> GroupAnswer:
            found = await groups.coordinator(request.topic, request.group, make=make)
            return await self._serve_at(found, request, lease, wait_seconds)

        return await self._until_found(once)

    async def list(self, topic: str, lease: ReadLease) -> list[tuple[str, str]]:
        """The names of all groups of a topic, sorted, each with its mode. Raises as `serve`."""
        request = GroupRequest(topic, "", "list", b"")

        async def once() -> list[tuple[str, str]]:
            coordinators = await self._broker.groups.coordinators(topic)
            answers = await asyncio.gather(*(self._serve_at(each, request, lease, 0.0) for each in coordinators))
            return sorted(each for answer in answers for each in _listed(answer))

        return await self._until_found(once)

    async def _serve_at(
        self, found: SegmentGroups | Elsewhere, request: GroupRequest, lease: ReadLease, wait_seconds: float
    ) -> GroupAnswer:
        if isinstance(found, Elsewhere):
            return await self._forward(found, request, wait_seconds)
        return await self._desk.serve(found, request, lease)

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

    async def _forward(self, found: Elsewhere, request: GroupRequest, wait_seconds: float) -> GroupAnswer:
        reply = await self._broker.peers.ask_group(
            found.url, GROUPS_TOPIC, found.segment, found.version, request, wait_seconds=wait_seconds
        )
        return GroupAnswer(reply.status, reply.media_type, [reply.body] if reply.body else [])


def _listed(answer: GroupAnswer) -> list[tuple[str, str]]:
    """The groups in an answer. Raises `SegmentMoved` for a problem: that broker will know better, or another one."""
    document = orjson.loads(b"".join(answer.parts))
    if answer.status != 200:
        raise SegmentMoved(f"a broker could not list its groups: {document.get('detail', answer.status)}")
    return [(name, mode) for name, mode in document["groups"]]
