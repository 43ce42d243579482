"""Finds the brokers that segments name but that are missing, and those of them that are certainly gone."""

from collections.abc import Set

MARGIN_SHARE = 0.1
"""A broker counts as gone this share of a session after it was first missed. Its own deadline lies well before that."""


class MissingBrokers:
    """Brokers that segments name and that are not announced, each with the time since when it is missing."""

    def __init__(self) -> None:
        self._since_seconds: dict[str, float] = {}

    @property
    def ids(self) -> Set[str]:
        """All brokers that are missing, for however short a time."""
        return self._since_seconds.keys()

    def update(self, named: Set[str], live: Set[str], *, now_seconds: float, margin_seconds: float) -> frozenset[str]:
        """Compare the `named` with the `live` brokers.

        Returns the named brokers that have been missing for the margin.
        """
        for broker in [b for b in self._since_seconds if b in live or b not in named]:
            del self._since_seconds[broker]
        for broker in named - live:
            self._since_seconds.setdefault(broker, now_seconds)
        return frozenset(b for b, since in self._since_seconds.items() if now_seconds - since >= margin_seconds)

    def clear(self) -> None:
        """Forget everything: the margin of each broker begins again."""
        self._since_seconds.clear()
