import pytest

from filer.errors import InvalidInput
from mq.security.grants import ACTIONS, EVERYTHING, MOST_GRANTS, parse_grant, parse_grants


@pytest.mark.parametrize(
    "word",
    [
        "topic:orders-*:read,publish",
        "topic:orders:*",
        "topic:*:observe",
        "topic:__audit:read",
        "topic:orders-*/billing-*:consume",
        "topic:orders/*:consume,manage",
        "cluster:observe",
        "cluster:*",
    ],
)
def test_a_grant_reads_as_it_is_written(word: str) -> None:
    assert str(parse_grant(word)) == word


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("orders-*", "is no grant: write topic:PATTERN:ACTIONS"),
        ("topic:orders-*", "is no grant"),
        ("topic:orders-*:read:publish", "is no grant"),
        ("topics:orders-*:read", "is no grant"),
        ("cluster:*:manage", "is no grant"),
        ("topic:orders-*:raed", "unknown action 'raed': did you mean 'read'?"),
        ("topic:orders-*:", "unknown action ''"),
        ("topic:orders-*:read,*", "unknown action '*'"),
        ("cluster:read", "unknown action 'read'"),
        ("topic::read", "'' in the grant 'topic::read' is no pattern"),
        ("topic:a*b:read", "is no pattern"),
        ("topic:a/:consume", "is no pattern"),
        ("topic:a/g:read", "unknown action 'read'"),
        ("topic:a/b/c:consume", "is no pattern"),
        ("topic:ä:read", "is no pattern"),
        ("topic:a\n:read", "is no pattern"),
        (f"topic:{'a' * 201}:read", "is no pattern"),
    ],
)
def test_what_is_no_grant_is_refused(word: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_grant(word)
    assert why in str(caught.value)


def test_too_many_grants_are_refused() -> None:
    with pytest.raises(InvalidInput, match="101 grants are too many"):
        parse_grants(["cluster:observe"] * (MOST_GRANTS + 1))


def test_a_prefix_ends_where_it_ends() -> None:
    grants = parse_grants(["topic:orders-*:read", "topic:bills:publish"])
    assert grants.allow("read", "orders-") and grants.allow("read", "orders-eu")
    assert (
        not grants.allow("read", "orders")
        and not grants.allow("read", "order")
        and not grants.allow("read", "Orders-eu")
    )
    assert grants.allow("publish", "bills") and not grants.allow("publish", "bills2")
    assert not grants.allow("publish", "orders-eu") and not grants.allow("read", "bills")


def test_who_may_do_anything_sees_it() -> None:
    grants = parse_grants(["topic:orders-*:publish", "topic:bills/daily-*:consume"])
    assert grants.allow("observe", "orders-eu") and grants.allow("observe", "orders-eu", "any")
    assert grants.allow("observe", "bills") and grants.allow("observe", "bills", "daily-1")
    assert not grants.allow("observe", "bills", "weekly") and not grants.allow("observe", "other")
    assert not grants.allow_on_cluster("observe")


def test_a_grant_for_groups_is_for_nothing_else() -> None:
    grants = parse_grants(["topic:bills/daily-*:consume,manage"])
    assert grants.allow("consume", "bills", "daily-1") and grants.allow("manage", "bills", "daily-1")
    assert not grants.allow("consume", "bills", "weekly")
    assert not grants.allow("read", "bills") and not grants.allow("manage", "bills")


def test_every_topic_is_none_of_the_brokers_own() -> None:
    grants = parse_grants(["topic:*:*", "topic:_*:read"])
    assert grants.allow("read", "t") and grants.allow("read", "_t")
    assert not grants.allow("observe", "__groups") and not grants.allow("read", "__audit")
    assert parse_grants(["topic:__audit:read"]).allow("read", "__audit")
    assert parse_grants(["topic:__*:read"]).allow("read", "__groups")


def test_everything_is_everything() -> None:
    for action in ACTIONS:
        assert all(EVERYTHING.allow(action, topic) for topic in ("t", "__groups"))
        assert EVERYTHING.allow(action, "t", "g")
    assert EVERYTHING.allow_on_cluster("manage") and EVERYTHING.allow_on_cluster("observe")


def test_the_cluster_is_no_topic() -> None:
    grants = parse_grants(["cluster:manage"])
    assert grants.allow_on_cluster("manage") and grants.allow_on_cluster("observe")
    assert not any(grants.allow(action, "t") for action in ACTIONS)
    assert not parse_grants(["cluster:observe"]).allow_on_cluster("manage")
    assert not parse_grants(["topic:*:*"]).allow_on_cluster("observe")
