"""Where brokers call each other, with and without listeners of their own for that."""

import pytest

from leader.membership.coordinator import BrokerInfo
from mq.peers import call_addresses
from mq.peers.call_addresses import CallAddresses

OLDER = BrokerInfo("o", "https://o", "", "1")
NEWER = BrokerInfo("n", "https://n/", "", "2", peer_url="https://n:9/")


@pytest.mark.parametrize(
    ("addresses", "older", "newer"),
    [
        (CallAddresses(), ("https://o", False), ("https://n/", False)),
        (CallAddresses(has_listener=True, is_optional=True), ("https://o", False), ("https://n:9/", True)),
        (CallAddresses(has_listener=True), (None, True), ("https://n:9/", True)),
    ],
    ids=["without a listener", "with one that is optional", "with one"],
)
def test_brokers_with_a_listener_call_each_other_there(
    addresses: CallAddresses, older: tuple[str | None, bool], newer: tuple[str, bool]
) -> None:
    assert addresses.of(OLDER) == older[0] and addresses.of(NEWER) == newer[0]
    assert addresses.are_peer_only("https://o") == older[1]
    assert addresses.are_peer_only(newer[0].rstrip("/")) == newer[1]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_addresses, "MOST_ADDRESSES", 3)
    addresses = CallAddresses(has_listener=True, is_optional=True)
    for life in range(9):
        addresses.of(BrokerInfo(f"b.{life}", "https://b", "", "2", peer_url=f"https://b:{life}"))
    assert [life for life in range(9) if addresses.are_peer_only(f"https://b:{life}")] == [6, 7, 8]
