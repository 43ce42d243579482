"""Splits and merges with a place for what they open: the parts of a split carry what the cut says (DESIGN.md §8)."""

from collections.abc import Mapping, Sequence

from filer.topic_state import TopicState
from leader.coordinator import BrokerInfo
from leader.cut_points import Cut
from leader.placement import choose
from leader.transitions import merging, splitting


def reshaped(
    state: TopicState,
    cuts: Mapping[int, Cut],
    pairs: Sequence[tuple[int, int]],
    *,
    brokers: Sequence[BrokerInfo],
    carried: Mapping[str, float],
    weights: Mapping[int, float],
    now_us: int,
) -> TopicState | None:
    """Begin to split segments, or else to merge pairs of neighbours; None where nothing can begin, or nobody is there.

    `carried` by brokers, and `weights` of all that is to be sealed, as in `placement.choose`. What is sealed is no load
    of its owner any more. Where nobody knows how much each part of a split will have, the parts go to different brokers
    as far as there are any. Raises as `splitting`.
    """
    loads = dict(carried)
    for segment in state.open_segments:
        if segment.id in weights and segment.owner in loads:
            loads[segment.owner] -= weights[segment.id]
    if cuts:
        opened = [weights[segment] * share for segment, cut in cuts.items() for share in _shares(cut)]
    else:
        opened = [weights[left] + weights[right] for left, right in pairs]
    apart = any(not cut.shares for cut in cuts.values())
    placed = choose(brokers, loads, opened, replicas=state.config.replicas, salt=state.topic, apart=apart)
    if not placed:
        return None
    if not cuts:
        return merging(state, pairs, placed.__getitem__, now_us=now_us)
    return splitting(state, {segment: cut.points for segment, cut in cuts.items()}, placed.__getitem__, now_us=now_us)


def _shares(cut: Cut) -> Sequence[float]:
    parts = len(cut.points) + 1
    return cut.shares or [1 / parts] * parts
