"""Quotas of principals, by a clock that only the test moves."""

import asyncio
from typing import Any

import pytest

from filer.clock import ManualClock, settle
from filer.errors import InvalidInput
from mq.base.errors import QuotaExceeded
from mq.limits.quotas import MOST_SHARES, SHOWN_SECONDS, Quotas, Share, StorageUse
from mq.limits.storage_watch import WATCH_SECONDS, StorageWatch
from mq.security.caller import Seat
from mq.security.grants import Pattern
from mq.security.needs import Need
from mq.security.policy.document import Policy, parse_policy, parse_stored_policy

PUBLISH, READ, OBSERVE = (Need(action, "topic", "t") for action in ("publish", "read", "observe"))


class Broker:
    """A policy in force, and the time."""

    def __init__(self, **limits: int) -> None:
        self.seconds = 100.0
        self.policy: Policy | None = None
        self.quotas = Quotas(lambda: self.policy, lambda: self.seconds)
        if limits:
            self.limit(**limits)

    def limit(self, principal: str = "shop*", **limits: int) -> None:
        self.policy = parse_policy({"quotas": [{"principal": principal, **limits}]})

    def share(self, name: str = "shop-1") -> Share:
        share = self.quotas.share(name)
        assert share is not None
        return share


def refused(share: Share, need: Need) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as caught:
        share.begin(need)
    return caught.value


def test_so_many_requests_a_second() -> None:
    broker = Broker(requests_per_second=10)
    for _ in range(10):
        broker.share().begin(OBSERVE)
    told = refused(broker.share(), OBSERVE)
    assert (told.limit, told.value, told.retry_after_seconds) == ("requests_per_second", 10, 1)
    let_in = 0
    for _ in range(1000):
        broker.seconds += 0.01
        try:
            broker.share().begin(OBSERVE)
            let_in += 1
        except QuotaExceeded:
            pass
    assert 99 <= let_in <= 101


@pytest.mark.parametrize(("limit", "need", "other"), [
    ("publish_bytes_per_second", PUBLISH, READ), ("read_bytes_per_second", READ, PUBLISH),
])  # fmt: skip
def test_a_body_may_make_a_debt_that_is_waited_for(limit: str, need: Need, other: Need) -> None:
    broker = Broker(**{limit: 1000})
    share = broker.share()
    share.begin(need)
    (share.published if need is PUBLISH else share.read)(11_000)
    told = refused(share, need)
    assert (told.limit, told.retry_after_seconds) == (limit, 11)
    share.begin(other)
    broker.seconds += 9.9
    assert refused(share, need).retry_after_seconds == 1
    broker.seconds += 0.2
    share.begin(need)


def test_the_fast_path_counts_as_the_other_does() -> None:
    broker = Broker(requests_per_second=3, publish_bytes_per_second=1000)
    share = broker.share()
    assert [share.begin_publish(1) is None for _ in range(4)] == [True, True, True, False]
    assert refused(share, PUBLISH).limit == "requests_per_second"
    broker.seconds += 1
    assert share.begin_publish(5000) is None and share.begin_publish(1) is not None
    broker.seconds += 1
    assert refused(share, PUBLISH).limit == "publish_bytes_per_second"
    share.begin(READ)


def test_what_is_open_counts_until_it_ends() -> None:
    share = Broker(streams=2).share()
    with share.stream(), share.stream(), pytest.raises(QuotaExceeded, match="streams = 2"), share.stream():
        pass
    with share.stream():
        pass


def test_topics_by_the_hour() -> None:
    broker = Broker(topics_per_hour=2)
    share = broker.share()
    for _ in range(2):
        share.reserve_topic()
    with pytest.raises(QuotaExceeded, match="topics_per_hour = 2"):
        share.reserve_topic()
    broker.seconds += 1801
    share.reserve_topic()
    with pytest.raises(QuotaExceeded, match="topics_per_hour = 2"):
        share.reserve_topic()
    share.created_topics(-1)
    share.reserve_topic()


def test_each_principal_has_its_own_and_others_have_none() -> None:
    broker = Broker(requests_per_second=1)
    broker.share("shop-1").begin(OBSERVE)
    refused(broker.share("shop-1"), OBSERVE)
    broker.share("shop-2").begin(OBSERVE)
    assert broker.quotas.share("ann") is None
    assert Broker().quotas.share("shop-1") is None


def test_a_change_of_the_quotas_counts_at_once_and_any_other_forgets_nothing() -> None:
    broker = Broker(requests_per_second=1)
    broker.share().begin(OBSERVE)
    assert broker.policy is not None
    grants = [{"principal": "ann", "grants": ["cluster:observe"]}]
    broker.policy = parse_policy({"grants": grants, "quotas": broker.policy.sections()["quotas"]})
    refused(broker.share(), OBSERVE)
    broker.limit(requests_per_second=2)
    broker.share().begin(OBSERVE)
    broker.limit("ann", requests_per_second=2)
    assert broker.quotas.share("shop-1") is None
    broker.policy = Policy()
    assert not broker.quotas.limits_somebody and broker.quotas.share("ann") is None


def test_memory_is_bounded() -> None:
    broker = Broker(requests_per_second=1)
    for number in range(MOST_SHARES + 10):
        broker.share(f"shop-{number}")
    assert len(broker.quotas) == MOST_SHARES


