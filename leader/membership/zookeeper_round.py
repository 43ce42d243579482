"""One round with ZooKeeper: stay registered, lead if no broker does, read the members (docs/design.md §8)."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from pydantic import TypeAdapter, ValidationError

from filer.clock import Clock
from filer.event_log import EventLog
from leader.membership.coordinator import BrokerInfo, CoordinationFailed
from leader.membership.zookeeper_acls import NodeAcls

_BROKER: TypeAdapter[BrokerInfo] = TypeAdapter(BrokerInfo)
_log = EventLog(__name__)


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of a cluster's nodes."""

    cluster: str

    @property
    def folders(self) -> tuple[str, ...]:
        """The persistent parent nodes, parents first."""
        return ("/braidmq", self.root, self.brokers, self.topics)

    @property
    def root(self) -> str:
        """The node of the cluster."""
        return f"/braidmq/{self.cluster}"

    @property
    def brokers(self) -> str:
        """An ephemeral node for each live broker."""
        return f"{self.root}/brokers"

    @property
    def leader(self) -> str:
        """An ephemeral node that holds the id of the leader."""
        return f"{self.root}/leader"

    @property
    def topics(self) -> str:
        """A counter for each topic that was announced."""
        return f"{self.root}/topics"

    def broker(self, broker_id: str) -> str:
        """One broker."""
        return f"{self.brokers}/{broker_id}"

    def topic(self, topic: str) -> str:
        """One topic's counter."""
        return f"{self.topics}/{topic}"


@dataclass(frozen=True, slots=True)
class Errand:
    """What a round does: register `broker`, increment the counters of `announce`, read and watch those of `read`.

    With `may_lead`, the broker leads if no other one does; without it, it stops leading. Without a `broker` the round
    changes nothing, and only reads the members.
    """

    broker: BrokerInfo | None
    announce: Sequence[str] = ()
    read: Sequence[str] = ()
    may_lead: bool = True


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a round. `counters` are those of the topics that were read: each announcement changes them.

    In `brokers`, the one with the oldest node comes first. This broker was registered by session `session_id` during
    the whole round.
    """

    session_timeout_seconds: float
    brokers: tuple[BrokerInfo, ...]
    leader: str | None
    leads: bool
    counters: Mapping[str, int]
    session_id: int
    registered: int = 0
    """The transaction that created this broker's node: a new one if the node was deleted in between."""
    is_unfinished: bool = False
    """Whether another round should follow soon."""


@dataclass(frozen=True, slots=True)
class Watches:
    """Called by kazoo on its own threads when something may have changed: they must not call ZooKeeper."""

    cluster: Callable[[Any], None]
    topic: Callable[[Any], None]


