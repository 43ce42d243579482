"""The limits of each principal at a broker, by the policy: token buckets, and counts of open streams.

A request is let in while its principal owes nothing. Its costs, also those of a body of unknown length, are charged as
they come, and may make a debt: the next request is let in when that is paid. So no body and no answer is stopped in its
middle, and over a second or so no principal gets more than the rate.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from mq.base.errors import QuotaExceeded
from mq.limits.storage_meter import Measure, StorageMeter, Taken
from mq.security.caller import Seat
from mq.security.grants import Pattern
from mq.security.needs import Need
from mq.security.policy.document import Decisions, Policy
from mq.security.policy.limits import Limits

MOST_SHARES = 4096
"""So many principals are remembered at a time: some megabytes, whatever an issuer calls its subjects."""
SHOWN_SECONDS = 300.0
"""The stored size is shown for so long after it was measured."""
_LEAST = 1 - 1e-9
"""A whole request, topic or byte, but for the rounding of sums of fractions."""
_HOUR_SECONDS = 3600.0
HOLD_SECONDS = 0.25
"""A refusal is held back for so long: a client that sends again at once would cost more than one that is served."""
_READS, _PUBLISHES = ("read", "consume"), ("publish", "load")


class Bucket:
    """Fills at a rate, up to `most`. Without a rate it is never empty: it has an infinite `level`."""

    __slots__ = ("_at_seconds", "_most", "_rate", "level")

    def __init__(self, rate: float | None, most: float, now_seconds: float) -> None:
        self._rate, self._at_seconds = rate or 0.0, now_seconds
        self.level = self._most = inf if rate is None else most

    def filled(self, now_seconds: float) -> float:
        """Return its level by now. Publishes of one message ask twice each: no further call, and no branch."""
        level = self.level + (now_seconds - self._at_seconds) * self._rate
        self._at_seconds = now_seconds
        self.level = level = level if level < self._most else self._most
        return level

    def wait_seconds(self, now_seconds: float) -> float:
        """How long until the next request may be let in; 0 if it may be now."""
        level = self.filled(now_seconds)
        return 0.0 if level >= _LEAST else max(0.001, (_LEAST - level) / self._rate)

    def charge(self, amount: float) -> None:
        """Charge so much, whether it is there or not."""
        self.level -= amount


class Share:
    """The use of this broker by one principal."""

    def __init__(self, limits: Limits, now_seconds: Callable[[], float], storage: StorageMeter | None = None) -> None:
        self.limits, self._now_seconds = limits, now_seconds
        now = now_seconds()

        def bucket(rate: float | None, per_seconds: float = 1.0) -> Bucket:
            return Bucket(None if rate is None else rate / per_seconds, rate or 0.0, now)

        self._requests = bucket(limits.requests_per_second)
        self._published, self._read = bucket(limits.publish_bytes_per_second), bucket(limits.read_bytes_per_second)
        self._topics = bucket(limits.topics_per_hour, _HOUR_SECONDS)
        self._streams = self._connections = 0
        self._storage, self._storage_bytes = storage, limits.storage_bytes or 0

    def begin(self, need: Need) -> None:
        """Let one request in. Raises `QuotaExceeded`."""
        now = self._now_seconds()
        self._refuse("requests_per_second", self._requests.wait_seconds(now))
        if need.action in _PUBLISHES:
            self._refuse("publish_bytes_per_second", self._published.wait_seconds(now))
            self.check_storage(need.topic)
        elif need.action in _READS:
            self._refuse("read_bytes_per_second", self._read.wait_seconds(now))
        self._requests.charge(1)

    def begin_publish(self, size_bytes: int, topic: str = "") -> QuotaExceeded | None:
        """Let a publish in whose body is there, and charge for it; returns the error that `begin` would raise."""
        now, requests, published = self._now_seconds(), self._requests, self._published
        if self._storage is not None or requests.filled(now) < _LEAST or published.filled(now) < _LEAST:
            try:
                self.begin(Need("publish", "topic", topic))
            except QuotaExceeded as refusal:
                return refusal
            self.published(size_bytes)
            return None
        requests.level -= 1
        published.level -= size_bytes
        return None

    def check_storage(self, topic: str) -> None:
        """Raise `QuotaExceeded` if the topics of the quota have used all the storage that they may have."""
        if self._storage is not None and (refusal := self._storage.refusal(topic, self._storage_bytes)) is not None:
            raise refusal

    def sit(self, seat: Seat | None) -> None:
        """Count a connection, which may be counted already. Raises `QuotaExceeded` if there are too many."""
        most = self.limits.connections
        if seat is None or seat.among is self:
            return
        if most is None:
            seat.leave()
            return
        if self._connections >= most:
            raise QuotaExceeded(
                "connections",
                most,
                1.0,
                f"the quota of this principal has connections = {most} at each broker, and so many are open: this one "
                "is closed; send more requests over those, or close some",
                used=self._connections,
            )
        seat.leave()
        seat.among = self
        self._connections += 1

    def may_sit(self, seat: Seat | None) -> bool:
        """Whether `sit` counts that connection; if so, it is counted then."""
        if seat is None or seat.among is self or (self.limits.connections is None and seat.among is None):
            return True
        try:
            self.sit(seat)
        except QuotaExceeded:
            return False
        return True

    def gone(self) -> None:
        """Note that a counted connection has ended."""
        self._connections -= 1

    def reserve_topic(self) -> None:
        """Charge for a topic that a request may create, before others ask. Raises `QuotaExceeded`."""
        self._refuse("topics_per_hour", self._topics.wait_seconds(self._now_seconds()))
        self._topics.charge(1)

    def created_topics(self, count: int) -> None:
        """Charge for so many topics created without asking; below 0, give back those that were not created."""
        self._topics.charge(count)

    def taking(self, topic: str, size_bytes: int = 0) -> Taken | None:
        """Count so much as coming to be stored in that topic. None if that is not limited."""
        return None if self._storage is None else self._storage.taking(topic, size_bytes)

    def published(self, size_bytes: int, messages: int = 0) -> None:
        """Charge for so much of a body, or so many messages of a socket, which count as a request each."""
        self._published.charge(size_bytes)
        self._requests.charge(messages)

    def read(self, size_bytes: int) -> None:
        """Charge for so much of an answer."""
        self._read.charge(size_bytes)

    def reading_waits_seconds(self) -> float:
        """How long an endless answer has to rest."""
        return self._read.wait_seconds(self._now_seconds())

    def publishing_waits_seconds(self) -> float:
        """How long a socket has to rest before the broker reads more from it."""
        now = self._now_seconds()
        return max(self._published.wait_seconds(now), self._requests.wait_seconds(now))

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """A context for a subscription, a socket, or a request that may wait. Raises `QuotaExceeded`."""
        most = self.limits.streams
        if most is not None and self._streams >= most:
            self._refuse("streams", 1.0)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def _refuse(self, limit: str, wait_seconds: float) -> None:
        if wait_seconds:
            raise QuotaExceeded(limit, getattr(self.limits, limit), wait_seconds)


async def _nothing_stored(_: Pattern) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class StorageUse:
    """The share of a quota's `storage_bytes` that its topics have, and how long ago that was measured."""

    ratio: float
    age_seconds: float


