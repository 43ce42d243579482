"""To whom the id of a producer belongs, in one segment.

The first principal that uses an id owns it, until the producer has been silent for an hour. Whoever brokers trust
without a credential has no digest (""): it owns nothing and is refused nothing, and so is what an older broker passes
on.
"""

from collections.abc import Iterable

CONTESTED = "-"
"""The owner of an id that two principals owned in segments that were merged. It is no digest, so it is nobody's.

To give it to one of them would tell that one the other's positions, and a window by itself cannot be cut in two.
"""


def differ(owner: str, other: str) -> bool:
    """Whether these are two owners, so that what belongs to one is refused to the other."""
    return owner != other and owner != "" and other != ""


def one_owner(owners: Iterable[str]) -> str:
    """The owner of what all of them own; `CONTESTED` if they are several, empty if there is none."""
    named = {owner for owner in owners if owner}
    return CONTESTED if len(named) > 1 else next(iter(named), "")
