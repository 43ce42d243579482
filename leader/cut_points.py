"""Where to cut a segment's slots so that its successors share the load that was seen, not the slots (DESIGN.md §8).

The load per slot is an array over the segment's range: counts of messages, or of bytes where those are what presses
(`pressing`); it may be of a sample. Where it is all zeros nothing is known, and the cuts are of equal width.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from filer.errors import InvalidInput
from filer.even_cuts import Loads, checked_load, even_bounds, even_cut_points, running_sums, with_prior
from filer.topic_config import Target

LARGEST_SHARE = 0.75
"""A split whose largest child would still carry more of the load than this is not worth its pause."""


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
    inside = checked_load(load, start, stop, min(parts, stop - start))
    weights = with_prior(inside, observations)
    sums = running_sums(weights)
    hottest = int(start + weights.argmax())
    fewest = _needed(weights, parts)
    for wanted in range(fewest, max(fewest, most_parts or parts) + 1):
        if wanted > stop - start:
            break
        bounds = even_bounds(sums, wanted)
        shares = np.diff(sums[bounds]) / sums[-1]
        if shares.max() <= LARGEST_SHARE:
            return Cut(tuple(int(start + point) for point in bounds[1:-1]), shares=tuple(shares.tolist()))
    return Cut((), hottest)


def _needed(weights: Loads, parts: int) -> int:
    """Into how many parts to cut: each slot with more than an even share is one, the rest as many as it fills."""
    shares = weights / weights.sum()
    heavy = shares > 1 / parts
    return min(parts, max(2, int(heavy.sum() + np.ceil(shares[~heavy].sum() * parts - 1e-9))))
