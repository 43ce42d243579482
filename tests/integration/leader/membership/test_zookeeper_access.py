"""Credentials for ZooKeeper, whose nodes then belong to the brokers, and TLS to it: against a real one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from filer.clock import SystemClock
from filer.errors import InvalidConfig
from leader.membership import zookeeper_addresses
from leader.membership.coordinator import CoordinationFailed, NotAuthorized
from leader.membership.zookeeper_access import ZooKeeperAccess, ZooKeeperTls
from leader.membership.zookeeper_acls import NODES_PER_ROUND
from leader.membership.zookeeper_addresses import why_unreachable
from leader.membership.zookeeper_coordinator import ZooKeeperCoordinator
from leader.membership.zookeeper_round import Paths
from mq.local.zookeeper import ZooKeeperNode
from tests.integration.leader.membership.conftest import broker
from tests.integration.leader.membership.test_zookeeper_coordinator import PATIENCE_SECONDS, ids, kazoo, until
from tests.support.cluster.zookeeper_server import SESSION_SECONDS, ZooKeeperServer
from tests.support.net.authority import Authority
from tests.support.process.processes import free_port

OURS, OTHERS = ZooKeeperAccess("braid:secret"), ZooKeeperAccess("braid:wrong")
OPENING, NOBODY = ZooKeeperAccess("braid:secret", is_open=True), ZooKeeperAccess()
OURS_AS_READ = [make_digest_acl("braid", "secret", all=True)]
Make = Callable[[ZooKeeperAccess], ZooKeeperCoordinator]


class Secure(NamedTuple):
    """A ZooKeeper with two ports, one of which speaks TLS and demands a certificate."""

    server: ZooKeeperServer
    tls_hosts: str
    authority: Authority


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("secure")
    authority, port = Authority(folder), free_port()
    cert, key = authority.sign("zookeeper")
    identity = folder / "identity.pem"
    identity.write_bytes(key.read_bytes() + cert.read_bytes())
    lines = [
        f"secureClientPort={port}",
        "secureClientPortAddress=127.0.0.1",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"ssl.keyStore.location={identity}",
        f"ssl.trustStore.location={authority.ca}",
        "ssl.keyStore.type=PEM",
        "ssl.trustStore.type=PEM",
        "ssl.clientAuth=need",
    ]
    with pytest.MonkeyPatch.context() as patch:
        plain = ZooKeeperNode._settings
        patch.setattr(ZooKeeperNode, "_settings", lambda node: plain(node) + "\n".join(lines) + "\n")
        with ZooKeeperServer(folder / "zookeeper") as server:
            yield Secure(server, f"localhost:{port}", authority)


@pytest.fixture
def zookeeper(secure: Secure) -> ZooKeeperServer:
    return secure.server


@pytest.fixture
async def make(zookeeper: ZooKeeperServer, cluster: str) -> AsyncIterator[Make]:
    """Makes coordinators of one cluster. The folder of all clusters is as new."""
    made: list[ZooKeeperCoordinator] = []
    with kazoo(zookeeper.hosts, auth_data=[("digest", "braid:secret"), ("digest", "braid:new")]) as client:
        client.delete("/braidmq", recursive=True)

    def one(access: ZooKeeperAccess, hosts: str = zookeeper.hosts) -> ZooKeeperCoordinator:
        made.append(
            ZooKeeperCoordinator(hosts, cluster, SystemClock(), session_timeout_seconds=SESSION_SECONDS, access=access)
        )
        return made[-1]

    yield one
    for each in made:
        await each.leave()


def nodes(client: KazooClient, path: str = "/braidmq") -> list[str]:
    """All nodes from there on."""
    return [path, *(each for name in client.get_children(path) for each in nodes(client, f"{path}/{name}"))]


def refused(client: KazooClient, path: str) -> int:
    """How many ways to read or change a node are refused, of six."""
    ways: list[Callable[[], object]] = [
        lambda: client.get(path),
        lambda: client.get_children(path),
        lambda: client.set(path, b"lie"),
        lambda: client.create(f"{path}/lie", b""),
        lambda: client.set_acls(path, OPEN_ACL_UNSAFE),
        lambda: client.delete(path),
    ]
    count = 0
    for way in ways:
        try:
            way()
        except NoAuthError:
            count += 1
    return count


async def test_without_our_credentials_nobody_reads_or_writes_our_nodes(zookeeper: ZooKeeperServer, make: Make) -> None:
    one, two = make(OURS), make(OURS)
    one.follow("orders")
    one.announce("orders")
    await one.join(broker("one"))
    await two.join(broker("two"))
    await until(lambda: ids(one) == ["one", "two"] and one.leader() == "one")
    with (
        kazoo(zookeeper.hosts, auth_data=[("digest", "braid:secret")]) as ours,
        kazoo(zookeeper.hosts) as nobody,
        kazoo(zookeeper.hosts, auth_data=[("digest", "braid:wrong")]) as other,
    ):
        await until(lambda: any(path.endswith("/topics/orders") for path in nodes(ours)))
        found = nodes(ours)
        assert len(found) == 8, found
        for path in found:
            # Whoever may delete a node is decided by its folder: that of `/braidmq` itself is not ours, but it is full.
            expected = 5 if path == "/braidmq" else 6
            for client in (nobody, other):
                if path != "/braidmq":
                    assert refused(client, path) == expected, path
                else:
                    for way in (client.get, client.get_children, lambda p, c=client: c.create(f"{p}/lie", b"")):
                        with pytest.raises(NoAuthError):
                            way(path)


@pytest.mark.parametrize(
    ("access", "why"),
    [(OTHERS, "its credentials are not those that made them"), (NOBODY, "it has no credentials")],
    ids=["wrong credentials", "none"],
)
async def test_a_broker_with_wrong_credentials_is_told_so_at_once(
    access: ZooKeeperAccess, why: str, make: Make
) -> None:
    one = make(OURS)
    await one.join(broker("one"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(NotAuthorized, match=f"does not let this broker use the nodes.*{why}; give all brokers"):
            await make(access).look()
    with pytest.raises(CoordinationFailed, match=why):
        await make(access).join(broker("two"))
    assert ids(one) == ["one"]


async def test_an_open_cluster_gets_credentials_one_broker_after_the_other(
    zookeeper: ZooKeeperServer, cluster: str, make: Make
) -> None:
    """First all brokers have credentials and leave nodes open; then those in their place close them.

    With two more rounds the password is another one.
    """
    coordinators = {name: make(NOBODY) for name in ("a", "b")}
    for name, each in coordinators.items():
        await each.join(broker(f"{name}.0"))
    with kazoo(zookeeper.hosts) as client:
        client.ensure_path(f"/braidmq/{cluster}/topics")
        for n in range(NODES_PER_ROUND + 20):
            client.create(f"/braidmq/{cluster}/topics/t{n}", b"")
    with (
        kazoo(zookeeper.hosts, auth_data=[("digest", "braid:secret")]) as before,
        kazoo(zookeeper.hosts, auth_data=[("digest", "braid:new")]) as after,
    ):
        changing = replace(OPENING, credentials="braid:new"), replace(OURS, credentials="braid:new")
        for stage, access in enumerate((OPENING, OURS, OPENING, *changing), 1):
            ours = before if access.credentials == OURS.credentials else after
            for name in coordinators:
                await coordinators[name].leave()
                coordinators[name] = make(access)
                await coordinators[name].join(broker(f"{name}.{stage}"))
                await until(lambda: agree(*coordinators.values()))
                coordinators[name].announce(f"by-{name}-{stage}")
                path = f"/braidmq/{cluster}/topics/by-{name}-{stage}"
                await until(lambda path=path, ours=ours: ours.exists(path) is not None)
            scheme = "world" if access.is_open else "digest"
            await until(lambda scheme=scheme, ours=ours: schemes(ours) == {scheme})


def agree(one: ZooKeeperCoordinator, other: ZooKeeperCoordinator) -> bool:
    """Whether brokers a and b see each other, and the same leader."""
    first, second = ((ids(each), each.leader(), each.in_touch()) for each in (one, other))
    found, leader, in_touch = first
    return first == second and [each[0] for each in found] == ["a", "b"] and in_touch and leader in found


def schemes(client: KazooClient) -> set[str]:
    """To whom nodes belong: the schemes of their ACLs."""
    return {acl.id.scheme for path in nodes(client) for acl in client.get_acls(path)[0]}


ANYWHERE, FOREIGN = "ip:0.0.0.0/0", make_digest_acl("eve", "secret", all=True)


def from_anywhere(**rights: bool) -> list[ACL]:
    """As `world:anyone`, by another name. Only IPv4, from where this test comes."""
    return [make_acl("ip", "0.0.0.0/0", **rights)]


async def test_who_made_the_nodes_first_keeps_no_rights(zookeeper: ZooKeeperServer, cluster: str, make: Make) -> None:
    paths = Paths(cluster)
    with (
        kazoo(zookeeper.hosts) as first,
        kazoo(zookeeper.hosts, auth_data=[("digest", "braid:secret")]) as ours,
    ):
        for path in (*paths.folders, paths.topic("t")):
            first.create(path, b"", acl=from_anywhere(all=True))
        ours.create(paths.topic("shared"), b"", acl=[*OURS_AS_READ, FOREIGN])
        await make(OURS).join(broker("one"))
        await until(lambda: {str(ours.get_acls(path)[0]) for path in nodes(ours)} == {str(OURS_AS_READ)})
        for path in (paths.root, paths.brokers, paths.topics, paths.leader, paths.topic("t"), paths.broker("one")):
            assert refused(first, path) == 6, path


@pytest.mark.parametrize("place", ["root", "brokers", "topics", "topic"])
async def test_a_broker_does_not_start_where_others_keep_rights(
    place: str, zookeeper: ZooKeeperServer, cluster: str, make: Make
) -> None:
    paths = Paths(cluster)
    theirs = paths.topic("t") if place == "topic" else getattr(paths, place)
    with kazoo(zookeeper.hosts) as first:
        for path in (*paths.folders, paths.topic("t")):
            rights = {"read": True, "write": True, "create": True, "delete": True}
            first.create(path, b"", acl=[*from_anywhere(**rights), FOREIGN] if path == theirs else OPEN_ACL_UNSAFE)
    # While brokers get credentials one by one, nodes are open: there is nothing to keep others from.
    opening = make(OPENING)
    await opening.join(broker("opening"))
    await opening.leave()
    told = f"others have rights in ZooKeeper's node {theirs}, .*: its ACL is {ANYWHERE} cdrw, digest:eve cdrwa; delete"
    with pytest.raises(CoordinationFailed, match=told) as refusal:
        await make(OURS).join(broker("one"))
    assert "\n" not in str(refusal.value)
    with kazoo(zookeeper.hosts, auth_data=[("digest", "eve:secret")]) as eve:
        eve.set_acls(theirs, OPEN_ACL_UNSAFE)
    running = make(OURS)
    await running.join(broker("two"))
    assert ids(running) == ["two"]


async def test_the_folder_of_all_clusters_stays_open_while_others_are_in_it(
    zookeeper: ZooKeeperServer, cluster: str, make: Make
) -> None:
    with kazoo(zookeeper.hosts) as other:
        other.ensure_path("/braidmq/other")
        await make(OURS).join(broker("one"))
        with kazoo(zookeeper.hosts, auth_data=[("digest", "braid:secret")]) as ours:
            await until(lambda: ours.get_acls(f"/braidmq/{cluster}")[0][0].id.scheme == "digest")
        assert other.get_acls("/braidmq/other")[0] == other.get_acls("/braidmq")[0] == OPEN_ACL_UNSAFE
        other.create("/braidmq/third", b"")


async def test_brokers_speak_tls_to_zookeeper_and_show_a_certificate(
    secure: Secure, make: Callable[..., ZooKeeperCoordinator]
) -> None:
    identity = secure.authority.sign("broker")
    tls = ZooKeeperTls(secure.authority.ca, identity.cert, identity.key)
    one, two = (make(ZooKeeperAccess("braid:secret", tls=tls), secure.tls_hosts) for _ in range(2))
    await one.join(broker("one"))
    await two.join(broker("two"))
    await until(lambda: ids(one) == ["one", "two"])
    plain = make(OURS)
    await plain.join(broker("three"))
    await until(lambda: ids(two) == ["one", "three", "two"])


async def test_why_tls_to_zookeeper_does_not_come_to_be_is_told(
    secure: Secure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_addresses, "TLS_SECONDS", PATIENCE_SECONDS)
    other = Authority(tmp_path, "other")
    identity = other.sign("broker")
    tls = ZooKeeperTls(other.ca, identity.cert, identity.key)
    why = await why_unreachable(secure.tls_hosts, tls)
    assert why.endswith("its certificate is not trusted: unable to get local issuer certificate")


@pytest.mark.parametrize(
    ("name", "why"),
    [("ca", r"--zookeeper-ca\) cannot be used"), ("cert", r"--zookeeper-cert\) with .* cannot be used")],
)
def test_files_that_cannot_be_used_are_named(name: str, why: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    tls = ZooKeeperTls(missing) if name == "ca" else ZooKeeperTls(None, missing, missing)
    with pytest.raises(InvalidConfig, match=why):
        tls.context()
    missing.write_text("nonsense")
    with pytest.raises(InvalidConfig, match=why):
        tls.context()
