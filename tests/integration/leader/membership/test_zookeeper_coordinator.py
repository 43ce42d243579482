"""The coordinator against a real ZooKeeper."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from filer.clock import SystemClock
from leader.membership.coordinator import CoordinationFailed
from leader.membership.zookeeper_coordinator import ZooKeeperCoordinator
from leader.membership.zookeeper_round import Paths
from leader.membership.zookeeper_rounds import JOIN_SECONDS, LEAVE_SECONDS
from tests.integration.leader.membership.conftest import Coordinators, broker
from tests.support.cluster.coordinating_process import CoordinatingProcess, Samples, overlaps, sample
from tests.support.cluster.zookeeper_server import SESSION_SECONDS, ZooKeeperServer

PATIENCE_SECONDS = 20.0
# What may come on top where other tests have the processors.
BUSY_SECONDS = 5.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


def ids(coordinator: ZooKeeperCoordinator) -> list[str]:
    return [each.id for each in coordinator.brokers()]


@contextlib.contextmanager
def kazoo(hosts: str, **arguments: object) -> Iterator[KazooClient]:
    """A client of the test's own."""
    client = KazooClient(hosts, **arguments)
    client.start(PATIENCE_SECONDS)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextlib.asynccontextmanager
async def sampled(coordinator: ZooKeeperCoordinator) -> AsyncIterator[Samples]:
    samples = Samples()
    task = asyncio.create_task(sample(coordinator, samples))
    try:
        yield samples
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.contextmanager
def process(zookeeper: ZooKeeperServer, cluster: str, name: str) -> Iterator[CoordinatingProcess]:
    started = CoordinatingProcess(zookeeper.hosts, cluster, name, SESSION_SECONDS)
    try:
        yield started
    finally:
        started.end()


# -- membership ------------------------------------------------------------------------------------------------


async def test_brokers_see_each_other_come_change_and_go(coordinators: Coordinators) -> None:
    one, two = coordinators(), coordinators()
    news: list[list[str]] = []
    one.on_change(lambda: news.append(ids(one)))
    await one.join(broker("one"))
    assert one.brokers() == (broker("one"),) and one.in_touch()
    await two.join(broker("two"))
    assert two.brokers() == (broker("one"), broker("two"))
    await until(lambda: one.brokers() == two.brokers())
    await two.join(broker("two", draining=True))
    await until(lambda: one.brokers() == (broker("one"), broker("two", draining=True)))
    await two.leave()
    await until(lambda: ids(one) == ["one"])
    assert [each for index, each in enumerate(news) if each != news[index - 1]] == [["one", "two"], ["one"]]
    assert (two.brokers(), two.leader(), two.leads(), two.in_touch()) == ((), None, False, False)


async def test_clusters_of_one_zookeeper_do_not_see_each_other(
    zookeeper: ZooKeeperServer, cluster: str, coordinators: Coordinators
) -> None:
    await coordinators().join(broker("one"))
    with process(zookeeper, f"{cluster}-other", "other"), kazoo(zookeeper.hosts) as client:
        assert client.get_children(Paths(cluster).brokers) == ["one"]
        assert client.get_children(Paths(f"{cluster}-other").brokers) == ["other"]


async def test_a_broker_that_is_not_understood_is_left_out(
    zookeeper: ZooKeeperServer, cluster: str, coordinators: Coordinators
) -> None:
    one = coordinators()
    await one.join(broker("one"))
    with kazoo(zookeeper.hosts) as client:
        client.create(Paths(cluster).broker("strange"), b"{", ephemeral=True)
        client.create(Paths(cluster).broker("newer"), b'{"id":"newer","url":"u","zone":"","version":"9","more":1}')
        await until(lambda: ids(one) == ["newer", "one"])


async def test_a_killed_process_is_gone_after_its_session(
    zookeeper: ZooKeeperServer, cluster: str, coordinators: Coordinators
) -> None:
    one = coordinators()
    with process(zookeeper, cluster, "doomed") as doomed:
        await one.join(broker("one"))
        assert ids(one) == ["doomed", "one"] and one.leader() == "doomed"
        doomed.process.kill()
        began = time.monotonic()
        await until(lambda: ids(one) == ["one"] and one.leads())
        assert time.monotonic() - began < SESSION_SECONDS + BUSY_SECONDS


