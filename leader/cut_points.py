"""Where to cut a segment's slots so that its successors share the load that was seen, not the slots (DESIGN.md §8).

The load per slot is an array over the segment's range: counts of messages, or of bytes where those are what presses
(`pressing`); it may be of a sample. Where it is all zeros nothing is known, and the cuts are of equal width.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from filer.errors import InvalidInput
from filer.topic_config import Target

Loads = npt.NDArray[np.float64]
Cuts = npt.NDArray[np.int64]

LARGEST_SHARE = 0.75
"""A split whose largest child would still carry more of the load than this is not worth its pause."""
PRIOR_OBSERVATIONS = 8
"""As many messages are taken to have come evenly to all slots besides those seen: a handful tells little of them."""
_SWEEPS = 64


@dataclass(frozen=True, slots=True)
class SlotLoads:
    """What came to each slot of a segment's range lately, as its owner saw it in `observations` messages."""

    messages: npt.NDArray[Any]
    size_bytes: npt.NDArray[Any]
    observations: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a hot segment is to be cut; nowhere, where one slot carries too much for any cut to help: `hot_slot`.

    `shares` of the load that the parts will have.
    """

    points: tuple[int, ...]
    hot_slot: int | None = None
    shares: tuple[float, ...] = ()


def pressing(messages: npt.NDArray[Any], size_bytes: npt.NDArray[Any], target: Target) -> npt.NDArray[Any]:
    """Of the two loads per slot, the one that is nearer to its target."""
    return messages if messages.sum() / target.messages >= size_bytes.sum() / target.bytes else size_bytes


def even_cut_points(
    load: npt.NDArray[Any], start: int, stop: int, parts: int, *, observations: int | None = None
) -> tuple[int, ...]:
    """The `parts - 1` slots at which to cut `[start, stop)` into that many ranges, whose loads are as even as can be.

    `observations` is how many messages the load was seen in, by default its sum. Raises `InvalidInput` where the load
    is not one of that range, or the range has fewer slots than there are to be parts.
    """
    inside = _checked(load, start, stop, parts)
    weights = _with_prior(inside, observations)
    return tuple(int(start + point) for point in _even(_sums(weights), parts)[1:-1])


def equal_parts(seen: SlotLoads | None, start: int, stop: int, parts: int, target: Target) -> tuple[int, ...]:
    """The slots that cut `[start, stop)` into exactly so many parts, of equal load where that is known, else of equal
    width.

    What was seen of another range counts as nothing. Raises `InvalidInput` as `even_cut_points`.
    """
    if seen is None or len(seen.messages) != stop - start:
        return even_cut_points(np.zeros(stop - start), start, stop, parts)
    load = pressing(seen.messages, seen.size_bytes, target)
    return even_cut_points(load, start, stop, parts, observations=seen.observations)


def cut_hot(
    load: npt.NDArray[Any],
    start: int,
    stop: int,
    parts: int,
    *,
    most_parts: int | None = None,
    observations: int | None = None,
) -> Cut:
    """Where to cut a segment that has too much load, into about `parts`.

    A slot with more than an even share gets a range of its own, and only the rest is cut into as many parts as it
    needs; up to `most_parts` where it takes more to put such a slot apart. Raises `InvalidInput` where the load is not
    one of that range, or fewer than two parts are wanted.
    """
    if parts < 2:
        raise InvalidInput(f"a split makes two parts or more, not {parts}")
    inside = _checked(load, start, stop, min(parts, stop - start))
    weights = _with_prior(inside, observations)
    sums = _sums(weights)
    hottest = int(start + weights.argmax())
    fewest = _needed(weights, parts)
    for wanted in range(fewest, max(fewest, most_parts or parts) + 1):
        if wanted > stop - start:
            break
        bounds = _even(sums, wanted)
        shares = np.diff(sums[bounds]) / sums[-1]
        if shares.max() <= LARGEST_SHARE:
            return Cut(tuple(int(start + point) for point in bounds[1:-1]), shares=tuple(shares.tolist()))
    return Cut((), hottest)


def _checked(load: npt.NDArray[Any], start: int, stop: int, parts: int) -> Loads:
    if load.ndim != 1 or len(load) != stop - start:
        raise InvalidInput(f"a load of shape {load.shape} is not one of the slots [{start}, {stop})")
    if not 1 <= parts <= stop - start:
        raise InvalidInput(f"the {stop - start} slots [{start}, {stop}) cannot be cut into {parts} parts")
    inside = load.astype(np.float64)
    if not np.isfinite(inside).all() or inside.min() < 0:
        raise InvalidInput("the load of a slot is a number from 0 on")
    return inside


def _with_prior(load: Loads, observations: int | None) -> Loads:
    """No slot is without load: so no part is without slots, and stretches where nothing was seen are cut evenly."""
    total = float(load.sum())
    if total <= 0:
        return np.ones(len(load))
    seen = max(total if observations is None else float(observations), 1.0)
    return load + total * PRIOR_OBSERVATIONS / seen / len(load)


def _sums(weights: Loads) -> Loads:
    return np.concatenate(([0.0], np.cumsum(weights)))


def _needed(weights: Loads, parts: int) -> int:
    """Into how many parts to cut: each slot with more than an even share is one, the rest as many as it fills."""
    shares = weights / weights.sum()
    heavy = shares > 1 / parts
    return min(parts, max(2, int(heavy.sum() + np.ceil(shares[~heavy].sum() * parts - 1e-9))))


def _even(sums: Loads, parts: int) -> Cuts:
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
