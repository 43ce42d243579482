"""What the settings and the limit of open files come to."""

import pytest

from mq.base.settings import BrokerSettings
from mq.process.connections.limits import connection_limits, counted_as, limits_with_peer_listener


@pytest.mark.parametrize(
    ("descriptors", "open_now", "total"),
    [
        (1_048_576, 30, 10_000),
        (20_000, 30, 10_000),
        (4096, 30, 4096 - 30 - 1024),
        (1024, 24, 1024 - 24 - 256),
        (128, 30, 128 - 30 - 48),
        (64, 60, 8),
    ],
)
def test_descriptors_are_kept_for_the_store(descriptors: int, open_now: int, total: int) -> None:
    limits = connection_limits(BrokerSettings(), descriptors, open_now)
    assert limits.total == total
    assert limits.per_address == min(5_000, total)
    if descriptors > 64:
        assert limits.total + limits.surplus + open_now < descriptors


@pytest.mark.parametrize(
    ("descriptors", "clients", "brokers", "one"), [(1_048_576, 10_000, 10_000, 5_000), (4096, 2490, 766, 512)]
)
def test_clients_and_brokers_take_no_connections_of_each_other(
    descriptors: int, clients: int, brokers: int, one: int
) -> None:
    both = limits_with_peer_listener(BrokerSettings(peer_port=0), descriptors, 8)
    assert [each.total for each in both] == [clients, brokers]
    assert both[0].surplus == both[1].surplus == 0, "whoever asks for a path of brokers is no broker for that"
    assert both[1].per_address == one
    optional = limits_with_peer_listener(BrokerSettings(peer_port=0, peer_port_optional=True), descriptors, 8)
    assert optional[0].surplus > 0, "brokers still call the port for clients"


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("", None),
        ("127.0.0.1", None),
        ("127.9.9.9", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:0:1::7", "2001:db8:0:1::/64"),
        ("2001:db8:0:1:ffff::", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_address_of_ipv6_counts_with_its_network(address: str, name: str | None) -> None:
    assert counted_as(address) == name


def test_late_ones_are_looked_for_often_enough() -> None:
    assert connection_limits(BrokerSettings(), 10_000, 0).sweep_seconds == 1.0
    assert connection_limits(BrokerSettings(head_timeout=0.4), 10_000, 0).sweep_seconds == 0.1
