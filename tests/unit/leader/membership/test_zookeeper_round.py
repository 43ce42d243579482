"""One round against a ZooKeeper in memory, which loses answers and lets others be quicker."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from kazoo.exceptions import BadVersionError, ConnectionLoss, NodeExistsError, NoNodeError, RolledBackError

from filer.clock import ManualClock
from leader.membership.coordinator import BrokerInfo, CoordinationFailed
from leader.membership.zookeeper_round import Errand, Paths, RoundResult, Watches, ZooKeeperRound

PATHS = Paths("c")
ME = BrokerInfo("me", "http://me", "zone", "1")
MINE, LOST, ANOTHERS = 1, 2, 3


class Answer:
    """What kazoo gives at once, with the result or the error to come."""

    def __init__(self, call: Callable[[], Any]) -> None:
        try:
            self._result, self._error = call(), None
        except Exception as error:
            self._result, self._error = None, error

    def get(self, *, timeout: float) -> Any:
        assert timeout >= 0
        if self._error is not None:
            raise self._error
        return self._result


class FakeZooKeeper:
    """As much of a `KazooClient` as a round uses. `before` and `after` a call to a path, something may happen."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, int]] = {}  # data, ephemeral owner, version
        self.created: dict[str, int] = {}
        self.session: int | None = MINE
        self.before: dict[tuple[str, str], Callable[[], None]] = {}
        self.after: dict[tuple[str, str], Callable[[], None]] = {}
        self.zxid = 0

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return None if self.session is None else (self.session, b"")

    def put(self, path: str, data: bytes, owner: int = 0) -> None:
        parent = path.rpartition("/")[0]
        if parent and parent not in self.nodes:
            self.put(parent, b"")
        self._add(path, data, owner)

    def _add(self, path: str, data: bytes, owner: int) -> None:
        self.zxid += 1
        self.nodes[path], self.created[path] = (data, owner, 0), self.zxid

    def _call(self, name: str, path: str, work: Callable[[], Any]) -> Answer:
        def call() -> Any:
            self.before.pop((name, path), lambda: None)()
            result = work()
            self.after.pop((name, path), lambda: None)()
            return result

        return Answer(call)

    def _stat(self, path: str) -> Any:
        _, owner, version = self.nodes[path]
        return SimpleNamespace(ephemeralOwner=owner, version=version, mzxid=version + 1, czxid=self.created[path])

    def _existing(self, path: str) -> tuple[bytes, Any]:
        if path not in self.nodes:
            raise NoNodeError
        return self.nodes[path][0], self._stat(path)

    def _create(self, path: str, data: bytes, ephemeral: bool) -> None:
        if path in self.nodes:
            raise NodeExistsError
        parent = path.rpartition("/")[0]
        if parent and parent not in self.nodes:
            raise NoNodeError
        self._add(path, data, (self.session or 0) if ephemeral else 0)

    def _set(self, path: str, data: bytes) -> None:
        self._existing(path)
        _, owner, version = self.nodes[path]
        self.nodes[path] = (data, owner, version + 1)

    def sync_async(self, path: str) -> Answer:
        return self._call("sync", path, lambda: path)

    def get_async(self, path: str, *, watch: Any) -> Answer:
        return self._call("get", path, lambda: self._existing(path))

    def exists_async(self, path: str, *, watch: Any) -> Answer:
        return self._call("exists", path, lambda: self._stat(path) if path in self.nodes else None)

    def get_children_async(self, path: str, *, watch: Any) -> Answer:
        return self._call(
            "children", path, lambda: [each[len(path) + 1 :] for each in self.nodes if each.startswith(f"{path}/")]
        )

    def create_async(self, path: str, data: bytes, *, ephemeral: bool) -> Answer:
        return self._call("create", path, lambda: self._create(path, data, ephemeral))

    def set_async(self, path: str, data: bytes) -> Answer:
        return self._call("set", path, lambda: self._set(path, data))

    def _delete(self, path: str, version: int) -> None:
        self._existing(path)
        if self.nodes[path][2] != version:
            raise BadVersionError
        del self.nodes[path]

    def delete_async(self, path: str, version: int) -> Answer:
        return self._call("delete", path, lambda: self._delete(path, version))

    def transaction(self) -> "FakeTransaction":
        return FakeTransaction(self)


