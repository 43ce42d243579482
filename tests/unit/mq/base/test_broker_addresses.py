"""Addresses of brokers: those that live, and for a while those that did."""

from typing import cast

import pytest

from leader.membership.coordinator import BrokerInfo, Coordinator
from mq.base import broker_addresses as subject
from mq.base.broker_addresses import BrokerAddresses


class Announced:
    """The brokers that are announced."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def brokers(self) -> list[BrokerInfo]:
        return [BrokerInfo(name, f"http://{name}", "", "1") for name in self.names]


@pytest.fixture
def announced() -> Announced:
    return Announced()


@pytest.fixture
def addresses(announced: Announced) -> BrokerAddresses:
    return BrokerAddresses(cast(Coordinator, announced))


def test_a_broker_that_was_never_asked_for_is_known_after_it_has_gone(
    announced: Announced, addresses: BrokerAddresses
) -> None:
    announced.names = ["a", "b"]
    addresses.record()
    announced.names = ["a"]
    assert addresses.url_of("b") is None
    assert addresses.last_url_of("b") == "http://b"
    assert addresses.last_url_of("never heard of") is None


def test_the_addresses_of_brokers_longest_gone_are_forgotten(
    announced: Announced, addresses: BrokerAddresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted broker is another one: their number only grows."""
    monkeypatch.setattr(subject, "MOST_LAST_URLS", 10)
    for life in range(100):
        announced.names = ["stays", f"b.{life}"]
        addresses.record()
    assert len(addresses._last_urls) == 10
    announced.names = []
    assert addresses.last_url_of("b.99") == "http://b.99" and addresses.last_url_of("stays") == "http://stays"
    assert addresses.last_url_of("b.0") is None
    announced.names = [f"c{n}" for n in range(20)]
    assert all(addresses.last_url_of(name) == f"http://{name}" for name in announced.names)
