"""The private keys that sign a cluster's own tokens, in a file that brokers never get.

The newest key signs. Tokens of older keys stay good as long as brokers have the public parts. A rotation writes the
public keys first: no token is signed with a key that the file for brokers does not have.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt import PyJWK, encode
from jwt.algorithms import OKPAlgorithm

from filer.clock import Clock
from filer.errors import InvalidInput
from filer.regular_file import read_regular_file
from mq.base.private_file import refuse_if_open
from mq.security.grants import Grants
from mq.security.key_ring import MOST_BYTES, parse_key_set
from mq.security.own_names import check_own_name
from mq.security.signed_tokens import MOST_BYTES as LONGEST_TOKEN
from mq.security.signed_tokens import OWN_ISSUER, SCOPE_PREFIX

ALGORITHM = "EdDSA"
_NAME = re.compile(r"[!-~]{1,200}")


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """Private keys as JSON Web Keys, the newest last."""

    keys: tuple[dict[str, Any], ...]

    def public(self) -> dict[str, Any]:
        """The key set for brokers."""
        return {"keys": [{name: value for name, value in key.items() if name != "d"} for key in self.keys]}

    def rotated(self, clock: Clock, keep: int) -> "SigningKeys":
        """These keys with a new one, and only the newest `keep` of those before."""
        private = Ed25519PrivateKey.from_private_bytes(clock.entropy(32))
        made = {**json.loads(OKPAlgorithm.to_jwk(private)), "kid": clock.ulid(), "alg": ALGORITHM, "use": "sig"}
        return SigningKeys((*(self.keys[-keep:] if keep else ()), made))

    def sign(
        self, name: str, grants: Grants, *, audience: str, ttl_seconds: float, clock: Clock
    ) -> tuple[str, dict[str, Any]]:
        """A token and its claims. Raises `InvalidInput` if brokers would not accept it."""
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"{name!r:.210} is no name: use 1 to 200 printable ASCII characters without spaces")
        check_own_name(name)
        if not grants.all:
            raise InvalidInput("a token without a grant allows nothing: give one, as topic:orders-*:read")
        now_seconds = clock.now_us() // 1_000_000
        claims = {
            "iss": OWN_ISSUER,
            "sub": name,
            "aud": audience,
            "iat": now_seconds,
            "exp": now_seconds + int(ttl_seconds),
            "jti": clock.ulid(),
            "scope": " ".join(f"{SCOPE_PREFIX}{grant}" for grant in grants.all),
        }
        newest = self.keys[-1]
        token = encode(claims, PyJWK(newest), ALGORITHM, headers={"kid": newest["kid"]})
        if len(token) > LONGEST_TOKEN:
            raise InvalidInput(f"a token of {len(token)} bytes is too long: {LONGEST_TOKEN} are the most; use prefixes")
        return token, claims


def read_signing_keys(path: Path) -> SigningKeys:
    """The keys of a file. Raises `InvalidInput`, also if others may read it, and `OSError` if it cannot be read."""
    text = read_regular_file(path, MOST_BYTES + 1)
    try:
        parse_key_set(text, OWN_ISSUER, strict=True)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error
    keys = json.loads(text)["keys"]
    if not keys or any(not isinstance(key.get("d"), str) or key.get("crv") != "Ed25519" for key in keys):
        raise InvalidInput(f"{path} has no private keys of Ed25519: mq token rotate-key makes such a file")
    refuse_if_open(path)
    return SigningKeys(tuple(keys))


def key_ids(keys: Sequence[dict[str, Any]]) -> list[str]:
    """The ids of keys, in their order."""
    return [key["kid"] for key in keys]
