"""The id of an incarnation of a group. It also tells who has made the group, and whether that was a claim.

Records say nothing else of it, since brokers of earlier versions refuse what they do not know of a record. An id is any
text to them: they keep it, and those that they make themselves are a ULID alone.
"""

from hashlib import sha256
from typing import NamedTuple

_BY_CLAIM, _BY_REQUEST = "c", "p"
_MAKER_CHARS = 16


class Origin(NamedTuple):
    """Who has made a group: a digest of the principal's name, "" for nobody in particular.

    `by_claim`: a claim or a member that joins has made it, and nobody has asked for it in so many words.
    """

    maker: str = ""
    by_claim: bool = False


def maker_of(principal: str) -> str:
    """What the ids of a principal's groups tell of it; "" if there is no name."""
    return sha256(principal.encode()).hexdigest()[:_MAKER_CHARS] if principal else ""


def incarnation_id(ulid: str, origin: Origin) -> str:
    """The id of a new incarnation."""
    return f"{ulid}.{_BY_CLAIM if origin.by_claim else _BY_REQUEST}{origin.maker}"


def origin_of(group_id: str) -> Origin:
    """What an id tells; of one that an earlier version has made, nothing."""
    told = group_id.partition(".")[2]
    return Origin(told[1:], told.startswith(_BY_CLAIM)) if told else Origin()


def next_id(group_id: str, ulid: str) -> str:
    """The id of the incarnation that follows that one: its maker stays, and somebody has asked for it."""
    return incarnation_id(ulid, origin_of(group_id)._replace(by_claim=False))
