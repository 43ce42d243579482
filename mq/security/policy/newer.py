"""What a broker understands of a policy that a broker of a newer version has written. Pure.

A broker that refused the whole of it would go on with the policy before, and what was revoked since would not count. So
what is not understood is left out alone, and named. What is left never gives more than was written.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from filer.errors import InvalidInput
from filer.times import parse_rfc3339
from mq.security.grants import parse_grant
from mq.security.policy.limits import LIMITS, known_limits

FIELDS: Mapping[str, tuple[str, ...]] = {
    "grants": ("principal", "grants"),
    "revoked_tokens": ("id", "until"),
    "revoked_principals": ("principal", "before"),
    "quotas": ("principal", *LIMITS),
}
"""The sections of a policy, and the fields of their entries."""
FOR_EVER = "9999-12-31T00:00:00Z"
"""Until then a token is revoked of which it is not understood when it ends."""
REVOKED = "revoked"
"""A section that revokes something is called so, or its name begins so."""
MOST_NAMED = 50


def known_entry(section: str, given: Any) -> tuple[dict[str, Any], list[str]]:
    """An entry without what is not known here, and the names of that. An entry that cannot be used has nothing left.

    What may narrow a grant is not known, so an entry with another field gives nothing; of several grants in an entry,
    those count that are known. A token is revoked by its id, whatever else is said of it. Of a quota the limits that
    are known count: where none is, it limits nothing, and so no quota behind it counts for its principals.
    """
    if not isinstance(given, dict):
        return {}, []
    known = {name: value for name, value in given.items() if name in FIELDS[section]}
    unknown = [f"{section}.{name}"[:100] for name in given if name not in known]
    if section == "grants":
        if unknown:
            return {}, unknown
        words = known.get("grants")
        if isinstance(words, list):
            known["grants"] = [word for word in words if _is_grant(word)]
            unknown = [f"grants {word!r:.100}" for word in words if not _is_grant(word)]
    elif section == "revoked_tokens" and "id" in known and not _is_time(known.get("until")):
        known["until"] = FOR_EVER
        unknown.append("revoked_tokens.until")
    elif section == "quotas":
        limits = known_limits(known)
        unknown += [f"quotas.{name}" for name in LIMITS if name in known and name not in limits]
        known = {name: value for name, value in known.items() if name not in LIMITS or name in limits}
    return known, unknown


def names_of(unknown: Iterable[str]) -> tuple[str, ...]:
    """The names in order. Of very many, only the number of the others is told, and revocations are named first."""
    names = sorted(set(unknown))
    if len(names) <= MOST_NAMED:
        return tuple(names)
    first = sorted(names, key=lambda name: not name.startswith(REVOKED))[:MOST_NAMED]
    return (*sorted(first), f"{len(names) - MOST_NAMED} more")


def _is_grant(word: Any) -> bool:
    try:
        return isinstance(word, str) and parse_grant(word) is not None
    except InvalidInput:
        return False


def _is_time(text: Any) -> bool:
    try:
        return isinstance(text, str) and parse_rfc3339(text) is not None
    except ValueError:
        return False
