"""What brokers carry, as those that place segments weigh it: the work that is known, and the number where it is not.

A segment weighs `SEGMENT_WEIGHT`, and the work that its messages are. One of which nothing is known weighs as much as
the average of those that are known. So a leader that knows nothing yet counts segments, as one does whose topics are
all quiet, and between brokers that are equally busy it is the number that decides.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from leader.load_table import LoadTable

SEGMENT_WEIGHT = 0.01
"""Of an open segment without messages: its row in each report, its memory. In loads of one default target."""

Weights = npt.NDArray[np.float64]


def weights(table: LoadTable, *, lasting: bool = False) -> Weights:
    """What each row of the table weighs, just now or lastingly: 0 for what is open no more, or about to be sealed."""
    segments = table.segments
    here = (segments["topic"] >= 0) & ~segments["leaving"]
    work = segments["lasting" if lasting else "work"]
    return np.where(here, SEGMENT_WEIGHT + np.where(np.isnan(work), _typical(work[here]), work), 0.0)


def carried_by_number(table: LoadTable, of_rows: Weights, *, lasting: bool = False) -> Weights:
    """What each of `table.owners` carries, where its rows weigh so much: with what transitions are about to open."""
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


def carried(table: LoadTable) -> dict[str, float]:
    """What each broker carries just now, by id; those that own nothing may be missing."""
    return dict(zip(table.owners, carried_by_number(table, weights(table)).tolist(), strict=True))


def weights_of(table: LoadTable, topic: str, segments: Iterable[int]) -> dict[int, float]:
    """What open segments of a topic weigh just now, by id; one that is not known is as any other."""
    work = table.segments["work"]
    typical = _typical(work[table.segments["topic"] >= 0])
    return {
        segment: SEGMENT_WEIGHT + (typical if (own := _known(table, work, topic, segment)) is None else own)
        for segment in segments
    }


def _known(table: LoadTable, work: npt.NDArray[Any], topic: str, segment: int) -> float | None:
    row = table.row(topic, segment)
    return None if row is None or np.isnan(work[row]) else float(work[row])


def _typical(work: npt.NDArray[Any]) -> float:
    """The average of what is known; 0 where nothing is."""
    known = work[~np.isnan(work)]
    return float(known.mean()) if len(known) else 0.0
