"""Brokers that have a port of their own: what each port serves and whom, and how a cluster gets from one to two."""

import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from websockets.exceptions import InvalidStatus

from braidmq import AsyncClient
from filer.clock import SystemClock
from filer.errors import InvalidConfig
from filer.stores.memory_store import MemoryStore
from mq.cli.diagnosis.checks import Finding, broker_findings
from mq.cli.diagnosis.peer_port import look_at, outcome_of
from mq.http.routes import ROUTES
from mq.peers.calls import CALLS, PREFIX, SECRET_HEADER
from tests.support.broker.http_broker import TIMEOUT_SECONDS, HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.broker.socket_client import socket_client
from tests.support.cluster.shared_coordinator import Membership, SharedCoordinator
from tests.support.net.authority import CLIENT, SERVER, Authority, Identity

NDJSON = {"content-type": "application/x-ndjson"}
LINES = b"\n".join(orjson.dumps({"key": str(number), "value": "v"}) for number in range(40))
OPTIONAL = {"peer_port_optional": True}


def _authority(folder: Path, name: str) -> Authority:
    (folder / name).mkdir()
    return Authority(folder / name, name)


class PrivateCluster:
    """Brokers that clients trust by one CA, and that trust each other by another one."""

    def __init__(self, folder: Path) -> None:
        self.public, self.private = (_authority(folder, name) for name in ("public", "private"))
        self.up: dict[str, HttpBroker] = {}
        self.membership = Membership()
        self.membership.session_seconds = 30.0
        self._store = MemoryStore()
        self._exits: dict[str, contextlib.AsyncExitStack] = {}

    def own(self, identity: Identity | None = None, ca: Path | None = None) -> dict[str, Any]:
        """The settings of a listener for brokers."""
        cert, key = identity or self.private.sign("broker")
        return {"peer_port": 0, "peer_tls_cert": cert, "peer_tls_key": key, "peer_tls_ca": ca or self.private.ca}

    async def start(self, name: str, **settings: Any) -> None:
        """Start a broker; without more, it is as one of an older version."""
        cert, key = self.public.sign(name)
        made = http_broker(
            self._store,
            coordinator=SharedCoordinator(self.membership),
            client_tls=self.public.client(),
            broker=name,
            drain_timeout=2.0,
            tls_cert=cert,
            tls_key=key,
            tls_ca=self.public.ca,
            **settings,
        )
        stack = contextlib.AsyncExitStack()
        self.up[name] = await stack.enter_async_context(made)
        self._exits[name] = stack

    async def stop(self, name: str) -> None:
        """Drain and end it."""
        del self.up[name]
        await self._exits.pop(name).aclose()

    async def publish(self, name: str) -> int:
        """Publish through a broker; returns how many were acknowledged."""
        answer = await self.up[name].client.post("/v1/topics/t/messages", content=LINES, headers=NDJSON)
        return sum(each["count"] for each in answer.raise_for_status().json()["positions"])

    async def count(self, name: str) -> int:
        """How many messages are read there."""
        client, after, found = self.up[name].client, {"from": "earliest"}, 0
        while True:
            answer = await client.get("/v1/topics/t/messages", params={**after, "limit": "10000"})
            page = answer.raise_for_status().json()
            if not page["messages"]:
                return found
            after, found = {"marker": page["marker"]}, found + len(page["messages"])

    def to_brokers(self, name: str, tls: ssl.SSLContext) -> httpx.AsyncClient:
        """A client of a broker's listener for brokers."""
        return httpx.AsyncClient(base_url=self.up[name].peer_url, verify=tls, timeout=TIMEOUT_SECONDS, trust_env=False)

    @property
    def names(self) -> set[str]:
        """Those that have joined."""
        return {each.partition(".")[0] for each in self.membership.members}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[PrivateCluster]:
    made = PrivateCluster(tmp_path)
    yield made
    for name in list(made.up):
        # Nobody is left to take over from the last one.
        made.membership.leaders = set()
        await made.stop(name)


