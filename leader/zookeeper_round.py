"""One round with ZooKeeper: be registered, lead where nobody does, see who is there (DESIGN.md §8)."""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from pydantic import TypeAdapter, ValidationError

from filer.clock import Clock
from leader.coordinator import BrokerInfo, CoordinationFailed

_BROKER: TypeAdapter[BrokerInfo] = TypeAdapter(BrokerInfo)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Paths:
    """Where a cluster's nodes are."""

    cluster: str

    @property
    def folders(self) -> tuple[str, ...]:
        """What holds the others, parents first; these stay."""
        return ("/braidmq", self.root, self.brokers, self.topics)

    @property
    def root(self) -> str:
        """All of the cluster."""
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
    """What a round is to do: register `broker`, count up the topics of `announce`, read and watch those of `look`.

    With `may_lead` the broker leads where nobody else does, without it no more.
    """

    broker: BrokerInfo
    announce: Sequence[str] = ()
    look: Sequence[str] = ()
    may_lead: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
    """What a round found. `counters` are those of the topics looked at: they differ after every announcement.

    `brokers`: the one whose node is oldest first.

    `session_id` is that of the session in whose name this broker was registered all through the round.
    """

    session_timeout_seconds: float
    brokers: tuple[BrokerInfo, ...]
    leader: str | None
    leads: bool
    counters: Mapping[str, int]
    session_id: int


@dataclass(frozen=True, slots=True)
class Watches:
    """Called by kazoo on its own threads when something may have changed: they must not call ZooKeeper."""

    cluster: Callable[[Any], None]
    topic: Callable[[Any], None]


class ZooKeeperRound:
    """The calls of one round on a connected client. Blocking, until `deadline` of the clock at the latest.

    Every step may have been done before by a try whose answer was lost, so each reads what is there first. It may
    stop anywhere: whatever it created goes with the session, and the next round goes on.
    """

    def __init__(self, client: KazooClient, paths: Paths, watches: Watches, clock: Clock, *, deadline: float) -> None:
        self._client, self._paths, self._watches = client, paths, watches
        self._clock, self._deadline = clock, deadline
        self._session = _session_of(client)

    def run(self, errand: Errand, granted_seconds: Callable[[], float]) -> Seen:
        """Do it all. Raises `CoordinationFailed`, kazoo's errors and its time-out."""
        if not self._session:
            # Kazoo would queue the calls, and do them whenever it is connected again.
            raise CoordinationFailed("not connected")
        # Answered by ZooKeeper's own leader: a member that is cut off from the others would go on answering reads
        # while they let this session expire.
        self._wait(self._client.sync_async(self._paths.root))
        self._announce(errand.announce)
        me = errand.broker
        self._hold(self._paths.broker(me.id), orjson.dumps(asdict(me)), lambda held: True)
        leader = self._lead(me.id) if errand.may_lead else self._resign(me.id)
        brokers = self._brokers()
        counters = self._counters(errand.look)
        if _session_of(self._client) != self._session:
            raise CoordinationFailed("the session ended meanwhile")
        return Seen(granted_seconds(), brokers, leader, leader == me.id, counters, self._session)

    def _lead(self, me: str) -> str:
        """Who leads, after trying to."""
        return self._hold(self._paths.leader, me.encode(), lambda held: held == me.encode()).decode()

    def _resign(self, me: str) -> str | None:
        """Who else leads; the node is deleted where it names this broker."""
        found = self._get(self._paths.leader)
        if found is None:
            return None
        leader, stat = found
        if leader != me.encode():
            return leader.decode()
        # A try whose answer was lost may have done it. A node that others have made since has another version.
        with contextlib.suppress(NoNodeError):
            self._wait(self._client.delete_async(self._paths.leader, stat.version))
        return None

    def _hold(self, path: str, data: bytes, is_ours: Callable[[bytes], bool]) -> bytes:
        """What an ephemeral node holds, after trying to have it hold `data` in this session's name.

        A node that `is_ours` but belongs to another session is that of a session we lost: it would go when that
        one expires, so it is replaced, in one step, lest others see it gone meanwhile.
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
        """Create it unless it is there: made by somebody quicker, or by a try of ours whose answer was lost."""
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
        """Count up: each set gives a node a newer transaction id, whatever the data."""
        answers = {topic: self._client.set_async(self._paths.topic(topic), b"") for topic in topics}
        for topic, answer in answers.items():
            try:
                self._wait(answer)
            except NoNodeError:
                self._create(self._paths.topic(topic), b"", ephemeral=False)

    def _brokers(self) -> tuple[BrokerInfo, ...]:
        names = self._wait(self._client.get_children_async(self._paths.brokers, watch=self._watches.cluster))
        answers = [self._client.get_async(self._paths.broker(name), watch=self._watches.cluster) for name in names]
        told = [each for each in map(self._told, answers) if each is not None]
        return tuple(broker for _, broker in sorted(told, key=lambda each: each[0]))

    def _told(self, answer: Any) -> tuple[int, BrokerInfo] | None:
        """When a broker's node was created, in transactions, and what it says."""
        try:
            data, stat = self._wait(answer)
            return stat.czxid, _BROKER.validate_json(data)
        except NoNodeError:
            # It left after it was listed.
            return None
        except ValidationError as error:
            _log.warning("what a broker says of itself is not understood: %s", error)
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
