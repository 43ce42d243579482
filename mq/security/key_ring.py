"""Public keys that tokens are signed with, by issuer and key id: from a file, or from an OIDC issuer.

The form is a JSON Web Key Set (RFC 7517). Only asymmetric signatures are known, and each key is good for one algorithm.
So no token chooses how it is checked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from filer.errors import InvalidInput

PublicKey: TypeAlias = Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey
ALGORITHMS = ("EdDSA", "ES256", "RS256")
MOST_KEYS, MOST_BYTES = 100, 256 * 1024
_LEAST_RSA_BITS, _MOST_RSA_BITS = 2048, 8192
_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "k")
_KINDS = {("OKP", "Ed25519"): "EdDSA", ("EC", "P-256"): "ES256", ("RSA", None): "RS256"}


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and the only algorithm that it is good for."""

    issuer: str
    key_id: str
    algorithm: str
    public_key: PublicKey


class KeyRing:
    """Keys by issuer and id."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = {(key.issuer, key.key_id): key for key in keys}
        self._by_id: dict[str, list[Key]] = {}
        for key in self._keys.values():
            self._by_id.setdefault(key.key_id, []).append(key)

    def __len__(self) -> int:
        return len(self._keys)

    def of_id(self, key_id: str) -> Sequence[Key]:
        """The keys of that id, of any issuer."""
        return self._by_id.get(key_id, ())

    def with_keys_of(self, issuer: str, keys: Iterable[Key]) -> "KeyRing":
        """This ring with these keys of an issuer, in place of those it had."""
        return KeyRing([*(key for key in self._keys.values() if key.issuer != issuer), *keys])


def parse_key_set(text: bytes, issuer: str, *, strict: bool) -> list[Key]:
    """The keys of a JSON Web Key Set that may sign tokens of that issuer.

    A `strict` set has nothing else: a key that cannot be used is refused. In other sets it is left out. Raises
    `InvalidInput`.
    """
    if len(text) > MOST_BYTES:
        raise InvalidInput(f"a key set of {len(text)} bytes is too large: {MOST_BYTES} are the most")
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"the key set is no JSON: {error}") from error
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise InvalidInput('a key set has the form {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": …, "x": …}]}')
    if len(listed) > MOST_KEYS:
        raise InvalidInput(f"a key set of {len(listed)} keys is too large: {MOST_KEYS} are the most")
    keys: list[Key] = []
    for number, each in enumerate(listed, 1):
        try:
            keys.append(_key(each, issuer))
        except InvalidInput as error:
            if strict:
                raise InvalidInput(f"key {number} of {len(listed)}: {error}") from error
    if len({key.key_id for key in keys}) < len(keys):
        raise InvalidInput("two keys of the set have the same kid")
    return keys


def _key(given: Mapping[str, Any], issuer: str) -> Key:
    key_id = given.get("kid")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= 200:
        raise InvalidInput("it needs a kid, a text of 1 to 200 characters")
    if given.get("use", "sig") != "sig":
        raise InvalidInput(f"its use is {given.get('use')!r:.40}, and not sig")
    public = {name: value for name, value in given.items() if name not in _PRIVATE}
    try:
        public_key = PyJWK(public, algorithm=_algorithm(public)).key
    except (PyJWTError, ValueError, TypeError, KeyError) as error:
        raise InvalidInput(f"it cannot be read: {error}") from error
    algorithm = _algorithm(public)
    if isinstance(public_key, RSAPublicKey) and not _LEAST_RSA_BITS <= public_key.key_size <= _MOST_RSA_BITS:
        raise InvalidInput(f"it has {public_key.key_size} bits: RSA keys have {_LEAST_RSA_BITS} to {_MOST_RSA_BITS}")
    if isinstance(public_key, EllipticCurvePublicKey) and not isinstance(public_key.curve, SECP256R1):
        raise InvalidInput("its curve is not P-256")
    if not isinstance(public_key, Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey):
        raise InvalidInput("it is no public key of Ed25519, P-256 or RSA")
    return Key(issuer, key_id, algorithm, public_key)


def _algorithm(given: Mapping[str, Any]) -> str:
    """The algorithm that a key is good for, by its kind. The key's own `alg` may not differ."""
    kind = given.get("kty"), given.get("crv")
    algorithm = next((algorithm for known, algorithm in _KINDS.items() if known == kind), None)
    if algorithm is None:
        raise InvalidInput(f"kty and crv are {kind!r:.80}: OKP with Ed25519, EC with P-256, and RSA are known")
    if given.get("alg", algorithm) != algorithm:
        raise InvalidInput(f"its alg is {given.get('alg')!r:.40}, and not {algorithm}")
    return algorithm
