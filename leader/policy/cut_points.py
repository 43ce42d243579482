"""Where to cut a segment's slots so that its successors share the traffic that was counted (docs/design.md §8).

The traffic per slot is an array over the segment's range: counts of messages, or of bytes if those are nearer to their
target (`pressing`); they may be of a sample. If all counts are zero, nothing is known, and the cuts have equal widths.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from filer.errors import InvalidInput
from filer.topic.topic_config import Target
from leader.policy.even_cuts import Weights, checked_traffic, even_bounds, even_cut_points, running_sums, with_prior

LARGEST_SHARE = 0.75
"""If the largest part would have more of the traffic than this, a split is not worth its pause."""


@dataclass(frozen=True, slots=True)
class SlotTraffic:
    """The recent traffic of each slot of a segment's range, as its owner counted it in `observations` messages."""

    messages: npt.NDArray[Any]
    size_bytes: npt.NDArray[Any]
    observations: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The slots at which to cut a hot segment, and the share of the traffic that each part will have.

    No points if one slot, `hot_slot`, has too much traffic for any cut to help.
    """

    points: tuple[int, ...]
    hot_slot: int | None = None
    shares: tuple[float, ...] = ()


def pressing(messages: npt.NDArray[Any], size_bytes: npt.NDArray[Any], target: Target) -> npt.NDArray[Any]:
    """The messages or the bytes per slot, whichever sum is nearer to its target."""
    return messages if messages.sum() / target.messages >= size_bytes.sum() / target.bytes else size_bytes


def equal_parts(seen: SlotTraffic | None, start: int, stop: int, parts: int, target: Target) -> tuple[int, ...]:
    """The slots that cut `[start, stop)` into exactly `parts`: of equal traffic if it is known, else of equal width.

    Traffic of another range counts as unknown. Raises `InvalidInput` as `even_cut_points`.
    """
    if seen is None or len(seen.messages) != stop - start:
        return even_cut_points(np.zeros(stop - start), start, stop, parts)
    traffic = pressing(seen.messages, seen.size_bytes, target)
    return even_cut_points(traffic, start, stop, parts, observations=seen.observations)


def cut_hot(
    traffic: npt.NDArray[Any],
    start: int,
    stop: int,
    parts: int,
    *,
    most_parts: int | None = None,
    observations: int | None = None,
) -> Cut:
    """Where to cut a segment that has too much traffic, into about `parts`.

    A slot with more than an even share gets a range of its own, and the rest is cut into as many parts as it needs: up
    to `most_parts`, if only that puts such a slot apart. Raises `InvalidInput` if the traffic does not have that range,
    or if fewer than two parts are wanted.
    """
    if parts < 2:
        raise InvalidInput(f"a split makes two parts or more, not {parts}")
    inside = checked_traffic(traffic, start, stop, min(parts, stop - start))
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


def _needed(weights: Weights, parts: int) -> int:
    """The number of parts: one for each slot with more than an even share, and as many as the rest fills."""
    shares = weights / weights.sum()
    heavy = shares > 1 / parts
    return min(parts, max(2, int(heavy.sum() + np.ceil(shares[~heavy].sum() * parts - 1e-9))))