class ZooKeeperRound:
    """The calls of one round on a connected client. Blocking, until `deadline` of the clock at the latest.

    An earlier try may have done any step and lost the answer, so each step first reads what is there. A round may stop
    anywhere: the nodes it created go with the session, and the next round goes on.
    """

    def __init__(self, client: KazooClient, paths: Paths, watches: Watches, clock: Clock, *, deadline: float) -> None:
        self._client, self._paths, self._watches = client, paths, watches
        self._clock, self._deadline = clock, deadline
        self._session = _session_of(client)

    def run(
        self, errand: Errand, granted_seconds: Callable[[], float], node_acls: NodeAcls | None = None
    ) -> RoundResult:
        """Do the round. Raises `CoordinationFailed`, kazoo's errors and its time-out.

        At its end it changes some ACLs of nodes.
        """
        if not self._session:
            # kazoo would queue the calls, and do them whenever it is connected again.
            raise CoordinationFailed("not connected")
        # ZooKeeper's own leader answers this. A member that is cut off from the others would go on answering reads
        # while the others let this session expire.
        self._wait(self._client.sync_async(self._paths.root))
        if (me := errand.broker) is None:
            return self._look(granted_seconds)
        self._announce(errand.announce)
        self._hold(self._paths.broker(me.id), orjson.dumps(asdict(me)), lambda held: True)
        leader = self._lead(me.id) if errand.may_lead else self._resign(me.id)
        by_age = self._brokers()
        registered = next((made for made, broker in by_age if broker.id == me.id), 0)
        brokers = tuple(broker for _, broker in by_age)
        counters = self._counters(errand.read)
        if _session_of(self._client) != self._session:
            raise CoordinationFailed("the session ended meanwhile")
        is_left = node_acls is not None and node_acls.change_some(self._client, self._session, self._wait)
        return RoundResult(
            granted_seconds(), brokers, leader, leader == me.id, counters, self._session, registered, is_left
        )

    def _look(self, granted_seconds: Callable[[], float]) -> RoundResult:
        brokers: tuple[BrokerInfo, ...] = ()
        with contextlib.suppress(NoNodeError):
            brokers = tuple(broker for _, broker in self._brokers())
        return RoundResult(granted_seconds(), brokers, None, False, {}, self._session)

    def _lead(self, me: str) -> str:
        """Try to lead; returns the id of the leader."""
        return self._hold(self._paths.leader, me.encode(), lambda held: held == me.encode()).decode()

    def _resign(self, me: str) -> str | None:
        """Delete a node that names this broker; returns the id of another leader."""
        found = self._get(self._paths.leader)
        if found is None:
            return None
        leader, stat = found
        if leader != me.encode():
            return leader.decode()
        # A try whose answer was lost may have done it. A node that others have created since has another version.
        with contextlib.suppress(NoNodeError):
            self._wait(self._client.delete_async(self._paths.leader, stat.version))
        return None

    def _hold(self, path: str, data: bytes, is_ours: Callable[[bytes], bool]) -> bytes:
        """Try to create an ephemeral node with `data` in this session; returns the node's data.

        A node that `is_ours` but belongs to another session was created by a session that this broker lost. It would go
        when that session expires, so it is replaced, in one step, so that no other broker sees it missing meanwhile.
        """
        found = self._get(path)
        if found is None:
            self._create(path, data, ephemeral=True)
            found = self._get(path)
        if found is None:
            raise CoordinationFailed(f"{path} comes and goes")
        held, stat = found
        if stat.ephemeralOwner == self._session:
            if held != data:
                self._wait(self._client.set_async(path, data))
            return data
        if not is_ours(held):
            return held
        self._replace(path, data, stat.version)
        return data

    def _get(self, path: str) -> tuple[bytes, Any] | None:
        try:
            data, stat = self._wait(self._client.get_async(path, watch=self._watches.cluster))
        except NoNodeError:
            return None
        return data, stat

    def _replace(self, path: str, data: bytes, version: int) -> None:
        transaction = self._client.transaction()
        transaction.delete(path, version)
        transaction.create(path, data, ephemeral=True)
        for result in self._wait(transaction.commit_async()):
            if isinstance(result, Exception):
                raise result

    def _create(self, path: str, data: bytes, *, ephemeral: bool) -> None:
        """Create the node unless it exists: another broker, or an earlier try with a lost answer, may have made it."""
        try:
            self._create_if_absent(path, data, ephemeral=ephemeral)
        except NoNodeError:
            # A new ZooKeeper, or one that has lost its data.
            for folder in self._paths.folders:
                self._create_if_absent(folder, b"", ephemeral=False)
            self._create_if_absent(path, data, ephemeral=ephemeral)

    def _create_if_absent(self, path: str, data: bytes, *, ephemeral: bool) -> None:
        try:
            self._wait(self._client.create_async(path, data, ephemeral=ephemeral))
        except NodeExistsError:
            return

    def _announce(self, topics: Sequence[str]) -> None:
        """Increment counters: each set gives a node a newer transaction id, whatever the data."""
        answers = {topic: self._client.set_async(self._paths.topic(topic), b"") for topic in topics}
        for topic, answer in answers.items():
            try:
                self._wait(answer)
            except NoNodeError:
                self._create(self._paths.topic(topic), b"", ephemeral=False)

    def _brokers(self) -> list[tuple[int, BrokerInfo]]:
        """The brokers with the transactions that created their nodes, the oldest first."""
        names = self._wait(self._client.get_children_async(self._paths.brokers, watch=self._watches.cluster))
        answers = [self._client.get_async(self._paths.broker(name), watch=self._watches.cluster) for name in names]
        told = [each for each in map(self._read_broker, answers) if each is not None]
        return sorted(told, key=lambda each: each[0])

    def _read_broker(self, answer: Any) -> tuple[int, BrokerInfo] | None:
        """The transaction that created a broker's node, and the broker in it; None if there is none."""
        try:
            data, stat = self._wait(answer)
            return stat.czxid, _BROKER.validate_json(data)
        except NoNodeError:
            # It left after it was listed.
            return None
        except ValidationError as error:
            _log.warning("broker_node_invalid", error=error)
            return None

    def _counters(self, topics: Sequence[str]) -> dict[str, int]:
        answers = {
            topic: self._client.exists_async(self._paths.topic(topic), watch=self._watches.topic) for topic in topics
        }
        stats = {topic: self._wait(answer) for topic, answer in answers.items()}
        return {topic: 0 if stat is None else stat.mzxid for topic, stat in stats.items()}

    def _wait(self, answer: Any) -> Any:
        left = self._deadline - self._clock.monotonic_seconds()
        return answer.get(timeout=max(left, 0.0))


def _session_of(client: KazooClient) -> int:
    """The id of the client's session; 0 while it is not connected."""
    client_id = client.client_id
    return 0 if client_id is None else int(client_id[0])
