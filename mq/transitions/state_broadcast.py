"""Sends a topic's new state to the other brokers."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from filer import request_ids
from filer.errors import BraidError
from filer.topic.topic_state import TopicState
from leader.membership.coordinator import Coordinator
from mq.peers.peers import MOST_RECORD_BYTES, Peers

MOST_BROADCAST_BYTES = 8 * 1024 * 1024
"""The record goes out with the message up to so many bytes in all. The owners of new segments come first."""


class StateBroadcast:
    """Sends new states of topics to the other brokers, in background tasks. `broker` is the id of this one."""

    def __init__(self, *, broker: str, coordinator: Coordinator, peers: Peers) -> None:
        self._broker, self._coordinator, self._peers = broker, coordinator, peers
        self._tasks: set[asyncio.Task[None]] = set()

    def broadcast(self, state: TopicState) -> None:
        """Send a newer record to the other brokers, so that the owners of its new segments begin at once.

        The record goes with the message unless it is too large: publishers wait until the owners have it.
        """
        if self._coordinator.session_timeout_seconds <= 0:
            return  # there are no other brokers
        self._coordinator.announce(state.topic)
        record = state.to_json()
        newest_us = max((segment.opened_us for segment in state.open_segments), default=0)
        owners = {segment.owner for segment in state.open_segments if segment.opened_us == newest_us}
        others = [each for each in self._coordinator.brokers() if each.id != self._broker]
        room_bytes = MOST_BROADCAST_BYTES if len(record) <= MOST_RECORD_BYTES else 0
        for broker in sorted(others, key=lambda each: each.id not in owners):
            room_bytes -= len(record)
            self.start(self._send(self._peers.url_of(broker), state, record if room_bytes >= 0 else b""))

    def start(self, sending: Coroutine[Any, Any, None]) -> None:
        """Send to other brokers in a background task, which `close` cancels."""
        # It belongs to the request that has changed the state, even if that is answered before.
        task = asyncio.create_task(_within(request_ids.current(), sending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, url: str | None, state: TopicState, record: bytes) -> None:
        # This is a hint: a broker that misses it reads the record when it is asked for the segment.
        with contextlib.suppress(BraidError):
            await self._peers.refresh(url, state.topic, state.version, record)

    async def close(self) -> None:
        """Stop sending."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _within(request_id: str | None, sending: Coroutine[Any, Any, None]) -> None:
    with request_ids.within(request_id):
        await sending
