"""Chooses a share of the requests for traces, with ids that the sampler of OpenTelemetry's SDK chooses too."""

import math

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

_LOW_BITS, _HALF_BITS = 64, 53
"""The sampler looks at the low bits of an id. So many of them are a fraction without rounding."""


class ChosenIds(RandomIdGenerator):
    """Counts down to the next request that is chosen: drawing an id for each takes ten times as long.

    Each request is chosen with the same probability, whichever came before: the length of a gap between two has a
    geometric distribution. Ids are uniform among those that the sampler chooses, so it agrees.
    """

    def __init__(self, ratio: float) -> None:
        self._bound = TraceIdRatioBased.get_bound_for_rate(ratio)
        self._ratio = self._bound / 2**_LOW_BITS
        self._left = self._gap()

    @property
    def chooses_next(self) -> bool:
        """Whether the next request is chosen."""
        return not self._left

    def passes_over(self) -> bool:
        """Whether the next request is passed over."""
        if self._left:
            self._left -= 1
            return True
        self._left = self._gap()
        return False

    def generate_trace_id(self) -> int:
        """As `IdGenerator.generate_trace_id`, for a request that is chosen."""
        high = super().generate_trace_id() >> _LOW_BITS
        # Of twice as many bits as the bound may have: no id is likelier than another by more than 2**-64.
        return high << _LOW_BITS | super().generate_trace_id() % self._bound

    def _gap(self) -> float:
        """Return how many requests are passed over before the next; infinite if none is chosen."""
        if not self._bound:
            return math.inf
        if self._ratio == 1:
            return 0
        above_zero = (1 + super().generate_trace_id() % 2**_HALF_BITS) / 2**_HALF_BITS
        return math.log(above_zero) // math.log1p(-self._ratio)
