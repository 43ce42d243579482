"""A broker's view of its cluster from the last round with ZooKeeper, and for how long it may rely on that view."""

import math
from collections.abc import Callable
from functools import partial

from filer.clock import Clock
from filer.event_log import EventLog
from leader.membership.coordinator import BrokerInfo
from leader.membership.zookeeper_round import RoundResult

CERTAIN_SHARE = 2 / 3
"""A round proves that the session lives for this share of its time-out, counted from the round's beginning."""

_log = EventLog(__name__)


class ClusterView:
    """The brokers and the leader as the last successful round saw them. Belongs to the event loop's thread."""

    def __init__(self, clock: Clock, *, session_timeout_seconds: float) -> None:
        self._clock = clock
        self.session_timeout_seconds = session_timeout_seconds
        self.brokers: tuple[BrokerInfo, ...] = ()
        self.by_age: tuple[BrokerInfo, ...] = ()
        self.leader: str | None = None
        self.certain_until_seconds = self.seen_seconds = -math.inf
        self.touch_count = 0
        self._membership = (0, 0)
        self._seen_leading = self._resigned = False

    def apply(self, result: RoundResult, *, began_seconds: float) -> None:
        """Apply the result of a round that began at that time."""
        self.session_timeout_seconds = result.session_timeout_seconds
        # Another node than before in the same session: an operator deleted it, and this broker has created it anew.
        # Meanwhile the leader may have given its segments away. That is safe as after a lost session (docs/design.md
        # §6). The store fences its next puts, a follower that helped to seal refuses it, and since this counts as
        # coming in touch again, it reads the records before it answers by its followers.
        membership = (result.session_id, result.registered)
        if not self.in_touch() or membership != self._membership:
            self.touch_count, self._membership = self.touch_count + 1, membership
        # Any answer in the round came from a session that lived after the round began, and a session lives for a whole
        # time-out after that.
        self.certain_until_seconds = began_seconds + self.session_timeout_seconds * CERTAIN_SHARE
        self.seen_seconds = began_seconds
        self.by_age, self.leader = result.brokers, result.leader
        self._seen_leading = result.leads
        self.brokers = tuple(sorted(result.brokers, key=lambda broker: broker.id))

    def in_touch(self) -> bool:
        """Whether the session certainly lives, by a clock that goes on while the process is stopped."""
        return self._clock.monotonic_seconds() < self.certain_until_seconds

    def leads(self) -> bool:
        """Whether this broker leads. That ends as soon as it cannot be certain of its session."""
        return self._seen_leading and not self._resigned and self.in_touch()

    @property
    def resigned(self) -> bool:
        """Whether this broker must not lead any more."""
        return self._resigned

    def resign(self) -> None:
        """Lead no more."""
        self._resigned = True

    def clear(self) -> None:
        """Forget everything: this broker has left."""
        self.certain_until_seconds = -math.inf
        self.brokers, self.by_age, self.leader, self._seen_leading = (), (), None, False


class Listeners:
    """The listeners for changes of the view or of a topic. If one fails, the others are called all the same."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._last: object = None
        self._told_brokers: dict[str, BrokerInfo] = {}
        self._told_leader: str | None = None
        self._told_leads = False
        self.on_change: list[Callable[[], None]] = []
        self.on_topic_change: list[Callable[[str], None]] = []

    def view_changed(self) -> None:
        """Call the listeners if brokers, the leader, `leads` or `in_touch` differ from the last call."""
        state = (self._view.brokers, self._view.leader, self._view.leads(), self._view.in_touch())
        if state != self._last:
            self._last = state
            self._tell()
            for call in self.on_change:
                _call_safely(call)

    def _tell(self) -> None:
        """Log the changes since the last call."""
        brokers = {broker.id: broker for broker in self._view.brokers}
        for broker in brokers.values():
            told = self._told_brokers.get(broker.id)
            if told is None:
                _log.info("broker_joined", broker=broker.id, url=broker.url, zone=broker.zone or None)
            if broker.draining and (told is None or not told.draining):
                _log.info("broker_drains", broker=broker.id)
            elif told is not None and told.draining and not broker.draining:
                _log.info("broker_takes_part_again", broker=broker.id)
        for gone in self._told_brokers.keys() - brokers.keys():
            _log.warning("broker_left", broker=gone)
        if self._view.leader != self._told_leader:
            _log.info("leader_changed", leader=self._view.leader or "nobody", before=self._told_leader)
        leads = self._view.leads()
        if leads and not self._told_leads:
            _log.info("leadership_gained")
        elif self._told_leads and not leads:
            _log.warning("leadership_lost")
        self._told_brokers, self._told_leader = brokers, self._view.leader
        self._told_leads = leads

    def topic_changed(self, topic: str) -> None:
        """Call the listeners with that topic."""
        for call in self.on_topic_change:
            _call_safely(partial(call, topic))


def _call_safely(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as error:
        # Rounds must go on: without them this broker would be counted as gone.
        _log.error("listener_failed", error=error, traceback_of=error)