async def test_after_an_expired_session_it_is_registered_again(
    zookeeper: ZooKeeperServer, cluster: str, coordinators: Coordinators
) -> None:
    one = coordinators()
    await one.join(broker("one"))
    assert one.leads()
    with kazoo(zookeeper.hosts) as client:
        _, stat = client.get(Paths(cluster).broker("one"))
        end_session(zookeeper, one)
        await until(lambda: client.exists(Paths(cluster).broker("one")) is not None)
        await until(lambda: client.get(Paths(cluster).broker("one"))[1].ephemeralOwner != stat.ephemeralOwner)
        # It may go on for a moment by what the former session has told it, before it stands for election again.
        await until(lambda: client.exists(Paths(cluster).leader) is not None)
        await until(one.leads)
        owners = {client.get(path)[1].ephemeralOwner for path in (Paths(cluster).broker("one"), Paths(cluster).leader)}
        assert len(owners) == 1 and stat.ephemeralOwner not in owners


def end_session(zookeeper: ZooKeeperServer, coordinator: ZooKeeperCoordinator) -> None:
    """As if it had expired: somebody with the session's password closes it."""
    own = coordinator._session._client  # type: ignore[attr-defined]
    with kazoo(zookeeper.hosts, client_id=own.client_id):
        pass


async def test_a_broker_whose_node_somebody_deletes_makes_it_anew(
    zookeeper: ZooKeeperServer, cluster: str, coordinators: Coordinators
) -> None:
    one, two = coordinators(), coordinators()
    await one.join(broker("one"))
    await two.join(broker("two"))
    await until(lambda: ids(one) == ids(two) == ["one", "two"] and one.leads())
    touches = one.touch_count
    with kazoo(zookeeper.hosts) as client:
        before = client.get(Paths(cluster).broker("one"))[1]
        began = time.monotonic()
        client.delete(Paths(cluster).broker("one"))
        client.delete(Paths(cluster).leader)
        await until(lambda: one.touch_count > touches and one.in_touch())
        assert time.monotonic() - began < 2.0 + BUSY_SECONDS
        after = client.get(Paths(cluster).broker("one"))[1]
        assert after.ephemeralOwner == before.ephemeralOwner and after.czxid > before.czxid
        await until(lambda: ids(one) == ids(two) == ["one", "two"])
        await until(lambda: one.leads() != two.leads() and one.leader() == two.leader())


async def test_nodes_left_by_a_lost_session_of_its_own_are_replaced_at_once(
    zookeeper: ZooKeeperServer, cluster: str, coordinators: Coordinators
) -> None:
    one, paths = coordinators(), Paths(cluster)
    with kazoo(zookeeper.hosts) as lost:
        lost.create(paths.broker("one"), b"old", ephemeral=True, makepath=True)
        lost.create(paths.leader, b"one", ephemeral=True)
        await one.join(broker("one"))
        assert one.leads() and one.brokers() == (broker("one"),)
        owners = {lost.get(path)[1].ephemeralOwner for path in (paths.broker("one"), paths.leader)}
        assert len(owners) == 1 and lost.client_id[0] not in owners
    with kazoo(zookeeper.hosts) as client:
        assert client.exists(paths.broker("one")) and client.exists(paths.leader)


# -- leadership ------------------------------------------------------------------------------------------------


async def test_the_first_leads_and_the_next_when_it_leaves(coordinators: Coordinators) -> None:
    one, two = coordinators(session_seconds=10), coordinators(session_seconds=10)
    await one.join(broker("one"))
    await two.join(broker("two"))
    assert one.leads() and not two.leads() and one.leader() == two.leader() == "one"
    async with sampled(one) as ones, sampled(two) as twos:
        await one.leave()
        began = time.monotonic()
        await until(lambda: two.leads() and bool(twos.reigns()))
    assert time.monotonic() - began < 5, "the node went with the session, not with its expiry"
    assert two.leader() == "two" and ids(two) == ["two"]
    assert twos.reigns() and overlaps(ones.reigns(), twos.reigns()) == []


