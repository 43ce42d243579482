"""When and for how long safe requests are repeated."""

from dataclasses import dataclass
from math import inf

from filer.backoff import backoff_seconds

# In a large cluster, a smaller share of the time would be too short for a healthy broker.
_MOST_SHARES = 4
_SHORTEST_TRY_SECONDS = 1e-3


@dataclass(frozen=True, slots=True)
class Retry:
    """Capped exponential backoff with jitter, for requests that may be repeated without harm.

    A call gives up if its next try would start more than `give_up_after_seconds` after its first. With `for_all_calls`
    this also holds for calls that otherwise give up at once, because no broker has ever answered, or never, because
    they subscribe; and a try that is under way then is given up too.
    """

    give_up_after_seconds: float = 30.0
    first_delay_seconds: float = 0.05
    longest_delay_seconds: float = 2.0
    for_all_calls: bool = False

    def delay_seconds(self, failures: int, entropy: bytes) -> float:
        """Return the pause after that many failures (1 or more): half to all of the doubled delay, by `entropy`."""
        pause_seconds = backoff_seconds(
            failures, first_seconds=self.first_delay_seconds, longest_seconds=self.longest_delay_seconds
        )
        fraction = int.from_bytes(entropy, "big") / (1 << 8 * len(entropy))
        return pause_seconds * (0.5 + 0.5 * fraction)

    def try_seconds(self, elapsed_seconds: float, brokers: int) -> float | None:
        """How long the next try of a call may take, with so many brokers to try; None if nothing bounds it."""
        if not self.for_all_calls or not 0 < self.give_up_after_seconds < inf:
            return None
        return share_of_time(self.give_up_after_seconds - elapsed_seconds, brokers)


def share_of_time(left_seconds: float, brokers: int) -> float:
    """How long to wait for one of the brokers that are left to try, so that a silent one leaves time for the others."""
    return max(left_seconds / min(max(brokers, 1), _MOST_SHARES), _SHORTEST_TRY_SECONDS)


NEVER_GIVE_UP = inf
ONE_ROUND = Retry(give_up_after_seconds=0)
