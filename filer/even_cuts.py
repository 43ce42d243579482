"""Cutting slots into ranges whose loads are as even as can be (DESIGN.md §8).

The load per slot is an array over the range: counts of messages, or of bytes; it may be of a sample. Where it is all
zeros nothing is known, and the cuts are of equal width.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from filer.errors import InvalidInput

Loads = npt.NDArray[np.float64]
Cuts = npt.NDArray[np.int64]

PRIOR_OBSERVATIONS = 8
"""As many messages are taken to have come evenly to all slots besides those seen: a handful tells little of them."""
_SWEEPS = 64


def even_cut_points(
    load: npt.NDArray[Any], start: int, stop: int, parts: int, *, observations: int | None = None
) -> tuple[int, ...]:
    """The `parts - 1` slots at which to cut `[start, stop)` into that many ranges, whose loads are as even as can be.

    `observations` is how many messages the load was seen in, by default its sum. Raises `InvalidInput` where the load
    is not one of that range, or the range has fewer slots than there are to be parts.
    """
    inside = checked_load(load, start, stop, parts)
    weights = with_prior(inside, observations)
    return tuple(int(start + point) for point in even_bounds(running_sums(weights), parts)[1:-1])


def checked_load(load: npt.NDArray[Any], start: int, stop: int, parts: int) -> Loads:
    """The load of the slots `[start, stop)`; raises `InvalidInput` where it is none, or cannot make that many parts."""
    if load.ndim != 1 or len(load) != stop - start:
        raise InvalidInput(f"a load of shape {load.shape} is not one of the slots [{start}, {stop})")
    if not 1 <= parts <= stop - start:
        raise InvalidInput(f"the {stop - start} slots [{start}, {stop}) cannot be cut into {parts} parts")
    inside = load.astype(np.float64)
    if not np.isfinite(inside).all() or inside.min() < 0:
        raise InvalidInput("the load of a slot is a number from 0 on")
    return inside


def with_prior(load: Loads, observations: int | None) -> Loads:
    """No slot is without load: so no part is without slots, and stretches where nothing was seen are cut evenly."""
    total = float(load.sum())
    if total <= 0:
        return np.ones(len(load))
    seen = max(total if observations is None else float(observations), 1.0)
    return load + total * PRIOR_OBSERVATIONS / seen / len(load)


def running_sums(weights: Loads) -> Loads:
    """What lies below each bound between slots, from 0 to all of it."""
    return np.concatenate(([0.0], np.cumsum(weights)))


def even_bounds(sums: Loads, parts: int) -> Cuts:
    """Bounds of the parts: the quantiles, evened out where that helps."""
    quantiles = _spread_out(_nearest(sums, sums[-1] * np.arange(parts + 1) / parts), len(sums) - 1)
    candidates = (quantiles, _evened_out(sums, quantiles))
    return min(candidates, key=lambda bounds: float(np.ptp(np.diff(sums[bounds]))))


def _nearest(sums: Loads, wanted: Loads) -> Cuts:
    """For each sum the slot bound whose sum comes nearest."""
    above = np.clip(np.searchsorted(sums, wanted), 1, len(sums) - 1)
    return np.where(wanted - sums[above - 1] <= sums[above] - wanted, above - 1, above)


def _spread_out(bounds: Cuts, slots: int) -> Cuts:
    """The bounds moved as little as leaves every part a slot, from 0 to all `slots`."""
    places = np.arange(len(bounds))
    ascending = np.maximum.accumulate(np.clip(bounds, 0, slots) - places) + places
    ascending[0], ascending[-1] = 0, slots
    last_places = slots - places[::-1]
    return np.minimum(ascending, last_places)


def _evened_out(sums: Loads, bounds: Cuts) -> Cuts:
    """Every other bound is moved to where the two parts beside it are most even, then those between, until none moves.

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