async def test_who_resigns_is_followed_at_once_and_stays(coordinators: Coordinators) -> None:
    one, two = coordinators(session_seconds=10), coordinators(session_seconds=10)
    await one.join(broker("one"))
    await two.join(broker("two"))
    async with sampled(one) as ones, sampled(two) as twos:
        await until(lambda: bool(ones.reigns()))
        one.resign()
        assert not one.leads()
        await until(lambda: two.leads() and bool(twos.reigns()) and one.leader() == "two")
    assert ids(one) == ids(two) == ["one", "two"]
    assert overlaps(ones.reigns(), twos.reigns()) == []


async def test_a_stopped_leader_never_leads_beside_its_successor(
    zookeeper: ZooKeeperServer, cluster: str, coordinators: Coordinators
) -> None:
    two = coordinators()
    with process(zookeeper, cluster, "one") as one:
        await two.join(broker("two"))
        assert two.leader() == "one"
        async with sampled(two) as twos:
            one.process.send_signal(signal.SIGSTOP)
            await until(two.leads)
            one.process.send_signal(signal.SIGCONT)
            await until(lambda: ids(two) == ["one", "two"])
            one.process.send_signal(signal.SIGSTOP)
            await until(lambda: ids(two) == ["two"])
            one.process.send_signal(signal.SIGCONT)
            await until(lambda: ids(two) == ["one", "two"] and two.leads())
        ones = one.samples()
    assert ones.reigns() and twos.reigns() and overlaps(ones.reigns(), twos.reigns()) == []


async def test_of_a_leader_and_its_successor_one_leads_at_a_time_through_sessions_that_end(
    zookeeper: ZooKeeperServer, coordinators: Coordinators
) -> None:
    pair = [coordinators(), coordinators()]
    for index, each in enumerate(pair):
        await each.join(broker(f"broker-{index}"))
    async with sampled(pair[0]) as ones, sampled(pair[1]) as others:
        for _ in range(3):
            await until(lambda: any(each.leads() for each in pair) and all(each.in_touch() for each in pair))
            leader = next(each for each in pair if each.leads())
            # Silence, longer than the session by the broker's clock; then all sessions are counted anew.
            zookeeper.stop()
            await until(lambda leader=leader: not leader.leads())  # type: ignore[misc]
            zookeeper.cont()
    assert ones.reigns() or others.reigns()
    assert overlaps(ones.reigns(), others.reigns()) == []


# -- ZooKeeper silent, gone, empty -----------------------------------------------------------------------------


async def test_it_stands_down_by_its_own_deadline_while_zookeeper_is_silent(
    zookeeper: ZooKeeperServer, coordinators: Coordinators
) -> None:
    one = coordinators()
    await one.join(broker("one"))
    told: list[bool] = []
    one.on_change(lambda: told.append(one.in_touch()))
    zookeeper.stop()
    try:
        began = SystemClock().monotonic_seconds()
        async with sampled(one) as samples:
            await until(lambda: not one.leads())
        led = (reign.end - began for reign in samples.reigns())
        assert max(led, default=0.0) < SESSION_SECONDS, "no round that ended well began after the silence"
        await until(lambda: told == [False])
        assert ids(one) == ["one"] and one.leader() == "one", "what is known stays"
    finally:
        zookeeper.cont()
    await until(one.leads)
    assert told == [False, True]


@pytest.mark.parametrize("forget", [False, True], ids=["with its data", "empty"])
async def test_zookeeper_goes_and_comes_back(
    forget: bool, zookeeper: ZooKeeperServer, coordinators: Coordinators
) -> None:
    one, two = coordinators(), coordinators()
    await one.join(broker("one"))
    await two.join(broker("two"))
    heard: list[str] = []
    two.on_topic_change(heard.append)
    two.follow("t")
    await until(lambda: heard == ["t"])
    zookeeper.kill()
    await until(lambda: not one.in_touch() and not two.in_touch())
    one.announce("t")
    zookeeper.restart(forget=forget)
    await until(lambda: ids(one) == ids(two) == ["one", "two"] and one.in_touch() and two.in_touch())
    await until(lambda: one.leads() != two.leads() and one.leader() == two.leader())
    await until(lambda: heard[1:] != [] and set(heard) == {"t"})
    before = len(heard)
    one.announce("t")
    await until(lambda: len(heard) > before)