class FakeTransaction:
    def __init__(self, zookeeper: FakeZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._delete: tuple[str, int] = ("", 0)
        self._created: tuple[str, bytes] = ("", b"")

    def delete(self, path: str, version: int) -> None:
        self._delete = (path, version)

    def create(self, path: str, data: bytes, *, ephemeral: bool) -> None:
        assert ephemeral
        self._created = (path, data)

    def commit_async(self) -> Answer:
        path, version = self._delete

        def work() -> list[Any]:
            if path not in self._zookeeper.nodes or self._zookeeper.nodes[path][2] != version:
                return [BadVersionError(), RolledBackError()]
            del self._zookeeper.nodes[path]
            self._zookeeper._create(*self._created, True)
            return [True, path]

        return self._zookeeper._call("replace", path, work)


@pytest.fixture
def zookeeper() -> FakeZooKeeper:
    return FakeZooKeeper()


def go(zookeeper: FakeZooKeeper, errand: Errand | None = None) -> RoundResult:
    watches = Watches(cluster=lambda event: None, topic=lambda event: None)
    a_round = ZooKeeperRound(zookeeper, PATHS, watches, ManualClock(), deadline=2e9)  # type: ignore[arg-type]
    return a_round.run(errand or Errand(ME), lambda: 10.0)


def fail(error: Exception) -> Callable[[], None]:
    def raising() -> None:
        raise error

    return raising


def test_in_an_empty_zookeeper_it_makes_what_it_needs_and_leads(zookeeper: FakeZooKeeper) -> None:
    seen = go(zookeeper)
    registered = zookeeper.created[PATHS.broker("me")]
    assert seen == RoundResult(10.0, (ME,), "me", True, {}, zookeeper.session, registered)
    assert zookeeper.nodes[PATHS.leader][:2] == (b"me", MINE)
    assert zookeeper.nodes[PATHS.broker("me")][1] == MINE
    assert zookeeper.nodes[PATHS.topics][1] == 0
    assert go(zookeeper) == seen, "and once more finds it all there"


def test_somebody_quicker_leads(zookeeper: FakeZooKeeper) -> None:
    go(zookeeper)
    del zookeeper.nodes[PATHS.leader]
    zookeeper.before["create", PATHS.leader] = lambda: zookeeper.put(PATHS.leader, b"other", ANOTHERS)
    seen = go(zookeeper)
    assert (seen.leader, seen.leads) == ("other", False)


@pytest.mark.parametrize("path", [PATHS.leader, PATHS.broker("me")])
def test_a_create_whose_answer_was_lost_is_found_to_be_its_own(path: str, zookeeper: FakeZooKeeper) -> None:
    go(zookeeper)
    del zookeeper.nodes[path]
    zookeeper.after["create", path] = fail(ConnectionLoss())
    with pytest.raises(ConnectionLoss):
        go(zookeeper)
    assert path in zookeeper.nodes
    assert go(zookeeper).leads


def test_leading_by_a_session_that_is_lost_is_not_leading(zookeeper: FakeZooKeeper) -> None:
    zookeeper.put(PATHS.leader, b"me", LOST)
    zookeeper.after["replace", PATHS.leader] = fail(ConnectionLoss())
    with pytest.raises(ConnectionLoss):
        go(zookeeper)
    assert go(zookeeper).leads
    assert zookeeper.nodes[PATHS.leader][1] == MINE


def test_a_node_that_changed_before_it_could_be_replaced_stays(zookeeper: FakeZooKeeper) -> None:
    zookeeper.put(PATHS.leader, b"me", LOST)

    def taken() -> None:
        zookeeper.nodes[PATHS.leader] = (b"other", ANOTHERS, 7)

    zookeeper.before["replace", PATHS.leader] = taken
    with pytest.raises(BadVersionError):
        go(zookeeper)
    assert go(zookeeper).leader == "other"


def test_a_node_that_comes_and_goes_fails_the_round(zookeeper: FakeZooKeeper) -> None:
    go(zookeeper)
    del zookeeper.nodes[PATHS.leader]
    zookeeper.after["create", PATHS.leader] = lambda: zookeeper.nodes.pop(PATHS.leader) and None
    with pytest.raises(CoordinationFailed, match="comes and goes"):
        go(zookeeper)


def test_who_resigns_lets_others_lead(zookeeper: FakeZooKeeper) -> None:
    resigning = Errand(ME, may_lead=False)
    assert go(zookeeper).leads
    seen = go(zookeeper, resigning)
    assert (seen.leader, seen.leads, seen.brokers) == (None, False, (ME,))
    assert PATHS.leader not in zookeeper.nodes
    assert go(zookeeper, resigning).leader is None
    zookeeper.put(PATHS.leader, b"other", ANOTHERS)
    assert go(zookeeper, resigning).leader == "other"
    assert zookeeper.nodes[PATHS.leader][:2] == (b"other", ANOTHERS)


def test_a_resignation_whose_answer_was_lost(zookeeper: FakeZooKeeper) -> None:
    resigning = Errand(ME, may_lead=False)
    go(zookeeper)
    zookeeper.after["delete", PATHS.leader] = fail(ConnectionLoss())
    with pytest.raises(ConnectionLoss):
        go(zookeeper, resigning)
    assert go(zookeeper, resigning).leader is None
    # Another session of this broker ends meanwhile, and somebody is elected before it is deleted.
    zookeeper.put(PATHS.leader, b"me", LOST)
    zookeeper.before["delete", PATHS.leader] = lambda: zookeeper.nodes.pop(PATHS.leader) and None
    assert go(zookeeper, resigning).leader is None

    def elected() -> None:
        zookeeper.nodes[PATHS.leader] = (b"other", ANOTHERS, 7)

    zookeeper.put(PATHS.leader, b"me", LOST)
    zookeeper.before["delete", PATHS.leader] = elected
    with pytest.raises(BadVersionError):
        go(zookeeper, resigning)
    assert go(zookeeper, resigning).leader == "other"


@pytest.mark.parametrize("later", [None, ANOTHERS])
def test_a_session_that_ends_within_the_round_proves_nothing(later: int | None, zookeeper: FakeZooKeeper) -> None:
    def ended() -> None:
        zookeeper.session = later

    zookeeper.after["children", PATHS.brokers] = ended
    with pytest.raises(CoordinationFailed, match="session ended"):
        go(zookeeper)


def test_without_a_connection_nothing_is_asked(zookeeper: FakeZooKeeper) -> None:
    zookeeper.session = None
    with pytest.raises(CoordinationFailed, match="not connected"):
        go(zookeeper)
    assert zookeeper.nodes == {}


def test_no_member_that_is_cut_off_from_the_others_is_believed(zookeeper: FakeZooKeeper) -> None:
    go(zookeeper)
    zookeeper.before["sync", PATHS.root] = fail(ConnectionLoss())
    with pytest.raises(ConnectionLoss):
        go(zookeeper)


def test_what_a_broker_says_of_itself_is_kept_up_to_date(zookeeper: FakeZooKeeper) -> None:
    go(zookeeper)
    draining = BrokerInfo("me", "http://me", "zone", "1", draining=True)
    assert go(zookeeper, Errand(draining)).brokers == (draining,)
    assert orjson.loads(zookeeper.nodes[PATHS.broker("me")][0])["draining"] is True


def test_brokers_are_told_by_age(zookeeper: FakeZooKeeper) -> None:
    def older(name: str) -> None:
        said = {"id": name, "url": "u", "zone": "", "version": "1"}
        zookeeper.put(PATHS.broker(name), orjson.dumps(said), ANOTHERS)

    for name in ("z", "a"):
        older(name)
    assert [each.id for each in go(zookeeper).brokers] == ["z", "a", "me"]
    older("b")
    draining = BrokerInfo("me", "http://me", "zone", "1", draining=True)
    assert [each.id for each in go(zookeeper, Errand(draining)).brokers] == ["z", "a", "me", "b"]


def test_a_broker_that_leaves_while_it_is_read_is_left_out(zookeeper: FakeZooKeeper) -> None:
    zookeeper.put(PATHS.broker("other"), b'{"id":"other","url":"u","zone":"","version":"1"}', ANOTHERS)
    zookeeper.before["get", PATHS.broker("other")] = lambda: zookeeper.nodes.pop(PATHS.broker("other")) and None
    assert [each.id for each in go(zookeeper).brokers] == ["me"]
    zookeeper.put(PATHS.broker("other"), b'{"id":"other","url":"u","zone":"","version":"1"}', ANOTHERS)
    assert [each.id for each in go(zookeeper).brokers] == ["me", "other"]


def test_counters_differ_after_every_announcement(zookeeper: FakeZooKeeper) -> None:
    counts = [go(zookeeper, Errand(ME, read=["t"])).counters["t"]]
    for _ in range(3):
        counts.append(go(zookeeper, Errand(ME, announce=["t"], read=["t", "other"])).counters["t"])
    assert len(set(counts)) == 4


def test_brokers_of_newer_and_of_older_versions_are_read(zookeeper: FakeZooKeeper) -> None:
    """A newer one tells what this one does not know; an older one does not tell where it listens for brokers."""
    told = {"id": "b", "url": "http://b", "zone": "", "version": "1"}
    zookeeper.put(PATHS.broker("newer"), orjson.dumps({**told, "peer_url": "http://p", "telepathy": True}), ANOTHERS)
    zookeeper.put(PATHS.broker("older"), orjson.dumps(told), ANOTHERS)
    newer, older, _ = go(zookeeper).brokers
    assert newer == BrokerInfo("b", "http://b", "", "1", peer_url="http://p")
    assert older == BrokerInfo("b", "http://b", "", "1")
