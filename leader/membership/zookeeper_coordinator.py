"""The coordinator of a cluster: membership, leadership and changes of topics through ZooKeeper (docs/design.md §8).

A successful round proves that the session lived when the round began. From then on this broker relies on the session
for two thirds of its time-out. It does not ask kazoo: that may say "connected" long after the session is over, because
a server is silent or the process was stopped.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from filer.clock import Clock
from leader.membership.cluster_view import ClusterView, Listeners
from leader.membership.coordinator import BrokerInfo
from leader.membership.topic_announcements import TopicAnnouncements
from leader.membership.zookeeper_access import ZooKeeperAccess
from leader.membership.zookeeper_rounds import Session, ZooKeeperRounds
from leader.membership.zookeeper_session import ZooKeeperSession


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
        access: ZooKeeperAccess | None = None,
    ) -> None:
        access = access or ZooKeeperAccess()
        self._view = ClusterView(clock, session_timeout_seconds=session_timeout_seconds)
        self._topics = TopicAnnouncements()
        self._listeners = Listeners(self._view)
        self._session: Session = session or ZooKeeperSession(
            hosts,
            cluster,
            clock,
            session_timeout_seconds=session_timeout_seconds,
            on_change=lambda: self._rounds.call_from_thread(self._rounds.wake),
            on_topic=lambda topic: self._rounds.call_from_thread(self.read_again, topic),
            access=access,
        )
        self._rounds = ZooKeeperRounds(
            hosts,
            clock,
            self._session,
            executor or ThreadPoolExecutor(1, thread_name_prefix="braidmq-zookeeper"),
            view=self._view,
            topics=self._topics,
            listeners=self._listeners,
            tls=access.tls,
        )

    # -- what is known -------------------------------------------------------------------------------------

    @property
    def session_timeout_seconds(self) -> float:
        """The time-out that ZooKeeper granted; until then, the one that was asked for."""
        return self._view.session_timeout_seconds

    def brokers(self) -> Sequence[BrokerInfo]:
        """The live brokers by id, as the last round saw them."""
        return self._view.brokers

    def by_age(self) -> Sequence[BrokerInfo]:
        """The live brokers, the one with the oldest node first, as the last round saw them."""
        return self._view.by_age

    @property
    def seen_seconds(self) -> float:
        """When the last successful round began."""
        return self._view.seen_seconds

    def leader(self) -> str | None:
        """Id of the leader, as the last round saw it."""
        return self._view.leader

    def leads(self) -> bool:
        """Whether this broker leads. It stands down by itself when it can no longer be certain of its session."""
        return self._view.leads()

    def in_touch(self) -> bool:
        """Whether its session certainly lives, by a clock that goes on while the process is stopped."""
        return self._view.in_touch()

    @property
    def touch_count(self) -> int:
        """How many times it has come in touch: again after every moment of doubt, and with every session."""
        return self._view.touch_count

    # -- changes -------------------------------------------------------------------------------------------

    def on_change(self, call: Callable[[], None]) -> None:
        """Register `call`, to be called whenever brokers, the leader or `in_touch` have changed."""
        self._listeners.on_change.append(call)

    def on_topic_change(self, call: Callable[[str], None]) -> None:
        """Register `call`, to be called with a followed topic that was announced, and once when its watch begins."""
        self._listeners.on_topic_change.append(call)

    def follow(self, topic: str) -> None:
        """Watch the topic's counter from the next round on. Announcements before that count as well."""
        self._topics.follow(topic)
        self._rounds.wake()

    def announce(self, topic: str) -> None:
        """Increment the topic's counter in the next round. If too many announcements wait, the oldest are forgotten."""
        self._topics.announce(topic)
        self._rounds.wake()

    def read_again(self, topic: str | None) -> None:
        """Read the counter of a followed topic (None: of all) again, and watch it again in the next rounds."""
        self._topics.read_again(topic)
        self._rounds.wake()

    # -- life ----------------------------------------------------------------------------------------------

    async def look(self) -> Sequence[BrokerInfo]:
        """The live brokers, the one with the oldest node first. Raises as `join`."""
        return await self._rounds.look()

    async def join(self, broker: BrokerInfo) -> None:
        """Announce this broker, and keep it announced. Called again with the same id, the next round announces it anew.

        Raises `CoordinationFailed` if ZooKeeper gives no session within seconds at the first call.
        """
        await self._rounds.join(broker)

    def resign(self) -> None:
        """Lead no more: here at once, so before any other broker leads, and in ZooKeeper with the next round."""
        self._view.resign()
        self._rounds.wake()
        self._listeners.view_changed()

    async def leave(self) -> None:
        """Withdraw this broker and end its session. Returns within seconds, whatever ZooKeeper does."""
        await self._rounds.leave()
