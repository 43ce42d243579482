"""How a queue group gives messages to the workers of a storm, and how they take them."""

from typing import NamedTuple

END_SECONDS = 120.0
"""So long it may take until all is done once nothing is published any more."""


class Terms(NamedTuple):
    """What a group gives its workers, and how they take it: so many messages at a time, with a pause after each claim.

    With leases that outlast the storm, what was handed out by claims without an answer does not come back.
    """

    lease_seconds: float = 2.0
    max_deliveries: int = 1000
    max_in_flight: int = 10_000
    most: tuple[int, ...] = (1, 3, 30)
    pause_seconds: float = 0.0

    @property
    def outlasts(self) -> bool:
        """Whether no lease runs out."""
        return self.lease_seconds > END_SECONDS