class Quotas:
    """The shares of all principals that have a quota. Belongs to one event loop.

    A share that is forgotten, since very many others were used later, begins anew; so do all when quotas change.
    """

    def __init__(
        self,
        policy: Callable[[], Policy | None],
        now_seconds: Callable[[], float],
        measure: Measure = _nothing_stored,
    ) -> None:
        self._policy_of, self._now_seconds, self._measure = policy, now_seconds, measure
        self._meters: dict[str, StorageMeter] = {}
        self._policy: Policy | None = None
        self._decisions: Decisions | None = None
        self._shares: OrderedDict[str, Share | None] = OrderedDict()

    def __len__(self) -> int:
        """The number of principals that are known."""
        return len(self._shares)

    @property
    def limits_somebody(self) -> bool:
        """Whether the policy in force has quotas at all."""
        policy = self._policy_of()
        return policy is not None and bool(policy.quotas)

    def share(self, name: str) -> Share | None:
        """Return the share of a principal; None if it has no quota."""
        policy = self._policy_of()
        if policy is not self._policy:
            self._take(policy)
        if self._decisions is None:
            return None
        try:
            share = self._shares[name]
            self._shares.move_to_end(name)
            return share
        except KeyError:
            return self._add(name, self._decisions)

    def storage_used(self) -> dict[str, StorageUse]:
        """Return how much of their least quota the topics of each pattern had used at the last measurement.

        The caller does not start a measurement: leaves out those not measured for `SHOWN_SECONDS`.
        """
        found: dict[str, StorageUse] = {}
        for topics, (meter, limit_bytes) in self._least_storage().items():
            age_seconds = meter.age_seconds
            if age_seconds is not None and age_seconds <= SHOWN_SECONDS:
                found[topics] = StorageUse(meter.used_bytes / limit_bytes, age_seconds)
        return found

    def measure_storage(self) -> None:
        """Measure the storage of all quotas, but for those measured just now."""
        for meter, _ in self._least_storage().values():
            meter.look_again()

    def _least_storage(self) -> dict[str, tuple[StorageMeter, int]]:
        """Return the meter of each set of topics with a quota, and the least `storage_bytes` of those quotas."""
        policy = self._policy_of()
        if policy is not self._policy:
            self._take(policy)
        least: dict[str, tuple[StorageMeter, int]] = {}
        for quota in () if policy is None else policy.quotas:
            meter, limit_bytes = self._meter(quota.limits), quota.limits.storage_bytes
            if meter is not None and limit_bytes is not None:
                topics = str(quota.limits.stored)
                least[topics] = (meter, min(limit_bytes, least.get(topics, (meter, limit_bytes))[1]))
        return least

    def _take(self, policy: Policy | None) -> None:
        before = () if self._policy is None else self._policy.quotas
        self._policy = policy
        quotas = () if policy is None else policy.quotas
        if quotas != before:
            self._decisions = Decisions(policy) if quotas else None
            self._shares.clear()
            kept = {each.limits.storage_topics for each in quotas}
            for topics in [topics for topics in self._meters if topics not in kept]:
                self._meters.pop(topics).close()

    def close(self) -> None:
        """Stop measuring."""
        for meter in self._meters.values():
            meter.close()

    def _meter(self, limits: Limits) -> StorageMeter | None:
        """Return the meter of a quota's topics. All principals limited by the same topics share it."""
        topics = limits.stored
        if topics is None:
            return None
        if str(topics) not in self._meters:
            self._meters[str(topics)] = StorageMeter(topics, self._measure, self._now_seconds)
        return self._meters[str(topics)]

    def _add(self, name: str, decisions: Decisions) -> Share | None:
        limits = decisions.limits_of(name)
        if len(self._shares) >= MOST_SHARES:
            self._shares.popitem(last=False)
        share = None if limits is None else Share(limits, self._now_seconds, self._meter(limits))
        self._shares[name] = share
        return share