async def test_each_port_serves_its_own_and_only_brokers_get_in_at_theirs(cluster: PrivateCluster) -> None:
    for name in "ab":
        await cluster.start(name, **cluster.own())
    assert {each.peer_url for each in cluster.membership.members.values()} == {b.peer_url for b in cluster.up.values()}
    (
        await cluster.up["a"].client.put("/v1/topics/t", json={"segments": 4, "acks": "replicated", "replicas": 2})
    ).raise_for_status()
    assert await cluster.publish("a") + await cluster.publish("b") == await cluster.count("b") == 80
    secret = {SECRET_HEADER: cluster.up["a"].broker.peers._secret}
    for call in CALLS:
        path = "".join(
            f"/{name}s/{value}" for name, value in (("topic", "t"), ("segment", "0")) if name in call.path_names
        )
        answer = await cluster.up["a"].client.request(call.method, f"{PREFIX}{path}/{call.name}", headers=secret)
        check_problem(answer, 403, "forbidden", "brokers have a port of their own here")
    good = cluster.private.sign("c")
    async with cluster.to_brokers("a", cluster.private.client(good)) as client:
        assert (await client.get(f"{PREFIX}/presence", headers=secret)).status_code == 200
        check_problem(await client.get(f"{PREFIX}/presence"), 403, "forbidden", "only for the brokers of the cluster")
        check_problem(await client.get(f"{PREFIX}/nothing", headers=secret), 404, "path-not-found")
        for route in ROUTES:
            path = route.of(*["1"] * route.template.count("{")).path
            answer = await client.request(route.method, path, headers=secret, content=b"x")
            check_problem(answer, 404, "path-not-found", "this port is for the brokers of the cluster")
    with pytest.raises(InvalidStatus, match="HTTP 404"):
        async with socket_client(cluster.up["a"].peer_url, "t", ssl=cluster.private.client(good)):
            pass
    strangers = {
        "no certificate": cluster.private.client(),
        "one for clients": cluster.private.client(),
        "a server's": cluster.private.client(cluster.private.sign("server", purposes=(SERVER,))),
    }
    strangers["one for clients"].load_cert_chain(*cluster.public.sign("client"))
    for kind, tls in strangers.items():
        async with cluster.to_brokers("a", tls) as client:
            with pytest.raises((httpx.TransportError, ssl.SSLError)):
                await client.get(f"{PREFIX}/presence", headers=secret)
                pytest.fail(kind)


async def test_who_has_a_wrong_certificate_or_no_port_for_brokers_is_told_why_and_does_not_join(
    cluster: PrivateCluster, tmp_path: Path
) -> None:
    await cluster.start("a", **cluster.own())
    private, other = cluster.private, _authority(tmp_path, "other")
    both = tmp_path / "both.pem"
    both.write_bytes(private.ca.read_bytes() + other.ca.read_bytes())
    nobody_would = (
        r"no other broker would take the certificate '.*' \(--peer-tls-cert\) by the CAs in .*, for '127.0.0.1'"
    )
    refused = "do not take this one for one of them, and it does not join: give it "
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "of another CA": (cluster.own(other.sign("w")), f"{nobody_would}.*: unable to get local issuer certificate"),
        "of another name": (cluster.own(private.sign("w", "b.example.org")), f"{nobody_would}.*: IP address mismatch"),
        "for servers": (
            cluster.own(private.sign("w", purposes=(SERVER,))),
            f"{nobody_would}.*: unsuitable certificate",
        ),
        "for clients": (
            cluster.own(private.sign("w", purposes=(CLIENT,))),
            r"\(--peer-tls-cert\) cannot be used: unsui",
        ),
        "of another cluster": (
            cluster.own(other.sign("w"), other.ca),
            f"{refused}a certificate of the CA that they trust.*self-signed certificate in certificate chain",
        ),
        "trusting too much": (
            cluster.own(other.sign("w"), both),
            f"{refused}a certificate of the CA that they trust.*it does not trust the CA of this broker's certificate",
        ),
        "no port": ({}, rf"{refused}a listener for brokers, as they have \(--peer-port\)"),
    }
    for name, (settings, why) in cases.items():
        with pytest.raises(InvalidConfig, match=why) as caught:
            await cluster.start("w", **settings)
        assert "\n" not in str(caught.value) and cluster.names == {"a"}, name


