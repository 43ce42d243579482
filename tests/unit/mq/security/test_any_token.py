"""Whatever a client sends as its credential: it is a principal, or refused in one way. Nothing else comes of it."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jwt import api_jws

from mq.base.errors import Unauthenticated
from mq.security.credentials import Credentials, Known
from mq.security.key_ring import KeyRing
from mq.security.principal import Principal
from mq.security.signed_tokens import Audience
from tests.support.instant_clock import InstantClock
from tests.support.thoroughness import few_or_many
from tests.support.token_maker import NOW_SECONDS, TokenMaker

MAKER = TokenMaker()
GOOD = MAKER.token("topic:orders-*:read").encode()
CLAIMS = MAKER.claims("topic:orders-*:read")
EXAMPLES = few_or_many(200, 5000)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


class _Clock(InstantClock):
    def now_us(self) -> int:
        return int(NOW_SECONDS * 1e6)


def principal_of(authorization: bytes) -> Principal | None:
    credentials = Credentials(_Clock(), Audience("braidmq", {}))
    credentials.use(Known(KeyRing(MAKER.keys)))
    try:
        return credentials.principal(authorization)
    except Unauthenticated as refusal:
        assert str(refusal) and len(str(refusal)) < 2000
        return None


def test_a_good_one_is_good() -> None:
    assert principal_of(b"Bearer " + GOOD) is not None


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"", b"Bearer ", b"bearer a.b.", b"Basic "]))
def test_any_bytes(data: bytes, before: bytes) -> None:
    assert principal_of(before + data) is None


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=4), st.integers(0, 4))
def test_a_good_one_with_some_bytes_replaced(at: int, put: bytes, dropped: int) -> None:
    """base64 has several texts for the same bytes, so one that differs may be the same token."""
    changed = GOOD[:at] + put + GOOD[at + dropped :]
    found = principal_of(b"Bearer " + changed)
    assert found is None or (found.name == "ann" and found.token_id == "t1")


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from([*CLAIMS, "nbf", "crit", "more"]), ANY_JSON)
def test_any_claim_that_its_key_has_signed(name: str, value: Any) -> None:
    payload = json.dumps({**CLAIMS, name: value}).encode()
    token = api_jws.encode(payload, MAKER.key, MAKER.algorithm, {"kid": "k1"})
    found = principal_of(b"Bearer " + token.encode())
    assert found is None or isinstance(found, Principal)
