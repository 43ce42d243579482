"""The loop that does rounds with ZooKeeper, on a thread of their own, one after the other.

A round is done every sixth of the session time-out, and whenever a watch reports a change.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Protocol

from filer.clock import Clock, comes_within
from filer.event_log import EventLog
from leader.membership.cluster_view import ClusterView, Listeners
from leader.membership.coordinator import NO_SESSION, BrokerInfo, CoordinationFailed, NotAuthorized
from leader.membership.topic_announcements import TopicAnnouncements
from leader.membership.zookeeper_access import ZooKeeperTls
from leader.membership.zookeeper_addresses import why_unreachable
from leader.membership.zookeeper_round import Errand, RoundResult

JOIN_SECONDS = 5.0
LEAVE_SECONDS = 3.0
_INTERVAL_SHARE = 1 / 6
_LONGEST_INTERVAL_SECONDS = 5.0
_RETRY_SECONDS = 1.0
_LOOK_PAUSE_SECONDS = 0.1
# Changes come in bursts: one round serves all changes within this time.
_BURST_SECONDS = 0.02

_log = EventLog(__name__)


class Session(Protocol):
    """A session with ZooKeeper (`ZooKeeperSession`)."""

    def round(self, errand: Errand) -> RoundResult:
        """Do a round; raises `CoordinationFailed`."""
        ...

    def close(self, timeout_seconds: float) -> None:
        """End the session."""
        ...


class ZooKeeperRounds:
    """Keeps this broker announced, and `view` and `topics` up to date. Belongs to one event loop."""

    def __init__(
        self,
        hosts: str,
        clock: Clock,
        session: Session,
        executor: Executor,
        *,
        view: ClusterView,
        topics: TopicAnnouncements,
        listeners: Listeners,
        tls: ZooKeeperTls | None = None,
    ) -> None:
        self._tls = tls
        self._hosts, self._clock, self._session, self._executor = hosts, clock, session, executor
        self._view, self._topics, self._listeners = view, topics, listeners
        self._broker: BrokerInfo | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: CoordinationFailed | None = None
        self._has_looked = False
        self._wake, self._proven, self._joined = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def wake(self) -> None:
        """Do a round soon."""
        self._wake.set()

    def call_from_thread(self, call: Callable[..., None], *args: str | None) -> None:
        """Call `call` on the event loop; from any thread."""
        if (loop := self._loop) is not None:
            # If the event loop was closed meanwhile, nothing is left to notify.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(call, *args)

    async def look(self) -> Sequence[BrokerInfo]:
        """As `Coordinator.look`."""
        loop, failure = asyncio.get_running_loop(), None
        self._has_looked = True
        deadline_seconds = self._clock.monotonic_seconds() + JOIN_SECONDS
        while self._clock.monotonic_seconds() < deadline_seconds:
            try:
                return (await loop.run_in_executor(self._executor, self._session.round, Errand(None))).brokers
            except NotAuthorized:
                raise
            except CoordinationFailed as error:
                failure = error
            await self._clock.sleep(_LOOK_PAUSE_SECONDS)
        raise CoordinationFailed(await self._explain(failure))

    async def join(self, broker: BrokerInfo) -> None:
        """As `Coordinator.join`."""
        if self._broker is not None and self._broker.id != broker.id:
            raise ValueError(f"{self._broker.id} has joined: {broker.id} is another broker")
        self._broker = broker
        self._wake.set()
        if self._tasks:
            return
        self._loop = asyncio.get_running_loop()
        self._tasks = [
            asyncio.create_task(self._run(), name="zookeeper rounds"),
            asyncio.create_task(self._notify_when_out_of_touch(), name="zookeeper deadline"),
        ]
        is_told = await comes_within(self._clock, self._joined, JOIN_SECONDS)
        if not is_told or isinstance(self._failure, NotAuthorized):
            failure = self._failure
            await self.leave()
            raise CoordinationFailed(await self._explain(failure))

    async def leave(self) -> None:
        """As `Coordinator.leave`: it returns within seconds, whatever ZooKeeper does.

        Leadership ends here before it ends in ZooKeeper: no other broker leads before this one has stopped leading.
        """
        self._view.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._loop is not None or self._has_looked:
            self._loop, self._has_looked = None, False
            closing = asyncio.get_running_loop().run_in_executor(self._executor, self._session.close, LEAVE_SECONDS)
            with contextlib.suppress(TimeoutError):
                # A round that is still under way on that thread comes first, and takes some seconds at most.
                await asyncio.wait_for(asyncio.shield(closing), LEAVE_SECONDS)
        self._executor.shutdown(wait=False)

    async def _explain(self, failure: CoordinationFailed | None) -> str:
        if isinstance(failure, NotAuthorized):
            return str(failure)
        causes = await why_unreachable(self._hosts, self._tls)
        last = f" (last: {failure})" if failure is not None and str(failure) != "not connected" else ""
        return f"{NO_SESSION} within {JOIN_SECONDS:g} seconds: {causes}{last}"

    async def _run(self) -> None:
        while True:
            began_seconds = self._clock.monotonic_seconds()
            self._wake.clear()
            succeeded = await self._round(began_seconds)
            pause_seconds = min(self._view.session_timeout_seconds * _INTERVAL_SHARE, _LONGEST_INTERVAL_SECONDS)
            due_seconds = began_seconds + (pause_seconds if succeeded else min(pause_seconds, _RETRY_SECONDS))
            if await comes_within(self._clock, self._wake, due_seconds - self._clock.monotonic_seconds()):
                await self._clock.sleep(_BURST_SECONDS)

    async def _round(self, began_seconds: float) -> bool:
        assert self._broker is not None and self._loop is not None
        announce, read = self._topics.take()
        errand = Errand(self._broker, announce, read, may_lead=not self._view.resigned)
        try:
            result = await self._loop.run_in_executor(self._executor, self._session.round, errand)
        except CoordinationFailed as failure:
            self._topics.put_back(announce, read)
            if self._failure is None and self._joined.is_set():
                _log.warning("zookeeper_lost", hosts=self._hosts, error=failure)
            self._failure = failure
            if isinstance(failure, NotAuthorized):
                # Another round would get the same answer, so callers that wait for the first round get the error at
                # once.
                self._joined.set()
            return False
        if self._failure is not None and self._joined.is_set():
            _log.info("zookeeper_recovered", hosts=self._hosts)
        self._failure = None
        self._apply(result, began_seconds)
        if self._topics.are_waiting or result.is_unfinished:
            self._wake.set()
        return True

    def _apply(self, result: RoundResult, began_seconds: float) -> None:
        self._view.apply(result, began_seconds=began_seconds)
        self._proven.set()
        self._joined.set()
        self._listeners.view_changed()
        for topic in self._topics.apply(result.counters):
            self._listeners.topic_changed(topic)

    async def _notify_when_out_of_touch(self) -> None:
        while True:
            await self._proven.wait()
            self._proven.clear()
            while (left_seconds := self._view.certain_until_seconds - self._clock.monotonic_seconds()) > 0:
                await self._clock.sleep(left_seconds)
            self._listeners.view_changed()
