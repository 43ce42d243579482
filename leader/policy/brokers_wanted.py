"""How many brokers the traffic needs, for an autoscaler (docs/design.md §8)."""

from math import ceil

import numpy as np

from leader.traffic.traffic_table import TrafficTable


def brokers_wanted(
    table: TrafficTable, *, now_seconds: float, stale_seconds: float, brokers: int, segments_per_broker: float
) -> int:
    """The least number of brokers such that none carries more than `segments_per_broker` times a segment's target.

    At least one. The number rises with the recent traffic and falls with the average over the merge rule's window, so
    that brokers do not come and go with every lull. While the traffic of some segments is unknown, it is at least
    `brokers`, the number of brokers now that do not drain: else an autoscaler that removed one would have to add it
    again.
    """
    segments = table.segments
    is_open = segments["topic"] >= 0
    known = is_open & (segments["reported_seconds"] >= now_seconds - stale_seconds)
    traffic = float(np.maximum(segments["recent"], segments["merge_average"])[known].sum())
    wanted = max(1, ceil(traffic / segments_per_broker - 1e-9))
    return wanted if known.sum() == is_open.sum() else max(wanted, brokers)
