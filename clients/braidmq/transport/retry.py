"""When and for how long safe requests are repeated."""

from dataclasses import dataclass

from filer.backoff import backoff_seconds


@dataclass(frozen=True, slots=True)
class Retry:
    """Capped exponential backoff with jitter, for requests that may be repeated without harm.

    A call gives up if its next try would start more than `give_up_after_seconds` after its first. With `for_all_calls`
    this also holds for calls that otherwise give up at once, because no broker has ever answered, or never, because
    they subscribe.
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


NEVER_GIVE_UP = float("inf")
ONE_ROUND = Retry(give_up_after_seconds=0)