def test_connections_count_for_who_uses_them_last() -> None:
    broker = Broker(connections=2)
    share, seats = broker.share(), [Seat() for _ in range(3)]
    for seat in (seats[0], seats[1], seats[0], None):
        share.sit(seat)
    with pytest.raises(QuotaExceeded, match="connections = 2") as caught:
        share.sit(seats[2])
    assert caught.value.used == 2 and not share.may_sit(seats[2]) and share.may_sit(seats[1])
    broker.share("shop-2").sit(seats[0])
    assert share.may_sit(seats[2]) and not share.may_sit(Seat())
    for _ in range(2):
        seats[1].leave()
    assert share.may_sit(Seat()) and not share.may_sit(Seat())
    Broker(streams=1).share().sit(Seat())


def test_a_connection_leaves_its_seat_for_one_without_such_a_limit() -> None:
    share, seat = Broker(connections=1).share(), Seat()
    for free in (Broker(streams=1).share().sit, Broker(streams=1).share().may_sit):
        share.sit(seat)
        assert not share.may_sit(Seat())
        free(seat)
        assert seat.among is None
    assert share.may_sit(Seat())


@pytest.mark.parametrize(("limits", "part"), [
    ({"connections": 0}, "connections is a whole number"),
    ({"connections": 2**53 + 1}, "not 9007199254740993; the most is 9007199254740992"),
    ({"storage_bytes": 1}, "belong together"),
    ({"storage_topics": "a-*"}, "belong together"),
    ({"storage_bytes": 1, "storage_topics": 7}, "is a topic's name"),
    ({"storage_bytes": 1, "storage_topics": "a b"}, "storage_topics: 'a b' is no pattern"),
    ({"storage_bytes": "1", "storage_topics": "a"}, "storage_bytes is a whole number"),
])  # fmt: skip
def test_what_limits_nothing_is_refused(limits: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidInput, match=part):
        parse_policy({"quotas": [{"principal": "shop", **limits}]})


def test_what_a_newer_version_wrote_counts_as_far_as_it_is_safe() -> None:
    grant = {"principal": "ann", "grants": ["cluster:observe"]}
    document = {
        "grants": [grant, {**grant, "principal": "bob", "only_from": "10.0.0.0/8"}],
        "revoked_tokens": [{"id": "t", "until": "2100-01-01T00:00:00Z", "why": "lost"}],
        "quotas": [{"principal": "a", "dreams": 1}, {"principal": "a", "dreams": 1, "streams": 2}],
        "rooms": [],
    }
    found = parse_stored_policy(document, 3)
    assert [each["principal"] for each in found.sections()["grants"]] == ["ann"], "it may give less than it says"
    assert [each["id"] for each in found.sections()["revoked_tokens"]] == ["t"]
    assert found.sections()["quotas"] == [{"principal": "a"}, {"principal": "a", "streams": 2}]
    assert found.unknown == ("grants.only_from", "quotas.dreams", "revoked_tokens.why", "rooms")
    with pytest.raises(InvalidInput):
        parse_policy(document)


async def test_the_storage_of_the_least_quota_is_told_as_it_was_measured() -> None:
    """Whoever asks has nothing measured. Figures that are old are not told."""
    stored, seconds, measured = {"orders-*": 90, "birds": 10}, [100.0], []

    async def measure(topics: Pattern) -> int:
        measured.append(str(topics))
        return stored[str(topics)]

    quotas = [
        {"principal": principal, "storage_bytes": most, "storage_topics": topics}
        for principal, most, topics in (("a", 1000, "orders-*"), ("b", 100, "orders-*"), ("c", 20, "birds"))
    ]
    policy = parse_policy({"quotas": [*quotas, {"principal": "d", "streams": 1}]})
    told = Quotas(lambda: policy, lambda: seconds[0], measure)
    assert told.storage_used() == {}
    await settle()
    assert told.storage_used() == {} and measured == []
    told.measure_storage()
    await settle()
    assert told.storage_used() == {"orders-*": StorageUse(0.9, 0.0), "birds": StorageUse(0.5, 0.0)}
    stored["birds"], seconds[0] = 15, 100.0 + SHOWN_SECONDS
    assert told.storage_used() == {"orders-*": StorageUse(0.9, SHOWN_SECONDS), "birds": StorageUse(0.5, SHOWN_SECONDS)}
    await settle()
    assert sorted(measured) == ["birds", "orders-*"]
    seconds[0] += 1
    assert told.storage_used() == {}
    told.measure_storage()
    await settle()
    assert told.storage_used()["birds"] == StorageUse(0.75, 0.0)
    assert Quotas(lambda: None, lambda: 0.0).storage_used() == {}


async def test_the_broker_that_leads_measures_storage_where_nobody_publishes() -> None:
    leads, measured, clock = [False], [], ManualClock()

    async def measure(topics: Pattern) -> int:
        measured.append(str(topics))
        return 5

    policy = parse_policy({"quotas": [{"principal": "a", "storage_bytes": 10, "storage_topics": "birds"}]})
    quotas = Quotas(lambda: policy, clock.monotonic_seconds, measure)
    watching = asyncio.create_task(StorageWatch(quotas, clock, lambda: leads[0]).run())
    await settle()
    for leads[0], most in ((False, 0), (True, 1), (True, 2), (False, 2)):
        await clock.advance(WATCH_SECONDS)
        assert len(measured) == most
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
