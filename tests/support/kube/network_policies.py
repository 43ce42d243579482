"""What NetworkPolicies allow, as a pure function of them and of pods' labels.

It knows what the chart uses: selectors by `matchLabels`, ports by name or number, and protocols. It refuses the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

Labels = Mapping[str, str]


class Peer(NamedTuple):
    """A pod, or whatever else is at one end of a connection: then it has no labels."""

    namespace: str
    labels: Labels
    namespace_labels: Labels = MappingProxyType({})


class Port(NamedTuple):
    """Where a connection goes to: the number, and the name that the pod's container gives it."""

    number: int
    name: str = ""
    protocol: str = "TCP"


def is_allowed(policies: Iterable[Mapping[str, Any]], source: Peer, target: Peer, port: Port) -> bool:
    """Whether the source's policies let it out to that port of the target, and the target's let it in."""
    found = list(policies)
    return _allows(found, "Egress", target, source, port) and _allows(found, "Ingress", source, target, port)


def _allows(policies: Sequence[Mapping[str, Any]], kind: str, other: Peer, own: Peer, port: Port) -> bool:
    """Pods that no policy chooses are open."""
    chosen = [each for each in policies if kind in each["spec"]["policyTypes"] and _chooses(each, own)]
    rules = [rule for each in chosen for rule in each["spec"].get(kind.lower(), ())]
    side = {"Ingress": "from", "Egress": "to"}[kind]
    return not chosen or any(_fits(rule, side, own.namespace, other, port) for rule in rules)


def _chooses(policy: Mapping[str, Any], peer: Peer) -> bool:
    return policy["metadata"]["namespace"] == peer.namespace and _selects(policy["spec"]["podSelector"], peer.labels)


def _fits(rule: Mapping[str, Any], side: str, namespace: str, other: Peer, port: Port) -> bool:
    assert rule.keys() <= {"ports", side}, rule
    ports = rule.get("ports")
    peers = rule.get(side)
    return (ports is None or any(_is_port(each, port) for each in ports)) and (
        peers is None or any(_is_peer(each, namespace, other) for each in peers)
    )


def _is_port(rule: Mapping[str, Any], port: Port) -> bool:
    assert rule.keys() <= {"port", "protocol"}, rule
    return rule.get("protocol", "TCP") == port.protocol and rule["port"] in (port.number, port.name)


def _is_peer(rule: Mapping[str, Any], namespace: str, other: Peer) -> bool:
    assert rule.keys() <= {"podSelector", "namespaceSelector"}, rule
    if "namespaceSelector" in rule:
        in_namespace = _selects(rule["namespaceSelector"], other.namespace_labels)
    else:
        in_namespace = other.namespace == namespace
    return in_namespace and _selects(rule.get("podSelector", {}), other.labels)


def _selects(selector: Mapping[str, Any], labels: Labels) -> bool:
    assert selector.keys() <= {"matchLabels"}, selector
    return selector.get("matchLabels", {}).items() <= labels.items()
