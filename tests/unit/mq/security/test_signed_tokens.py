"""Tokens that must not get by, and those that must."""

from collections.abc import Callable
from typing import Any

import pytest

from mq.base.errors import Unauthenticated
from mq.security.key_ring import KeyRing
from mq.security.principal import Principal
from mq.security.signed_tokens import SKEW_SECONDS, Audience, UnknownKey, verify
from tests.support.token_maker import NOW_SECONDS, TokenMaker

ISSUER = "https://id.example"
UNWANTED = TokenMaker(issuer="https://other.example", key_id="o1")
AUDIENCE = Audience("braidmq", {ISSUER: "our-queue"})
OWN = TokenMaker()
OF_ISSUER = TokenMaker.on_p256(issuer=ISSUER, audience="our-queue", key_id="i1")
RING = KeyRing([*OWN.keys, *OF_ISSUER.keys, *UNWANTED.keys])
GRANT = "topic:orders-*:read"


def verified(token: str, now_seconds: float = NOW_SECONDS) -> Principal:
    return verify(token, RING, AUDIENCE, now_seconds)


def refusal(token: str, now_seconds: float = NOW_SECONDS) -> str:
    with pytest.raises(Unauthenticated) as caught:
        verified(token, now_seconds)
    return str(caught.value)


def test_a_token_of_the_clusters_own_key_names_its_principal() -> None:
    principal = verified(OWN.token(GRANT, "cluster:observe"))
    assert principal.name == "ann" and principal.token_id == "t1"
    assert [str(each) for each in principal.grants.all] == [GRANT, "cluster:observe"]
    assert principal.until_seconds == NOW_SECONDS + 3600 + SKEW_SECONDS


def test_a_token_of_an_issuer_names_a_principal_of_the_issuer() -> None:
    """Nobody whom an issuer calls ann is our own ann."""
    token = OF_ISSUER.token(scope=f"openid email braidmq:{GRANT}", aud=["other", "our-queue"])
    principal = verified(token)
    assert principal.name == f"{ISSUER}#ann" and [str(each) for each in principal.grants.all] == [GRANT]


def test_without_a_scope_a_token_allows_nothing() -> None:
    assert verified(OWN.token(scope=None)).grants.all == ()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"aud": "other"}, "for another audience: here it has to be 'braidmq'"),
        ({"aud": None}, "for another audience"),
        ({"aud": ["a", "b"]}, "for another audience"),
        ({"aud": {"braidmq": 1}}, "for another audience"),
        (
            {"iss": "https://evil.example"},
            "of the issuer 'https://evil.example', and signed with a key of 'braidmq'",
        ),
        ({"iss": ISSUER}, "is of the issuer 'https://id.example', and signed with a key of 'braidmq'"),
        ({"iss": None}, "is of the issuer None"),
        ({"iss": ["braidmq"]}, "is of the issuer ['braidmq']"),
        ({"exp": None}, "has no end (exp)"),
        ({"exp": "never"}, "has no end (exp)"),
        ({"exp": True}, "has no end (exp)"),
        ({"exp": float("nan")}, "has no end (exp)"),
        ({"exp": float("inf")}, "has no end (exp)"),
        ({"exp": NOW_SECONDS - SKEW_SECONDS}, "has expired"),
        ({"nbf": NOW_SECONDS + SKEW_SECONDS + 1}, "not in force yet (nbf)"),
        ({"iat": NOW_SECONDS + SKEW_SECONDS + 1}, "not in force yet (iat)"),
        ({"nbf": "now"}, "not in force yet (nbf)"),
        ({"sub": None}, "names no subject"),
        ({"sub": ""}, "names no subject"),
        ({"sub": "a\nb"}, "names no subject"),
        ({"sub": "a" * 201}, "names no subject"),
        ({"sub": 7}, "names no subject"),
        ({"jti": 7}, "the token's id (jti)"),
        ({"scope": "braidmq:topic:orders-*:raed"}, "unknown action 'raed'"),
        ({"scope": "braidmq:everything"}, "is no grant"),
        ({"scope": {"a": 1}}, "no text of words"),
        ({"scope": [7]}, "no text of words"),
    ],
)
def test_claims_that_are_not_accepted(changed: dict[str, Any], why: str) -> None:
    assert why in refusal(OWN.token(GRANT, **changed))


