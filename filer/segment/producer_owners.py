"""The owner of a producer's id, in one segment.

The first principal that uses an id owns it, until the producer has been silent for an hour. A client that brokers trust
without a credential has no digest (""): it owns nothing and is refused nothing. The same holds for what an older broker
passes on.
"""

from collections.abc import Iterable

CONTESTED = "-"
"""The owner of an id that two principals owned in segments that were merged. It is no digest, so no principal owns it.

If one of them got the id, it would learn the other's positions, and a window by itself cannot be cut in two.
"""


def differ(owner: str, other: str) -> bool:
    """Whether these are two owners, so that each is refused what the other one owns."""
    return owner != other and owner != "" and other != ""


def one_owner(owners: Iterable[str]) -> str:
    """The owner that all of them name; `CONTESTED` if they name several, empty if they name none."""
    named = {owner for owner in owners if owner}
    return CONTESTED if len(named) > 1 else next(iter(named), "")
