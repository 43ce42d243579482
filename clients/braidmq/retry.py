"""How often and how long safe requests are repeated."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """Capped exponential backoff with jitter, for requests that may be repeated without harm.

    A call gives up when its next try would start more than `give_up_after_seconds` after its first.
    """

    give_up_after_seconds: float = 30.0
    first_delay_seconds: float = 0.05
    longest_delay_seconds: float = 2.0

    def delay_seconds(self, failures: int, entropy: bytes) -> float:
        """Pause after that many failures (1 or more): from half to the whole of the doubled delay."""
        doubled = self.first_delay_seconds * (1 << min(failures - 1, 30))
        part = int.from_bytes(entropy, "big") / (1 << 8 * len(entropy))
        return min(doubled, self.longest_delay_seconds) * (0.5 + 0.5 * part)


NEVER_GIVE_UP = float("inf")
ONE_ROUND = Retry(give_up_after_seconds=0)
