"""Opaque tokens: a file has their hashes, and the grants of each.

They have 256 random bits, so a plain SHA-256 keeps them secret, and a lookup of one reveals nothing about the others.
The file is TOML:

    [[token]]
    name = "billing"
    sha256 = "…"                           # of the whole token
    grants = ["topic:orders-*:read"]
    until = 2027-01-01T00:00:00Z           # may be left out
"""

import base64
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from datetime import datetime
from math import inf
from typing import Any

from filer.clock import Clock
from filer.errors import InvalidInput
from filer.nearest import unknown_name
from mq.security.grants import Grants, parse_grants
from mq.security.own_names import check_own_name
from mq.security.principal import Principal

MOST_TOKENS, MOST_FILE_BYTES = 10_000, 16 * 1024 * 1024
RANDOM_BYTES = 32
_FIELDS = ("name", "sha256", "grants", "until")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class StaticTokens:
    """Principals by the hash of their token."""

    def __init__(self, principals: Mapping[str, Principal] | None = None) -> None:
        self._principals = dict(principals or {})

    def __len__(self) -> int:
        return len(self._principals)

    def count_of(self, name: str) -> int:
        """How many tokens a principal has: while programs get a new one, the one before stays good."""
        return sum(principal.name == name for principal in self._principals.values())

    def find(self, token: str, now_seconds: float) -> Principal | None:
        """The principal of that token; None if the token is unknown, or has ended."""
        principal = self._principals.get(digest_of(token))
        return principal if principal is not None and now_seconds < principal.until_seconds else None


def digest_of(token: str) -> str:
    """The hash of a token, in hexadecimal digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_token(clock: Clock) -> str:
    """A token that cannot be guessed. Its prefix shows a finder what it is."""
    return f"braidmq_{base64.urlsafe_b64encode(clock.entropy(RANDOM_BYTES)).rstrip(b'=').decode()}"


def added(file: bytes, name: str, token: str, grants: Grants, until: datetime | None) -> str:
    """The text of a file with one more token. Raises `InvalidInput` if the result is not valid."""
    if not grants.all:
        raise InvalidInput("a token without a grant allows nothing: give one, as topic:orders-*:read")
    lines = [
        "[[token]]",
        f"name = {json.dumps(name)}",
        f'sha256 = "{digest_of(token)}"',
        f"grants = {json.dumps([str(grant) for grant in grants.all])}",
    ]
    if until is not None:
        lines.append(f"until = {until:%Y-%m-%dT%H:%M:%SZ}")
    before = file.decode("utf-8", "replace").rstrip()
    text = "\n".join([*([before, ""] if before else []), *lines, ""])
    parse_static_tokens(text.encode())
    return text


def parse_static_tokens(text: bytes) -> StaticTokens:
    """The tokens of a file. Raises `InvalidInput`, which names the token and what is wrong with it."""
    if len(text) > MOST_FILE_BYTES:
        raise InvalidInput(f"a file of {len(text)} bytes is too large: {MOST_FILE_BYTES} are the most")
    try:
        found = tomllib.loads(text.decode())
    except ValueError as error:  # also for integers without end, which are no TOMLDecodeError
        raise InvalidInput(f"it is no TOML: {error}") from error
    listed = found.pop("token", [])
    if found:
        raise InvalidInput(unknown_name("table", next(iter(found)), ["token"]))
    if not isinstance(listed, list) or len(listed) > MOST_TOKENS:
        raise InvalidInput(f"a token is a table [[token]], and there are at most {MOST_TOKENS}")
    principals: dict[str, Principal] = {}
    for number, each in enumerate(listed, 1):
        try:
            digest, principal = _token(each)
        except InvalidInput as error:
            raise InvalidInput(f"token {number} of {len(listed)}: {error}") from error
        if digest in principals:
            raise InvalidInput(f"token {number} of {len(listed)}: it has the hash of another one")
        principals[digest] = principal
    return StaticTokens(principals)


def _token(given: Any) -> tuple[str, Principal]:
    if not isinstance(given, dict):
        raise InvalidInput("it is no table")
    for name in given:
        if name not in _FIELDS:
            raise InvalidInput(unknown_name("field", name, _FIELDS))
    name, digest, words, until = (given.get(each) for each in _FIELDS)
    name = check_own_name(name)
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InvalidInput("it needs sha256, the hash of the token in 64 digits 0-9 a-f")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InvalidInput('it needs grants, a list of texts as "topic:orders-*:read"')
    if until is not None and (not isinstance(until, datetime) or until.tzinfo is None):
        raise InvalidInput("until is no time with a zone, as 2027-01-01T00:00:00Z")
    return digest, Principal(name, parse_grants(words), inf if until is None else until.timestamp(), digest[:16])
