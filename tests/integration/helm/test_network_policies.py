"""Who may connect to whom, by the chart's NetworkPolicies."""

from pathlib import Path

import pytest

from tests.support.kube.chart import CASES, GIVEN, NAMESPACE, manifests
from tests.support.kube.network_policies import Peer, Port, is_allowed

HTTP, PEERS = Port(8080, "http"), Port(8081, "peers")
CLIENT, QUORUM, ELECTION = Port(2181, "client"), Port(2888, "quorum"), Port(3888, "election")
NAMES, NAMES_BY_TCP, STORE = Port(53, protocol="UDP"), Port(53), Port(443)
ELSEWHERE = Peer("elsewhere", {"app": "shop"}, {"braidmq-client": "true"})
UNKNOWN = Peer("unknown", {"app": "shop"}, {})
OUTSIDE = Peer("", {})
(PRODUCTION,) = (each for each in CASES if each.stem == "production-values")


def of_chart(component: str) -> Peer:
    labels = {"app.kubernetes.io/name": "braidmq", "app.kubernetes.io/instance": "queue"}
    return Peer(NAMESPACE, {**labels, "app.kubernetes.io/component": component})


BROKER, MEMBER, TEST, JOB = map(of_chart, ("broker", "zookeeper", "test", "job"))
ALWAYS = {
    "brokers ask ZooKeeper": (BROKER, MEMBER, CLIENT, True),
    "members follow their leader": (MEMBER, MEMBER, QUORUM, True),
    "members elect it": (MEMBER, MEMBER, ELECTION, True),
    "brokers speak to each other": (BROKER, BROKER, PEERS, True),
    "brokers reach the store": (BROKER, OUTSIDE, STORE, True),
    "brokers ask for names": (BROKER, OUTSIDE, NAMES, True),
    "members ask for names": (MEMBER, OUTSIDE, NAMES, True),
    "members ask for names that are long": (MEMBER, OUTSIDE, NAMES_BY_TCP, True),
    "helm test uses brokers": (TEST, BROKER, HTTP, True),
    "jobs use brokers": (JOB, BROKER, HTTP, True),
    "nobody else asks ZooKeeper": (TEST, MEMBER, CLIENT, False),
    "jobs do not ask ZooKeeper": (JOB, MEMBER, CLIENT, False),
    "others do not ask ZooKeeper": (ELSEWHERE, MEMBER, CLIENT, False),
    "brokers are no members": (BROKER, MEMBER, QUORUM, False),
    "jobs are no brokers": (JOB, BROKER, PEERS, False),
    "others are no brokers": (ELSEWHERE, BROKER, PEERS, False),
    "ZooKeeper uses no broker": (MEMBER, BROKER, HTTP, False),
    "ZooKeeper reaches nothing outside": (MEMBER, OUTSIDE, STORE, False),
}


@pytest.mark.parametrize("values", [None, PRODUCTION], ids=["defaults", "production"])
@pytest.mark.parametrize(("source", "target", "port", "allowed"), ALWAYS.values(), ids=list(ALWAYS))
def test_who_reaches_whom(source: Peer, target: Peer, port: Port, allowed: bool, values: Path | None) -> None:
    assert is_allowed(policies(values), source, target, port) is allowed


@pytest.mark.parametrize(("source", "by_default", "in_production"), [(ELSEWHERE, True, True), (UNKNOWN, True, False)])
def test_clients_are_all_or_those_that_are_named(source: Peer, by_default: bool, in_production: bool) -> None:
    assert is_allowed(policies(None), source, BROKER, HTTP) is by_default
    assert is_allowed(policies(PRODUCTION), source, BROKER, HTTP) is in_production


def policies(values: Path | None) -> list[object]:
    found = manifests(values=values) if values else manifests(given=GIVEN)
    return [each for each in found if each["kind"] == "NetworkPolicy"]
