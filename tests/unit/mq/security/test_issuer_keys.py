import json

import pytest

from mq.security.issuer_keys import AGAIN_SECONDS, REFRESH_SECONDS, IssuerFailed, IssuerKeys, why_not_fetched
from tests.support.instant_clock import InstantClock
from tests.support.token_maker import TokenMaker

ISSUER = "https://id.example/realm"
KEYS = "https://id.example/realm/keys"
MAKER = TokenMaker(issuer=ISSUER)


class Answers(dict[str, bytes]):
    """What is at each address."""

    async def fetch(self, url: str) -> bytes:
        if url not in self:
            raise IssuerFailed(f"{url} answered 404")
        return self[url]


def discovery(**changed: object) -> bytes:
    return json.dumps({"issuer": ISSUER, "jwks_uri": KEYS, **changed}).encode()


def answers(document: bytes | None = None) -> Answers:
    return Answers({f"{ISSUER}/.well-known/openid-configuration": document or discovery(), KEYS: MAKER.key_set})


async def test_its_keys_are_where_its_discovery_document_says() -> None:
    keys = IssuerKeys(ISSUER, answers().fetch, InstantClock())
    assert [(key.issuer, key.key_id) for key in await keys.fetch()] == [(ISSUER, "k1")]


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"{", "is no JSON"),
        (b"[]", "that of another issuer"),
        (discovery(issuer="https://evil.example"), "that of another issuer"),
        (discovery(jwks_uri=None), "cannot be used"),
        (discovery(jwks_uri=7), "cannot be used"),
        (discovery(jwks_uri="http://id.example/keys"), "could be anybody's: it has to be https"),
        (discovery(jwks_uri="file:///etc/passwd"), "it has to be https://host/path"),
        (discovery(jwks_uri="https://user@id.example/keys"), "it has to be https://host/path"),
        (discovery(jwks_uri="https://id.example:99999/keys"), "it is no address"),
        (discovery(jwks_uri=f"{ISSUER}/nowhere"), "answered 404"),
        (discovery(jwks_uri=f"{ISSUER}/.well-known/openid-configuration"), "a key set has the form"),
    ],
)
async def test_what_an_issuer_may_not_say(document: bytes, why: str) -> None:
    with pytest.raises(IssuerFailed) as caught:
        await IssuerKeys(ISSUER, answers(document).fetch, InstantClock()).fetch()
    assert why in str(caught.value)


async def test_what_nobody_foresaw_is_a_failure_of_the_issuer_too() -> None:
    async def fetch(url: str) -> bytes:
        raise RuntimeError

    with pytest.raises(IssuerFailed, match="RuntimeError"):
        await IssuerKeys(ISSUER, fetch, InstantClock()).fetch()


async def test_unknown_keys_have_it_asked_again_and_a_flood_of_them_not_more_often() -> None:
    clock = InstantClock()
    keys = IssuerKeys(ISSUER, answers().fetch, clock)
    assert keys.is_due
    await keys.fetch()
    await clock.sleep(AGAIN_SECONDS)
    assert not keys.is_due
    for _ in range(1000):
        keys.ask()
    assert keys.is_due
    await keys.fetch()
    keys.ask()
    assert not keys.is_due
    await clock.sleep(AGAIN_SECONDS)
    assert keys.is_due
    await keys.fetch()
    await clock.sleep(REFRESH_SECONDS)
    assert keys.is_due


async def test_one_that_does_not_answer_is_asked_again_soon() -> None:
    clock = InstantClock()
    keys = IssuerKeys(ISSUER, Answers().fetch, clock)
    with pytest.raises(IssuerFailed):
        await keys.fetch()
    assert not keys.is_due
    await clock.sleep(AGAIN_SECONDS)
    assert keys.is_due


@pytest.mark.parametrize(
    ("url", "is_fetched"),
    [
        ("https://id.example/keys", True),
        ("http://127.0.0.1:8000/keys", True),
        ("http://localhost/keys", True),
        ("http://[::1]:8000/keys", True),
        ("http://localhost.evil.example/keys", False),
        ("http://127.0.0.1.evil.example/keys", False),
        ("https:///keys", False),
        ("//id.example/keys", False),
        ("gopher://id.example", False),
    ],
)
def test_keys_come_by_https(url: str, is_fetched: bool) -> None:
    assert (why_not_fetched(url) is None) == is_fetched
