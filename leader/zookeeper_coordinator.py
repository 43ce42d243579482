"""The coordinator of a cluster: membership, leadership and news of topics through ZooKeeper (DESIGN.md §8).

Rounds with ZooKeeper follow each other, on a thread of their own, every sixth of the session time-out and whenever
a watch says that something changed. A round that ended well proves that the session lived when it began. From then
on this broker counts on it for two thirds of the time-out: kazoo may say "connected" long after the session is over
(a silent server, a stopped process), and need not be asked.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Protocol

from filer.clock import Clock, comes_within
from leader.coordinator import BrokerInfo, CoordinationFailed
from leader.zookeeper_addresses import why_unreachable
from leader.zookeeper_round import Errand, Seen
from leader.zookeeper_session import ZooKeeperSession

JOIN_SECONDS = 5.0
LEAVE_SECONDS = 3.0
CERTAIN_PART = 2 / 3
_INTERVAL_PART = 1 / 6
_LONGEST_INTERVAL_SECONDS = 5.0
_RETRY_SECONDS = 1.0
# Changes come in bursts: one round for those of so long.
_BURST_SECONDS = 0.02
_TOPICS_A_ROUND = 100
_ANNOUNCEMENTS_KEPT = 10_000

_log = logging.getLogger(__name__)


class Session(Protocol):
    """What a round is done with (`ZooKeeperSession`)."""

    def round(self, errand: Errand) -> Seen:
        """Do it; raises `CoordinationFailed`."""
        ...

    def close(self, timeout_seconds: float) -> None:
        """End the session."""
        ...


class ZooKeeperCoordinator:
    """One broker's view of its cluster. `hosts` is `host:port,host:port`. Belongs to one event loop."""

    def __init__(
        self,
        hosts: str,
        cluster: str,
        clock: Clock,
        *,
        session_timeout_seconds: float,
        session: Session | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._hosts, self._clock = hosts, clock
        self._timeout_seconds = session_timeout_seconds
        self._session: Session = session or ZooKeeperSession(
            hosts,
            cluster,
            clock,
            session_timeout_seconds=session_timeout_seconds,
            on_change=lambda: self._from_thread(self._wake.set),
            on_topic=lambda topic: self._from_thread(self.look_again, topic),
        )
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="braidmq-zookeeper")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._broker: BrokerInfo | None = None
        self._brokers: tuple[BrokerInfo, ...] = ()
        self._by_age: tuple[BrokerInfo, ...] = ()
        self._leader: str | None = None
        self._leads = self._resigned = False
        self._certain_until_seconds = self._seen_seconds = -math.inf
        self._session_id = self._touches = 0
        self._failure: CoordinationFailed | None = None
        self._wake, self._proven, self._joined = asyncio.Event(), asyncio.Event(), asyncio.Event()
        # Keys in order, without values: the newest last, each once.
        self._announcements: dict[str, None] = {}
        self._unseen: dict[str, None] = {}
        self._counters: dict[str, int | None] = {}
        self._on_news: list[Callable[[], None]] = []
        self._on_topic: list[Callable[[str], None]] = []
        self._told: object = None

    # -- what is known -------------------------------------------------------------------------------------

    @property
    def session_timeout_seconds(self) -> float:
        """As ZooKeeper granted it; as it was asked for until then."""
        return self._timeout_seconds

    def brokers(self) -> Sequence[BrokerInfo]:
        """The live brokers by id, as the last round saw them."""
        return self._brokers

    def by_age(self) -> Sequence[BrokerInfo]:
        """The live brokers, the one whose node is oldest first, as the last round saw them."""
        return self._by_age

    @property
    def seen_seconds(self) -> float:
        """When the last round that ended well began."""
        return self._seen_seconds

    def leader(self) -> str | None:
        """Id of the leader, as the last round saw it."""
        return self._leader

    def leads(self) -> bool:
        """Whether this broker leads. It stands down by itself when it cannot be certain of its session any more."""
        return self._leads and self.in_touch()

    def in_touch(self) -> bool:
        """Whether its session certainly lives, by a clock that goes on while the process is stopped."""
        return self._clock.monotonic_seconds() < self._certain_until_seconds

    @property
    def touches(self) -> int:
        """How many times it has come in touch: anew after every moment of doubt, and by every session."""
        return self._touches

    def on_news(self, call: Callable[[], None]) -> None:
        """Have `call` called whenever brokers, the leader or `in_touch` have changed."""
        self._on_news.append(call)

    def on_topic(self, call: Callable[[str], None]) -> None:
        """Have `call` called with a followed topic that was announced, and once when it has come under watch."""
        self._on_topic.append(call)

    def follow(self, topic: str) -> None:
        """Watch the topic's counter from the next round on; what was announced before that is told as well."""
        if topic not in self._counters:
            self._counters[topic] = None
            self.look_again(topic)

    def announce(self, topic: str) -> None:
        """Count the topic up in the next round; of too many that wait, the oldest are forgotten."""
        self._announcements.pop(topic, None)
        self._announcements[topic] = None
        while len(self._announcements) > _ANNOUNCEMENTS_KEPT:
            del self._announcements[next(iter(self._announcements))]
        self._wake.set()

    def look_again(self, topic: str | None) -> None:
        """Read the counter of a followed topic, or (None) of all, and watch it anew in the next rounds."""
        wanted: Iterable[str] = self._counters if topic is None else (topic,)
        self._unseen.update((each, None) for each in wanted if each in self._counters)
        self._wake.set()

    # -- life ----------------------------------------------------------------------------------------------

    async def join(self, broker: BrokerInfo) -> None:
        """Announce this broker, and keep it announced; again with the same id to change what is announced, which
        the next round does.

        Raises `CoordinationFailed` where ZooKeeper gives no session within seconds at the first call.
        """
        if self._broker is not None and self._broker.id != broker.id:
            raise ValueError(f"{self._broker.id} has joined: {broker.id} is another broker")
        self._broker = broker
        self._wake.set()
        if self._tasks:
            return
        self._loop = asyncio.get_running_loop()
        self._tasks = [
            asyncio.create_task(self._run(), name="zookeeper rounds"),
            asyncio.create_task(self._tell_when_out_of_touch(), name="zookeeper deadline"),
        ]
        if not await comes_within(self._clock, self._joined, JOIN_SECONDS):
            failure = self._failure
            await self.leave()
            raise CoordinationFailed(await self._explain(failure))

    def resign(self) -> None:
        """Lead no more: here at once, so before anybody else does, and by the next round there."""
        self._resigned, self._leads = True, False
        self._wake.set()
        self._tell_news()

    async def leave(self) -> None:
        """Withdraw this broker and end its session. Returns within seconds, whatever ZooKeeper does.

        Leadership ends here before it ends there: nobody else leads before this broker has stopped to.
        """
        self._certain_until_seconds = -math.inf
        self._brokers, self._by_age, self._leader, self._leads = (), (), None, False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._loop is not None:
            self._loop = None
            closing = asyncio.get_running_loop().run_in_executor(self._executor, self._session.close, LEAVE_SECONDS)
            with contextlib.suppress(TimeoutError):
                # A round that is still under way there comes first, and takes some seconds at most.
                await asyncio.wait_for(asyncio.shield(closing), LEAVE_SECONDS)
        self._executor.shutdown(wait=False)

    async def _explain(self, failure: CoordinationFailed | None) -> str:
        causes = await why_unreachable(self._hosts)
        last = f" (last: {failure})" if failure is not None and str(failure) != "not connected" else ""
        return f"no session with ZooKeeper within {JOIN_SECONDS:g} seconds: {causes}{last}"

    # -- rounds --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            began = self._clock.monotonic_seconds()
            self._wake.clear()
            succeeded = await self._round(began)
            pause = min(self._timeout_seconds * _INTERVAL_PART, _LONGEST_INTERVAL_SECONDS)
            due = began + (pause if succeeded else min(pause, _RETRY_SECONDS))
            if await comes_within(self._clock, self._wake, due - self._clock.monotonic_seconds()):
                await self._clock.sleep(_BURST_SECONDS)

    async def _round(self, began: float) -> bool:
        assert self._broker is not None and self._loop is not None
        announce, look = _take(self._announcements), _take(self._unseen)
        errand = Errand(self._broker, announce, look, may_lead=not self._resigned)
        try:
            seen = await self._loop.run_in_executor(self._executor, self._session.round, errand)
        except CoordinationFailed as failure:
            # Some may have been done already: counting up twice, or looking twice, does no harm.
            self._announcements = dict.fromkeys(announce) | self._announcements
            self._unseen = dict.fromkeys(look) | self._unseen
            self._note_failure(failure)
            return False
        self._take_in(seen, began)
        if self._announcements or self._unseen:
            self._wake.set()
        return True

    def _take_in(self, seen: Seen, began: float) -> None:
        if self._failure is not None and self._joined.is_set():
            _log.info("in touch with ZooKeeper at %s again", self._hosts)
        self._failure = None
        self._timeout_seconds = seen.session_timeout_seconds
        if not self.in_touch() or seen.session_id != self._session_id:
            self._touches, self._session_id = self._touches + 1, seen.session_id
        # Any answer of the round came from a session that lived after `began`, and that lives a whole time-out more.
        self._certain_until_seconds = began + self._timeout_seconds * CERTAIN_PART
        self._seen_seconds = began
        self._by_age, self._leader = seen.brokers, seen.leader
        self._leads = seen.leads and not self._resigned
        self._brokers = tuple(sorted(seen.brokers, key=lambda broker: broker.id))
        self._proven.set()
        self._joined.set()
        self._tell_news()
        for topic, counter in seen.counters.items():
            if self._counters[topic] != counter:
                self._counters[topic] = counter
                for call in self._on_topic:
                    _call_safely(partial(call, topic))

    def _note_failure(self, failure: CoordinationFailed) -> None:
        if self._failure is None and self._joined.is_set():
            _log.warning("no answer from ZooKeeper at %s: %s; going on with what is known", self._hosts, failure)
        self._failure = failure

    def _tell_news(self) -> None:
        state = (self._brokers, self._leader, self.leads(), self.in_touch())
        if state != self._told:
            self._told = state
            for call in self._on_news:
                _call_safely(call)

    async def _tell_when_out_of_touch(self) -> None:
        while True:
            await self._proven.wait()
            self._proven.clear()
            while (left := self._certain_until_seconds - self._clock.monotonic_seconds()) > 0:
                await self._clock.sleep(left)
            self._tell_news()

    def _from_thread(self, call: Callable[..., None], *args: str | None) -> None:
        loop = self._loop
        if loop is not None:
            # A loop that has ended meanwhile has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(call, *args)


def _take(waiting: dict[str, None]) -> list[str]:
    """The oldest of those that wait, as many as fit into a round; they do not wait any more."""
    taken = list(waiting)[:_TOPICS_A_ROUND]
    for each in taken:
        del waiting[each]
    return taken


def _call_safely(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        # Rounds must go on: without them this broker would be counted as gone.
        _log.exception("a listener for news of the cluster failed")
