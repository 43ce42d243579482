"""Reports refused connections to the leader, so that it need not poll all brokers (docs/design.md §8)."""

import asyncio
from collections.abc import Callable

from filer.clock import Clock
from filer.errors import BraidError
from filer.event_log import EventLog
from leader.membership.coordinator import Coordinator
from mq.base.errors import PeerFailed
from mq.peers.peers import Peers

PAUSE_SECONDS = 0.5
"""The leader gets a report about a broker this often at most, however many requests are refused."""
OLDER_LEADER_SECONDS = 30.0
"""A leader that does not know the call is an older one: it gets no reports for so long."""
MOST_AT_ONCE = 16

_log = EventLog(__name__)


class RefusalTeller:
    """Call `refused` with the URL at which a connection was refused, from the event loop.

    `told` gets a broker's id if this broker, with the id `broker`, leads.
    """

    def __init__(
        self, peers: Peers, coordinator: Coordinator, clock: Clock, told: Callable[[str], object], *, broker: str
    ) -> None:
        self._peers, self._coordinator, self._clock, self._told = peers, coordinator, clock, told
        self._broker = broker
        self._next_seconds: dict[str, float] = {}
        self._quiet_until_seconds = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def refused(self, url: str) -> None:
        """Note that a broker's address has refused a connection. The leader knows of brokers that are not announced."""
        now_seconds = self._clock.monotonic_seconds()
        self._next_seconds = {broker: due for broker, due in self._next_seconds.items() if due > now_seconds}
        leader = self._coordinator.leader()
        for info in self._coordinator.brokers():
            if (self._peers.url_of(info) or "").rstrip("/") != url.rstrip("/") or info.id in self._next_seconds:
                continue
            if leader == self._broker:
                self._told(info.id)
            elif leader != info.id and now_seconds >= self._quiet_until_seconds and len(self._tasks) < MOST_AT_ONCE:
                self._start(leader, info.id)
            self._next_seconds[info.id] = now_seconds + PAUSE_SECONDS

    def _start(self, leader: str | None, broker: str) -> None:
        url = next((self._peers.url_of(info) for info in self._coordinator.brokers() if info.id == leader), None)
        task = asyncio.create_task(self._tell(url, broker), name=f"tell that {broker} refuses")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, url: str | None, broker: str) -> None:
        try:
            await self._peers.tell_refused(url, broker)
        except PeerFailed:
            self._quiet_until_seconds = self._clock.monotonic_seconds() + OLDER_LEADER_SECONDS
        except BraidError as error:
            # The next refusal is reported again, and in any case the broker's session ends.
            _log.debug("refusal_not_told", broker=broker, error=error)

    async def close(self) -> None:
        """Stop reporting."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
