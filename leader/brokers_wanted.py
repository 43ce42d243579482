"""How many brokers the load would like, for an autoscaler (DESIGN.md §8)."""

from math import ceil

import numpy as np

from leader.load_table import LoadTable


def brokers_wanted(
    table: LoadTable, *, now_seconds: float, stale_seconds: float, brokers: int, segments_per_broker: float
) -> int:
    """So many that none carries more than `segments_per_broker` times a segment's target; at least one.

    It rises with the recent load and falls with the average over the merge rule's window: brokers are not to come and
    go with every lull. While some segments' load is unknown it is at least the `brokers` there are.
    """
    segments = table.segments
    is_open = segments["topic"] >= 0
    known = is_open & (segments["heard_seconds"] >= now_seconds - stale_seconds)
    load = float(np.maximum(segments["recent"], segments["merge_average"])[known].sum())
    wanted = max(1, ceil(load / segments_per_broker - 1e-9))
    return wanted if known.sum() == is_open.sum() else max(wanted, brokers)