async def test_of_an_ensemble_any_member_may_go(tmp_path: Path, coordinators: Coordinators) -> None:
    with ZooKeeperServer(tmp_path, count=3) as ensemble:
        one, two = coordinators(hosts=ensemble.hosts), coordinators(hosts=ensemble.hosts)
        await one.join(broker("one"))
        await two.join(broker("two"))
        for node in ensemble.nodes:
            node.process.kill()
            await until(lambda: one.leads() and two.in_touch())
            # One at a time: the next goes when this one is back.
            node.start()
            await asyncio.to_thread(ensemble.wait_serving, ensemble.nodes)
        await until(lambda: ids(one) == ids(two) == ["one", "two"])


# -- topics ----------------------------------------------------------------------------------------------------


async def test_announcements_reach_who_follows(coordinators: Coordinators) -> None:
    one, two = coordinators(), coordinators()
    heard: list[str] = []
    two.on_topic_change(heard.append)
    await one.join(broker("one"))
    await two.join(broker("two"))
    two.follow("followed")
    two.follow("followed")
    await until(lambda: heard == ["followed"])
    for _ in range(3):
        before = len(heard)
        one.announce("other")
        one.announce("followed")
        await until(lambda before=before: len(heard) > before)  # type: ignore[misc]
    assert set(heard) == {"followed"}


async def test_many_topics_are_followed_and_announced(coordinators: Coordinators) -> None:
    one, two = coordinators(), coordinators()
    heard: list[str] = []
    two.on_topic_change(heard.append)
    await one.join(broker("one"))
    await two.join(broker("two"))
    topics = [f"t{number}" for number in range(250)]
    for topic in topics:
        two.follow(topic)
    await until(lambda: heard == topics)
    heard.clear()
    for topic in topics:
        one.announce(topic)
    await until(lambda: set(heard) == set(topics))


async def test_what_was_announced_before_the_watch_stood_is_told(coordinators: Coordinators) -> None:
    one, two = coordinators(), coordinators()
    heard: list[str] = []
    two.on_topic_change(heard.append)
    two.follow("t")
    await one.join(broker("one"))
    one.announce("t")
    await two.join(broker("two"))
    await until(lambda: "t" in heard)


# -- time-outs, and what cannot be reached ---------------------------------------------------------------------


@pytest.mark.parametrize(("wanted", "granted"), [(0.1, 0.4), (3.0, 3.0), (500.0, 120.0)])
async def test_the_session_timeout_is_the_one_that_was_granted(
    wanted: float, granted: float, coordinators: Coordinators
) -> None:
    one = coordinators(session_seconds=wanted)
    assert one.session_timeout_seconds == wanted
    await one.join(broker("one"))
    assert one.session_timeout_seconds == pytest.approx(granted, abs=0.001)


@contextlib.contextmanager
def silent_listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def join_fails(coordinators: Coordinators, hosts: str) -> str:
    began = time.monotonic()
    with pytest.raises(CoordinationFailed) as caught:
        await coordinators(hosts=hosts).join(broker("one"))
    assert time.monotonic() - began < JOIN_SECONDS + LEAVE_SECONDS + BUSY_SECONDS
    return str(caught.value)


async def test_a_wrong_port_is_told(coordinators: Coordinators) -> None:
    told = await join_fails(coordinators, "127.0.0.1:9,[::1]:9")
    assert told == (
        "no session with ZooKeeper within 5 seconds: 127.0.0.1:9: Connection refused; [::1]:9: Connection refused"
    )


async def test_a_name_that_does_not_exist_is_told(coordinators: Coordinators) -> None:
    assert "nowhere.invalid:2181: " in await join_fails(coordinators, "nowhere.invalid:2181")


async def test_a_port_where_something_else_listens_is_told(coordinators: Coordinators) -> None:
    with silent_listener() as port:
        told = await join_fails(coordinators, f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port}: something listens, but gives no session" in told


async def test_leaving_takes_seconds_at_most_while_zookeeper_is_silent(
    zookeeper: ZooKeeperServer, coordinators: Coordinators
) -> None:
    one = coordinators(session_seconds=60)
    await one.join(broker("one"))
    zookeeper.stop()
    try:
        one.announce("t")
        began = time.monotonic()
        await one.leave()
        assert time.monotonic() - began < LEAVE_SECONDS + BUSY_SECONDS
        assert not one.leads() and not one.in_touch()
    finally:
        zookeeper.cont()
