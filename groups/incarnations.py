"""The id of an incarnation of a group. It also names the group's maker, and whether a claim made the group.

Records have no field for that, since brokers of earlier versions refuse a record with unknown fields. To them an id is
any text: they keep it, and the ids that they make themselves are only a ULID.
"""

from hashlib import sha256
from typing import NamedTuple

_BY_CLAIM, _BY_REQUEST = "c", "p"
_MAKER_CHARS = 16


class Origin(NamedTuple):
    """The maker of a group: a digest of the principal's name, "" for no principal in particular.

    `by_claim`: a claim or a member that joins has made it; no client has created it explicitly.
    """

    maker: str = ""
    by_claim: bool = False


def maker_of(principal: str) -> str:
    """The digest of a principal in the ids of its groups; "" if it has no name."""
    return sha256(principal.encode()).hexdigest()[:_MAKER_CHARS] if principal else ""


def incarnation_id(ulid: str, origin: Origin) -> str:
    """The id of a new incarnation."""
    return f"{ulid}.{_BY_CLAIM if origin.by_claim else _BY_REQUEST}{origin.maker}"


def origin_of(group_id: str) -> Origin:
    """The origin in an id; empty for an id that an earlier version has made."""
    told = group_id.partition(".")[2]
    return Origin(told[1:], told.startswith(_BY_CLAIM)) if told else Origin()


def next_id(group_id: str, ulid: str) -> str:
    """The id of the incarnation that follows that one. Its maker stays, and it counts as created explicitly."""
    return incarnation_id(ulid, origin_of(group_id)._replace(by_claim=False))
