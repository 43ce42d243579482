import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from jwt.algorithms import RSAAlgorithm

from filer.errors import InvalidInput
from mq.security.key_ring import MOST_BYTES, MOST_KEYS, KeyRing, parse_key_set
from tests.support.token_maker import TokenMaker

ED, EC = TokenMaker().public_jwk, TokenMaker.on_p256(key_id="k2").public_jwk


def key_set(*keys: Any) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def rsa(bits: int) -> dict[str, Any]:
    public = generate_private_key(65537, bits).public_key()
    return {**json.loads(RSAAlgorithm.to_jwk(public)), "kid": "r"}


def test_each_key_is_good_for_one_algorithm() -> None:
    keys = parse_key_set(key_set(ED, EC, rsa(2048)), "i", strict=True)
    assert [(key.key_id, key.algorithm) for key in keys] == [("k1", "EdDSA"), ("k2", "ES256"), ("r", "RS256")]


def test_the_private_part_is_left_where_it_is() -> None:
    (key,) = parse_key_set(key_set({**ED, "d": "c2VjcmV0"}), "i", strict=True)
    assert not hasattr(key.public_key, "sign")


NO_SETS = [
    (b"{", "no JSON"),
    (b"[]", "has the form"),
    (b'{"keys": [7]}', "has the form"),
    (key_set({**ED, "kid": None}), "key 1 of 1: it needs a kid"),
    (key_set(ED, {**EC, "kid": ""}), "key 2 of 2: it needs a kid"),
    (key_set({**ED, "use": "enc"}), "its use is 'enc'"),
    (key_set({**ED, "alg": "HS256"}), "its alg is 'HS256', and not EdDSA"),
    (key_set({"kty": "oct", "k": "c2VjcmV0", "kid": "k"}), "kty and crv are ('oct', None)"),
    (key_set({**ED, "crv": "Ed448"}), "kty and crv are ('OKP', 'Ed448')"),
    (key_set({**EC, "crv": "P-384"}), "kty and crv are ('EC', 'P-384')"),
    (key_set({**ED, "x": "AAAA"}), "it cannot be read"),
    (key_set({**EC, "x": 7}), "it cannot be read"),
    (key_set(rsa(1024)), "it has 1024 bits"),
    (key_set(ED, ED), "the same kid"),
    (key_set(*[ED] * (MOST_KEYS + 1)), "100 are the most"),
    (b" " * (MOST_BYTES + 1), "is too large"),
]


@pytest.mark.parametrize(("text", "why"), NO_SETS, ids=[why for _, why in NO_SETS])
def test_what_is_no_key_set_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_key_set(text, "i", strict=True)
    assert why in str(caught.value)


def test_an_issuers_set_may_have_keys_for_others() -> None:
    keys = parse_key_set(key_set({**EC, "use": "enc"}, {"kty": "oct", "k": "x", "kid": "k"}, ED), "i", strict=False)
    assert [key.key_id for key in keys] == ["k1"]


def test_a_key_counts_for_its_issuer_only_and_is_gone_when_the_issuer_drops_it() -> None:
    ring = KeyRing(parse_key_set(key_set(ED), "a", strict=True))
    assert [key.issuer for key in ring.of_id("k1")] == ["a"] and not ring.of_id("k2")
    both = ring.with_keys_of("b", parse_key_set(key_set(EC, ED), "b", strict=True))
    assert [key.issuer for key in both.of_id("k2")] == ["b"]
    assert [key.issuer for key in both.of_id("k1")] == ["a", "b"]
    later = both.with_keys_of("b", [])
    assert not later.of_id("k2") and [key.issuer for key in later.of_id("k1")] == ["a"]
