"""Tokens that are checked without any lookup: JSON Web Tokens (RFC 7519) with asymmetric signatures.

The keys are the brokers' own, or those of an OpenID issuer. The claim `scope` (RFC 8693 §4.2) has the bearer's rights:
words that begin with `braidmq:`, each with a grant behind it. Other words are for other systems.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jwt import api_jws
from jwt.exceptions import PyJWTError
from jwt.utils import base64url_decode

from filer.errors import InvalidInput
from mq.base.errors import Unauthenticated
from mq.security.grants import Grants, parse_grants
from mq.security.key_ring import Key, KeyRing
from mq.security.own_names import OF_ISSUER, check_own_name
from mq.security.principal import Principal

OWN_ISSUER = "braidmq"
SCOPE_PREFIX = "braidmq:"
SKEW_SECONDS = 30.0
"""Clocks of token issuers may be off by so much."""
MOST_BYTES = 8 * 1024
_LONGEST_HEADER = 2048
_LATEST = 2**53


@dataclass(frozen=True, slots=True)
class Audience:
    """The audience that a token must name: the cluster's name, or, for other issuers, their name of it."""

    own: str
    of_issuers: Mapping[str, str]

    def of(self, issuer: str) -> str | None:
        """The audience that tokens of that issuer must name; None if it may issue none."""
        return self.own if issuer == OWN_ISSUER else self.of_issuers.get(issuer)


def verify(token: str, keys: KeyRing, audience: Audience, now_seconds: float) -> Principal:
    """The principal that a token names. Raises `Unauthenticated`, and names none of the token's secret parts.

    The key sets the algorithm, never the token. So neither `none` nor a public key as an HMAC secret gets by.
    """
    if len(token) > MOST_BYTES:
        raise Unauthenticated(f"the token has {len(token)} bytes: {MOST_BYTES} are the most")
    header, payload = _parts(token)
    key_id = header.get("kid")
    if not isinstance(key_id, str):
        raise Unauthenticated("the token needs the id of its key (kid)")
    key = _signer(token, keys.of_id(key_id), key_id)
    # Read only now: an unsigned token costs no more than a look at its signature.
    claims = _object(payload)
    issuer = claims.get("iss")
    if issuer != key.issuer:
        raise Unauthenticated(
            f"the token is of the issuer {issuer!r:.200}, and signed with a key of {key.issuer!r:.200}"
        )
    expected = audience.of(key.issuer)
    if expected is None:
        raise Unauthenticated(f"tokens of the issuer {key.issuer!r:.200} are not accepted here")
    until_seconds = _times(claims, now_seconds)
    named = claims.get("aud")
    if expected not in ([named] if isinstance(named, str) else named if isinstance(named, list) else []):
        raise Unauthenticated(f"the token is for another audience: here it has to be {expected!r}")
    name, token_id = claims.get("sub"), claims.get("jti")
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
        raise Unauthenticated("the token names no subject (sub), a text of 1 to 200 printable characters")
    if token_id is not None and (not isinstance(token_id, str) or len(token_id) > 200):
        raise Unauthenticated("the token's id (jti) is no text of up to 200 characters")
    return Principal(_shown(name, issuer), _grants(claims), until_seconds, token_id, _time(claims.get("iat")))


def _shown(name: str, issuer: object) -> str:
    """The name of a principal; it shows the issuer. Raises `Unauthenticated`."""
    if issuer != OWN_ISSUER:
        return f"{issuer}{OF_ISSUER}{name}"
    try:
        return check_own_name(name)
    except InvalidInput as error:
        raise Unauthenticated(str(error)) from error


class UnknownKey(Unauthenticated):
    """The token is signed with an unknown key: its issuer may have rotated its keys."""


def unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims. Nothing in them is verified yet. Raises `Unauthenticated` if the token has none."""
    header, payload = _parts(token)
    return header, _object(payload)


def _signer(token: str, candidates: Sequence[Key], key_id: str) -> Key:
    """The key that has signed the token. Raises `Unauthenticated`."""
    if not candidates:
        raise UnknownKey(f"the token is signed with a key that is not known here: {key_id!r:.100}")
    for key in candidates:
        try:
            api_jws.decode(token, key.public_key, algorithms=[key.algorithm])
        except (PyJWTError, ValueError, TypeError):
            continue
        return key
    raise Unauthenticated("the token's signature is not that of its key")


def _parts(token: str) -> tuple[dict[str, Any], str]:
    """The header, and the encoded claims."""
    parts = token.split(".")
    if len(parts) != 3:
        raise Unauthenticated("the token is no JSON Web Token: it has three parts with dots between them")
    if len(parts[0]) > _LONGEST_HEADER:
        raise Unauthenticated(f"the token's header has {len(parts[0])} bytes: {_LONGEST_HEADER} are the most")
    header = _object(parts[0])
    if "crit" in header:
        raise Unauthenticated("the token's header demands extensions (crit), of which none is known here")
    return header, parts[1]


def _object(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64url_decode(part))
    except (ValueError, RecursionError) as error:
        raise Unauthenticated("the token is no JSON Web Token: its parts are no JSON") from error
    if not isinstance(found, dict):
        raise Unauthenticated("the token is no JSON Web Token: its parts are no objects")
    return found


def _times(claims: Mapping[str, Any], now_seconds: float) -> float:
    """When the token ends, if it is in force now. Raises `Unauthenticated`."""
    if (until := _time(claims.get("exp"))) is None:
        raise Unauthenticated("the token has no end (exp)")
    if now_seconds >= until + SKEW_SECONDS:
        raise Unauthenticated("the token has expired: get a new one")
    for name in ("nbf", "iat"):
        since = _time(claims.get(name, now_seconds))
        if since is None or now_seconds < since - SKEW_SECONDS:
            raise Unauthenticated(f"the token is not in force yet ({name}), or its clock differs from this broker's")
    return until + SKEW_SECONDS


def _time(value: Any) -> float | None:
    """A claim's seconds since 1970; None if it has no such number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < _LATEST else None


def _grants(claims: Mapping[str, Any]) -> Grants:
    scope = claims.get("scope", "")
    words = scope.split(" ") if isinstance(scope, str) else scope
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Unauthenticated("the token's scope is no text of words with spaces between them")
    own = [word.removeprefix(SCOPE_PREFIX) for word in words if word.startswith(SCOPE_PREFIX)]
    try:
        return parse_grants(own)
    except InvalidInput as error:
        raise Unauthenticated(f"the token's scope: {error}") from error
