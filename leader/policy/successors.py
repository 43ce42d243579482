"""Splits and merges with brokers for the successors. A part of a split weighs what the cut says (docs/design.md §8)."""

from collections.abc import Mapping, Sequence

from filer.topic.topic_state import TopicState
from leader.membership.coordinator import BrokerInfo
from leader.policy.cut_points import Cut
from leader.policy.placement import choose
from leader.transitions import begin_merge, begin_split


def begin_split_or_merge(
    state: TopicState,
    cuts: Mapping[int, Cut],
    pairs: Sequence[tuple[int, int]],
    *,
    brokers: Sequence[BrokerInfo],
    carried: Mapping[str, float],
    weights: Mapping[int, float],
    now_us: int,
) -> TopicState | None:
    """Begin to split segments, or, if there are no `cuts`, to merge pairs of neighbours; None if nothing can begin.

    `carried` by broker, and `weights` of all segments to seal, have the unit of `placement.choose`. Segments to seal no
    longer count for their owners. If the share of each part of a split is unknown, the parts go to different brokers as
    far as there are any. Nothing begins without a broker. Raises as `begin_split`.
    """
    left_over = dict(carried)
    for segment in state.open_segments:
        if segment.id in weights and segment.owner in left_over:
            left_over[segment.owner] -= weights[segment.id]
    if cuts:
        opened = [weights[segment] * share for segment, cut in cuts.items() for share in _shares(cut)]
    else:
        opened = [weights[left] + weights[right] for left, right in pairs]
    apart = any(not cut.shares for cut in cuts.values())
    chosen = choose(brokers, left_over, opened, replicas=state.config.replicas, salt=state.topic, apart=apart)
    if not chosen:
        return None
    if not cuts:
        return begin_merge(state, pairs, chosen.__getitem__, now_us=now_us)
    return begin_split(state, {segment: cut.points for segment, cut in cuts.items()}, chosen.__getitem__, now_us=now_us)


def _shares(cut: Cut) -> Sequence[float]:
    parts = len(cut.points) + 1
    return cut.shares or [1 / parts] * parts
