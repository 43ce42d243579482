"""The parts that a broker understands of a policy from a broker of a newer version. Pure.

A broker that refused the whole policy would go on with the one before, and later revocations would not count. So it
leaves out only the parts that it does not understand, and names them. The rest never gives more than was written.
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
"""A token is revoked until then if its `until` is not understood."""
REVOKED = "revoked"
"""Sections that revoke something have this name, or their name begins with it."""
MOST_NAMED = 50


def known_entry(section: str, given: Any) -> tuple[dict[str, Any], list[str]]:
    """The known part of an entry, and the names of the rest. Nothing is left of an entry that cannot be used.

    An unknown field may narrow a grant, so an entry of grants with one gives nothing. Of several grants in an entry,
    the known ones count. A token is revoked by its id, whatever else the entry has. Of a quota the known limits count:
    without any it limits nothing, and so no quota behind it counts for its principals.
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
    """The names in order. Of very many, only some are named, revocations first, and the others are counted."""
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