def test_clocks_may_be_off_a_little() -> None:
    token = OWN.token(GRANT, iat=NOW_SECONDS + SKEW_SECONDS, nbf=NOW_SECONDS + SKEW_SECONDS, exp=NOW_SECONDS + 100)
    assert verified(token).name == "ann"
    assert verified(token, NOW_SECONDS + 100 + SKEW_SECONDS - 1).name == "ann"
    assert "has expired" in refusal(token, NOW_SECONDS + 100 + SKEW_SECONDS)


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        pytest.param(lambda: OWN.unsigned(GRANT), "signature is not that of its key", id="alg none"),
        pytest.param(lambda: OWN.signed_with_the_public_key(GRANT), "signature is not that of its key", id="HS256 OKP"),
        pytest.param(
            lambda: OF_ISSUER.signed_with_the_public_key(GRANT), "signature is not that of its key", id="HS256 EC"
        ),
        pytest.param(lambda: TokenMaker().token(GRANT), "signature is not that of its key", id="another key"),
        pytest.param(lambda: TokenMaker(key_id="k9").token(GRANT), "is not known here: 'k9'", id="unknown key"),
        pytest.param(
            # An issuer that is trusted for its own people signs as the cluster itself.
            lambda: TokenMaker(key=OF_ISSUER.key, key_id="i1").token(GRANT),
            "a key of 'https://id.example'",
            id="issuer's key",
        ),
        pytest.param(lambda: OWN.token(GRANT, header={"crit": ["exp"]}), "demands extensions", id="crit"),
        pytest.param(lambda: OWN.unsigned(GRANT, key_id=7), "the id of its key", id="kid"),
        pytest.param(lambda: OWN.token(GRANT)[:-8] + "AAAAAAAA", "signature is not that of its key", id="cut"),
        pytest.param(lambda: OWN.token(GRANT).rpartition(".")[0] + ".", "signature is not", id="no signature"),
        pytest.param(lambda: "a.b", "three parts", id="two parts"),
        pytest.param(lambda: "..", "no JSON", id="empty parts"),
        pytest.param(lambda: "bnVsbA.bnVsbA.", "no objects", id="null"),
        pytest.param(lambda: "W1tb.W1tb.x", "no JSON", id="brackets"),
        pytest.param(lambda: f"{'W1tb' * 500}.e30.x", "no JSON", id="deep"),
        pytest.param(lambda: f"{'W1tb' * 600}.e30.x", "2048 are the most", id="long header"),
        pytest.param(lambda: "ä.ö.ü", "no JSON", id="umlauts"),
        pytest.param(lambda: "\udcff.\udcff.\udcff", "no JSON", id="surrogates"),
        pytest.param(lambda: OWN.token(GRANT, more="x" * 8000), "8192 are the most", id="long"),
    ],
)
def test_tokens_that_no_key_has_signed(forged: Callable[[], str], why: str) -> None:
    assert why in refusal(forged())


def test_an_unknown_key_is_told_as_such() -> None:
    """So that the keys of an issuer are fetched again."""
    with pytest.raises(UnknownKey):
        verified(TokenMaker(key_id="k2").token(GRANT))


def test_who_may_issue_no_tokens_here_is_refused() -> None:
    assert "tokens of the issuer 'https://other.example' are not accepted" in refusal(UNWANTED.token(GRANT))


def test_two_issuers_may_have_keys_of_the_same_id() -> None:
    other = TokenMaker(issuer=ISSUER, audience="our-queue")
    ring = KeyRing([*OWN.keys, *other.keys])
    assert verify(OWN.token(GRANT), ring, AUDIENCE, NOW_SECONDS).name == "ann"
    assert verify(other.token(GRANT), ring, AUDIENCE, NOW_SECONDS).name == f"{ISSUER}#ann"
    forged = TokenMaker(issuer="braidmq", key=other.key).token(GRANT)
    with pytest.raises(Unauthenticated, match="signed with a key of"):
        verify(forged, ring, AUDIENCE, NOW_SECONDS)
