"""The load of each broker, for choosing brokers: known work, or the number of segments if work is unknown.

A segment weighs `SEGMENT_WEIGHT` plus the work for its messages. A segment with unknown work weighs as much as the
average known one. So a leader that knows nothing yet counts segments, as does a leader of quiet topics, and between
equally busy brokers the number decides.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from leader.traffic.traffic_table import TrafficTable

SEGMENT_WEIGHT = 0.01
"""The weight of an open segment without messages (its row in each report, its memory), in default targets."""

Weights = npt.NDArray[np.float64]


def weights(table: TrafficTable, *, lasting: bool = False) -> Weights:
    """The weight of each row of the table, now or lasting; 0 for dead rows and segments that are about to be sealed."""
    segments = table.segments
    here = (segments["topic"] >= 0) & ~segments["leaving"]
    work = segments["lasting" if lasting else "work"]
    return np.where(here, SEGMENT_WEIGHT + np.where(np.isnan(work), _typical(work[here]), work), 0.0)


def carried_by_number(table: TrafficTable, of_rows: Weights, *, lasting: bool = False) -> Weights:
    """The load of each of `table.owners` by these weights of rows, plus segments that are about to open."""
    carried: Weights = np.bincount(table.segments["owner"], of_rows, len(table.owners)).astype(np.float64)
    if opening := table.opening:
        work = np.array([each.lasting if lasting else each.work for each in opening])
        typical = _typical(table.segments["lasting" if lasting else "work"][of_rows > 0])
        np.add.at(
            carried,
            [each.owner for each in opening],
            SEGMENT_WEIGHT + np.where(np.isnan(work), typical, work),
        )
    return carried


def carried(table: TrafficTable) -> dict[str, float]:
    """The load of each broker now, by id. Brokers that own nothing may be missing."""
    return dict(zip(table.owners, carried_by_number(table, weights(table)).tolist(), strict=True))


def weights_of(table: TrafficTable, topic: str, segments: Iterable[int]) -> dict[int, float]:
    """The weights of open segments of a topic now, by id. An unknown segment weighs as much as the average one."""
    work = table.segments["work"]
    typical = _typical(work[table.segments["topic"] >= 0])
    return {
        segment: SEGMENT_WEIGHT + (typical if (own := _known(table, work, topic, segment)) is None else own)
        for segment in segments
    }


def _known(table: TrafficTable, work: npt.NDArray[Any], topic: str, segment: int) -> float | None:
    row = table.row(topic, segment)
    return None if row is None or np.isnan(work[row]) else float(work[row])


def _typical(work: npt.NDArray[Any]) -> float:
    """The average of known work; 0 if none is known."""
    known = work[~np.isnan(work)]
    return float(known.mean()) if len(known) else 0.0
