"""Cutting slots into ranges with traffic as even as possible (docs/design.md §8).

The traffic per slot is an array over the range: counts of messages, or of bytes, possibly of a sample. If all counts
are zero, nothing is known, and the ranges have equal widths.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from filer.errors import InvalidInput

Weights = npt.NDArray[np.float64]
Cuts = npt.NDArray[np.int64]

PRIOR_OBSERVATIONS = 8
"""This many messages, spread evenly over all slots, are added to those counted, because a few counts say little."""
_SWEEPS = 64


def even_cut_points(
    traffic: npt.NDArray[Any], start: int, stop: int, parts: int, *, observations: int | None = None
) -> tuple[int, ...]:
    """The `parts - 1` slots at which to cut `[start, stop)` into that many ranges with traffic as even as possible.

    `observations` is the number of messages that were counted, by default the sum of `traffic`. Raises `InvalidInput`
    if `traffic` does not have that range, or the range has fewer slots than `parts`.
    """
    inside = checked_traffic(traffic, start, stop, parts)
    weights = with_prior(inside, observations)
    return tuple(int(start + point) for point in even_bounds(running_sums(weights), parts)[1:-1])


def checked_traffic(traffic: npt.NDArray[Any], start: int, stop: int, parts: int) -> Weights:
    """The traffic of the slots `[start, stop)`. Raises `InvalidInput` if it is not valid, or for too many parts."""
    if traffic.ndim != 1 or len(traffic) != stop - start:
        raise InvalidInput(
            f"traffic of shape {traffic.shape} does not fit the slots [{start}, {stop}): give one number per slot"
        )
    if not 1 <= parts <= stop - start:
        raise InvalidInput(f"the {stop - start} slots [{start}, {stop}) cannot be cut into {parts} parts")
    inside = traffic.astype(np.float64)
    if not np.isfinite(inside).all() or inside.min() < 0:
        raise InvalidInput("the traffic of a slot is a number from 0 on")
    return inside


def with_prior(traffic: Weights, observations: int | None) -> Weights:
    """The traffic with a little added to every slot: so slots without counts are spread over the parts evenly."""
    total = float(traffic.sum())
    if total <= 0:
        return np.ones(len(traffic))
    counted = max(total if observations is None else float(observations), 1.0)
    return traffic + total * PRIOR_OBSERVATIONS / counted / len(traffic)


def running_sums(weights: Weights) -> Weights:
    """The traffic below each bound between slots, from 0 to the total."""
    return np.concatenate(([0.0], np.cumsum(weights)))


def even_bounds(sums: Weights, parts: int) -> Cuts:
    """Bounds of the parts: the quantiles, evened out if that helps."""
    quantiles = _spread_out(_nearest(sums, sums[-1] * np.arange(parts + 1) / parts), len(sums) - 1)
    candidates = (quantiles, _evened_out(sums, quantiles))
    return min(candidates, key=lambda bounds: float(np.ptp(np.diff(sums[bounds]))))


def _nearest(sums: Weights, wanted: Weights) -> Cuts:
    """For each wanted sum the slot bound with the nearest sum."""
    above = np.clip(np.searchsorted(sums, wanted), 1, len(sums) - 1)
    return np.where(wanted - sums[above - 1] <= sums[above] - wanted, above - 1, above)


def _spread_out(bounds: Cuts, slots: int) -> Cuts:
    """The bounds, moved as little as possible so that every part has a slot, from 0 to `slots`."""
    indexes = np.arange(len(bounds))
    ascending = np.maximum.accumulate(np.clip(bounds, 0, slots) - indexes) + indexes
    ascending[0], ascending[-1] = 0, slots
    latest = slots - indexes[::-1]
    return np.minimum(ascending, latest)


def _evened_out(sums: Weights, bounds: Cuts) -> Cuts:
    """Move every other bound to where the two parts beside it are most even, then those between, until none moves.

    That never raises the larger of two parts, so never the largest of all.
    """
    bounds = bounds.copy()
    for _ in range(_SWEEPS):
        before = bounds.copy()
        for first in (1, 2):
            inner = np.arange(first, len(bounds) - 1, 2)
            left, right = bounds[inner - 1], bounds[inner + 1]
            bounds[inner] = np.clip(_nearest(sums, (sums[left] + sums[right]) / 2), left + 1, right - 1)
        if np.array_equal(before, bounds):
            break
    return bounds