async def test_a_port_for_brokers_demands_one_of_all(cluster: PrivateCluster) -> None:
    await cluster.start("a")
    with pytest.raises(InvalidConfig, match=r"has no listener for brokers.* give this one --peer-port-optional until"):
        await cluster.start("b", **cluster.own())
    assert cluster.names == {"a"}


async def test_doctor_sees_where_brokers_call_each_other_as_somebody_who_is_none(
    cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BRAIDMQ_CA", str(cluster.public.ca))

    async def told() -> dict[str, list[Finding]]:
        async with AsyncClient(cluster.up["a"].url) as client:
            found: dict[str, list[Finding]] = {}
            for each in await broker_findings(client, SystemClock()):
                found.setdefault(each.check, []).append(each)
            return found

    await cluster.start("a")
    found = await told()
    assert [each.result for each in found["calls of brokers"]] == ["ok"]
    assert [(each.result, each.detail) for each in found["port for brokers"]] == [
        ("ok", "none: brokers call each other at the port for clients")
    ]
    await cluster.stop("a")
    await cluster.start("a", **cluster.own(cluster.private.sign("a", until=timedelta(days=30))), **OPTIONAL)
    await cluster.start("b")
    (ports, of_a) = (await told())["port for brokers"]
    assert ports.result == "warning" and re.fullmatch(r"b\.\w+ have none, the others do: .*--peer-port", ports.detail)
    assert of_a.result == "ok" and "closes the connection of who is no broker, shows a certificate that ends in" in (
        of_a.detail
    )
    await cluster.stop("b")
    (tmp_path / "keys").write_text(f"k1 {'ab' * 32}")
    await cluster.start("b", **cluster.own(), peer_keys=tmp_path / "keys", peer_keys_optional=True, **OPTIONAL)
    found = await told()
    assert [each.result for each in found["keys of brokers"]] == ["warning"], "the first one has none"
    ports, of_a, of_b = found["port for brokers"]
    assert (ports.result, of_a.result, of_b.result) == ("ok", "ok", "warning")
    assert of_b.detail.startswith("b.") and "ends in 1.0 days" in of_b.detail


async def test_doctor_tells_of_a_port_for_brokers_that_asks_for_no_certificate(cluster: PrivateCluster) -> None:
    """It speaks TLS as the port for clients does; without that, on this machine alone."""
    await cluster.start("a", peer_port=0)
    seen = await look_at(cluster.up["a"].peer_url, SystemClock())
    assert (seen.has_tls, seen.status) == (True, 403) and seen.left_seconds is not None
    assert 0 < seen.left_seconds < 2 * 86_400
    result, detail = outcome_of("a", cluster.up["a"].peer_url, seen, proves_by_keys=False)
    assert result == "warning" and "--peer-tls-ca" in detail


async def test_a_cluster_goes_from_one_port_to_two_and_back_broker_after_broker(cluster: PrivateCluster) -> None:
    """First all have both ports and go on with those that have one; then none goes on with such; then back again."""
    for name in "ab":
        await cluster.start(name)
    (await cluster.up["a"].client.put("/v1/topics/t", json={"segments": 4})).raise_for_status()
    expected = 0
    for settings in ({**cluster.own(), **OPTIONAL}, cluster.own(), {**cluster.own(), **OPTIONAL}, {}):
        for name in "ab":
            await cluster.stop(name)
            await cluster.start(name, **settings)
            for through in "ab":
                expected += await cluster.publish(through)
                assert await cluster.count(through) == expected
    assert expected == 4 * 2 * 2 * 40
