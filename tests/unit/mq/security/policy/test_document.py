"""What a policy says, and what it decides about a principal."""

from typing import Any

import pytest

from filer.errors import InvalidInput
from mq.base.errors import Revoked, Unauthenticated
from mq.security.grants import MOST_GRANTS, parse_grants
from mq.security.policy.document import MOST_ENTRIES, Decisions, Policy, parse_policy, parse_stored_policy
from mq.security.policy.limits import Limits
from mq.security.principal import Principal

ISSUER = "https://id.example.org"
NOON = "2026-11-27T12:00:00Z"
NOON_SECONDS = 1_795_780_800.0
WHOLE: dict[str, Any] = {
    "grants": [{"principal": f"{ISSUER}#*", "grants": ["topic:orders-*:read,publish", "cluster:observe"]}],
    "revoked_tokens": [{"id": "t1", "until": "2026-11-27T12:00:00Z"}],
    "revoked_principals": [{"principal": "shop", "before": "2026-11-27T12:00:00Z"}],
    "quotas": [{"principal": "shop*", "requests_per_second": 100, "streams": 5}],
}


def test_what_is_read_is_what_is_shown() -> None:
    policy = parse_policy(WHOLE, 7)
    assert policy.version == 7 and policy.sections() == WHOLE
    assert parse_policy({}).sections() == {name: [] for name in WHOLE}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"grant": []}, "unknown section 'grant': did you mean 'grants'?"),
        ({"grants": {}}, "grants is a list of objects"),
        ({"grants": ["x"]}, "grants, 1 of 1: it is no object"),
        ({"grants": [{"principals": "x"}]}, "unknown field 'principals': did you mean 'principal'?"),
        ({"grants": [{"principal": "", "grants": ["cluster:observe"]}]}, "it needs principal, a principal's name"),
        ({"grants": [{"principal": "a\nb", "grants": ["cluster:observe"]}]}, "it needs principal, a principal's name"),
        ({"grants": [{"principal": "x" * 1001, "grants": ["cluster:observe"]}]}, "of 1 to 1000"),
        ({"grants": [{"principal": "x", "grants": []}]}, "it needs grants, a list of texts"),
        ({"grants": [{"principal": "x", "grants": ["topic:a:raed"]}]}, "did you mean 'read'?"),
        ({"grants": [{"principal": "x", "grants": ["cluster:observe"]}] * 1001}, "1000 are the most"),
        ({"revoked_tokens": [{"id": 7, "until": NOON}]}, "it needs id, the id (jti) of a token"),
        ({"revoked_tokens": [{"id": "t"}]}, "it needs until, a time with a zone"),
        ({"revoked_tokens": [{"id": "t", "until": "2026-11-27T12:00:00"}]}, "it needs until, a time with a zone"),
        ({"revoked_tokens": [{"id": "t", "until": NOON}] * 2}, "two entries have the id 't'"),
        ({"revoked_principals": [{"principal": "a", "before": NOON}] * 2}, "two entries have the principal 'a'"),
        ({"revoked_tokens": [{}] * (MOST_ENTRIES["revoked_tokens"] + 1)}, "10000 are the most"),
        ({"quotas": [{"principal": "x"}]}, "it limits nothing"),
        ({"quotas": [{"principal": "x", "request_per_second": 1}]}, "did you mean 'requests_per_second'?"),
        ({"quotas": [{"principal": "x", "streams": 0}]}, "streams is a whole number from 1 on, not 0"),
        ({"quotas": [{"principal": "x", "streams": True}]}, "streams is a whole number from 1 on, not True"),
        ({"quotas": [{"principal": "x", "streams": 2**60}]}, "streams is a whole number"),
    ],
)
def test_what_is_no_policy_is_refused_with_its_place(document: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_policy(document)
    assert why in str(caught.value)


def principal(name: str, *grants: str, token_id: str | None = None, issued: float | None = None) -> Principal:
    return Principal(name, parse_grants(grants), token_id=token_id, issued_seconds=issued)


def test_grants_are_added_to_those_in_the_credential() -> None:
    decided = Decisions(parse_policy(WHOLE))
    granted = decided.applied(principal(f"{ISSUER}#ann", "topic:bills:read"))
    assert [str(each) for each in granted.grants.all] == [
        "topic:bills:read",
        "topic:orders-*:read,publish",
        "cluster:observe",
    ]
    for other in ("ann", f"{ISSUER}.evil#ann", ISSUER, "https://id.example.or"):
        assert not decided.grants_of(other)


@pytest.mark.parametrize(
    ("given", "is_refused"),
    [
        (principal("ann", token_id="t1"), True),
        (principal("ann", token_id="t2"), False),
        (principal("ann"), False),
        (principal("shop", issued=NOON_SECONDS - 1), True),
        (principal("shop", issued=NOON_SECONDS), False),
        (principal("shop"), True),
        (principal("shop-2"), False),
    ],
)
def test_what_is_revoked_is_nobody(given: Principal, is_refused: bool) -> None:
    decided = Decisions(parse_policy(WHOLE))
    if not is_refused:
        assert decided.applied(given).name == given.name
        return
    with pytest.raises(Revoked, match="revoked") as refusal:
        decided.applied(given)
    # The audit trail tells whose it was.
    assert refusal.value.principal == given.name and isinstance(refusal.value, Unauthenticated)


def test_the_first_quota_that_means_a_principal_counts() -> None:
    quotas = [{"principal": "shop-1", "streams": 1}, {"principal": "shop*", "streams": 2}]
    decided = Decisions(parse_policy({"quotas": quotas}))
    found = [decided.limits_of(name) for name in ("shop-1", "shop-2", "ann")]
    assert [each and each.streams for each in found] == [1, 2, None]


def test_the_next_writer_drops_what_has_ended() -> None:
    given = parse_policy(WHOLE)
    soon, late = int((NOON_SECONDS + 59) * 1e6), int((NOON_SECONDS + 60) * 1e6)
    assert given.after(Policy(version=4), soon).tokens == given.tokens
    after = given.after(Policy(version=4), late)
    assert (after.version, after.tokens, after.principals) == (5, (), given.principals)


NEWER: list[tuple[str, Any, list[Any], tuple[str, ...]]] = [
    (
        "grants",
        {
            "principal": "ann",
            "grants": ["topic:orders-*:peek", "topic:a:read", "schema:a:read", "topic:a:read,peek", 7],
        },
        [{"principal": "ann", "grants": ["topic:a:read"]}],
        ("grants 'schema:a:read'", "grants 'topic:a:read,peek'", "grants 'topic:orders-*:peek'", "grants 7"),
    ),
    (
        "grants",
        {"principal": "ann", "grants": ["topic:a:peek"]},
        [],
        ("grants 'topic:a:peek'",),
    ),
    ("grants", {"principal": "ann", "grants": "topic:a:read"}, [], ("grants, 2 of 3",)),
    ("grants", {"principal": "*@ann", "grants": ["topic:*:*"]}, [], ("grants, 2 of 3",)),
    (
        "grants",
        {"principal": "ann", "grants": ["topic:*:*"], "from": "10.0.0.0/8"},
        [],
        ("grants.from",),
    ),
    ("grants", "ann: everything", [], ("grants, 2 of 3",)),
    ("quotas", {"role": "shop", "streams": 3}, [], ("quotas.role",)),
    (
        "quotas",
        {"principal": "ann", "streams": 0.5, "connections": 3},
        [{"principal": "ann", "connections": 3}],
        ("quotas.streams",),
    ),
    (
        "quotas",
        {"principal": "ann", "storage_bytes": 9, "storage_group": "g", "streams": 3},
        [{"principal": "ann", "streams": 3}],
        ("quotas.storage_bytes", "quotas.storage_group"),
    ),
    (
        "quotas",
        {"principal": "ann", "storage_bytes": 9, "storage_topics": ["a"]},
        [{"principal": "ann"}],
        ("quotas.storage_bytes", "quotas.storage_topics"),
    ),
    ("quotas", {"principal": "ann", "dreams": 3}, [{"principal": "ann"}], ("quotas.dreams",)),
    ("revoked_tokens", {"kid": "k1", "until": NOON}, [], ("revoked_tokens, 2 of 3", "revoked_tokens.kid")),
    (
        "revoked_tokens",
        {"id": "t2", "until": None, "why": "lost"},
        [{"id": "t2", "until": "9999-12-31T00:00:00Z"}],
        ("revoked_tokens.until", "revoked_tokens.why"),
    ),
    ("revoked_tokens", {"id": "t1", "until": "2026-11-27T11:00:00Z"}, None, ()),
    ("revoked_principals", {"principal": "bob*", "before": NOON}, [], ("revoked_principals, 2 of 3",)),
    ("revoked_principals", {"principal": "bob", "before": 7}, [], ("revoked_principals, 2 of 3",)),
]
LAST: dict[str, Any] = {
    "grants": {"principal": "zoe", "grants": ["topic:a:read"]},
    "revoked_tokens": {"id": "t9", "until": NOON},
    "revoked_principals": {"principal": "zoe", "before": NOON},
    "quotas": {"principal": "*", "streams": 1},
}


@pytest.mark.parametrize(("section", "entry", "left", "unknown"), NEWER)
def test_of_a_newer_policy_that_alone_is_left_out_which_is_not_understood(
    section: str, entry: Any, left: list[Any] | None, unknown: tuple[str, ...]
) -> None:
    """What stands before it, behind it and in other sections counts. No client may send it."""
    written = {name: [*entries, LAST[name]] for name, entries in WHOLE.items()}
    expected = {name: list(entries) for name, entries in written.items()}
    written[section].insert(1, entry)
    expected[section][1:1] = left or []
    policy = parse_stored_policy(written, 7)
    assert (policy.sections(), policy.unknown, policy.version) == (expected, unknown, 7)
    is_loud = section.startswith("revoked") and left == []
    assert policy.not_revoked == ((f"{section}, 2 of 3",) if is_loud else ())
    with pytest.raises(InvalidInput):
        parse_policy(written)


def test_a_quota_without_a_known_limit_keeps_its_principals_from_the_one_behind() -> None:
    quotas = [{"principal": "shop-1", "dreams": 1}, {"principal": "shop*", "streams": 2}]
    decided = Decisions(parse_stored_policy({"quotas": quotas}, 1))
    assert decided.limits_of("shop-1") == Limits() and decided.limits_of("shop-2") == Limits(streams=2)


def test_newer_policies_may_have_more_of_everything() -> None:
    """Of what a newer version revokes in a section of its own, nothing counts here: that is told in any case."""
    words = [f"topic:t{n}:read" for n in range(MOST_GRANTS + 1)]
    written = {
        "grants": [{"principal": "ann", "grants": words}] * (MOST_ENTRIES["grants"] + 1),
        "revoked_keys": [{"kid": "k1"}],
        "audits": [],
        "quotas": [{"principal": "ann", f"field_{n}": 1} for n in range(100)],
    }
    policy = parse_stored_policy(written, 1)
    assert len(policy.grants) == 1001 and len(policy.grants[0].grants.all) == 101 and len(policy.quotas) == 100
    assert (
        {"revoked_keys", "audits"} <= {*policy.unknown}
        and len(policy.unknown) == 51
        and policy.unknown[-1] == "52 more"
    )
    assert policy.not_revoked == ("revoked_keys",)
