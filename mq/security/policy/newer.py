"""What a broker understands of a policy that a broker of a newer version has written. Pure.

A broker that refused the whole of it would go on with the policy before, and what was revoked since would not count.
"""

from collections.abc import Mapping
from typing import Any

from mq.security.policy.limits import LIMITS

FIELDS: Mapping[str, tuple[str, ...]] = {
    "grants": ("principal", "grants"),
    "revoked_tokens": ("id", "until"),
    "revoked_principals": ("principal", "before"),
    "quotas": ("principal", *LIMITS),
}
"""The sections of a policy, and the fields of their entries."""


def known_part(document: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The policy without what is not known here, and the names of that.

    What may narrow a grant is not known, so such a grant gives nothing. A revocation revokes, whatever else it says. Of
    a quota, the limits that are known count.
    """
    unknown: set[str] = {name for name in document if name not in FIELDS}
    found: dict[str, Any] = {}
    for section in FIELDS.keys() & document.keys():
        entries = document[section]
        found[section] = _known(section, entries, unknown) if isinstance(entries, list) else entries
    return found, tuple(sorted(unknown))


def _known(section: str, entries: list[Any], unknown: set[str]) -> list[Any]:
    kept: list[Any] = []
    for entry in entries:
        others = [name for name in entry if name not in FIELDS[section]] if isinstance(entry, dict) else []
        if not others:
            kept.append(entry)
            continue
        unknown.update(f"{section}.{name}" for name in others)
        left = {name: value for name, value in entry.items() if name not in others}
        if section != "grants" and not (section == "quotas" and left.keys() <= {"principal"}):
            kept.append(left)
    return kept
