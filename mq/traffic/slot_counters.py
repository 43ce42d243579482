"""Counts, from samples, how a busy segment's traffic spreads over its slots. A split cuts by these counts."""

from math import exp
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filer.format.slot_columns import slots_of
from filer.segment.later_table import Rows, picked_rows, table_of
from leader.policy.cut_points import SlotTraffic

MOST_SAMPLED_ROWS = 4096
"""At most so many rows of a file are counted; they stand for all of its rows."""


class SlotCounters:
    """Messages and bytes per slot of `[start, stop)`, fading over `window_seconds`: 8 bytes a slot."""

    def __init__(self, start: int, stop: int, *, window_seconds: float, generator: np.random.Generator) -> None:
        self.window_seconds = window_seconds
        self._start, self._generator = start, generator
        self._messages = np.zeros(stop - start, np.float32)
        self._bytes = np.zeros(stop - start, np.float32)
        self._keyless_messages = self._keyless_bytes = self._observations = 0.0

    def count(self, rows: Rows) -> None:
        """Count a stored file's messages. Messages without a key count for all slots alike: they go to any slot."""
        sample = self._sample(rows)
        keys, weight = sample["key"].combine_chunks(), rows.num_rows / max(1, sample.num_rows)
        sizes_bytes = _lengths(keys) + _lengths(sample["value"])
        keyed = ~np.asarray(keys.is_null())
        keyless = len(keyed) - int(keyed.sum())
        self._observations += len(keyed)
        self._keyless_messages += weight * keyless
        self._keyless_bytes += weight * float(sizes_bytes[~keyed].sum())
        indices = slots_of(keys, null_slot=self._start).astype(np.int64) - self._start
        keyed &= (indices >= 0) & (indices < len(self._messages))
        np.add.at(self._messages, indices[keyed], np.float32(weight))
        np.add.at(self._bytes, indices[keyed], (weight * sizes_bytes[keyed]).astype(np.float32))

    def _sample(self, rows: Rows) -> pa.Table:
        """Return keys and values of some rows.

        The file is divided into equal stretches, and one row is drawn at random from each. So keys that alternate
        regularly are sampled as often as they occur. Only these rows are made: this runs on the event loop.
        """
        count = rows.num_rows
        if count <= MOST_SAMPLED_ROWS:
            return table_of(rows)
        drawn = np.arange(MOST_SAMPLED_ROWS) + self._generator.random(MOST_SAMPLED_ROWS)
        return picked_rows(rows, np.minimum((drawn * (count / MOST_SAMPLED_ROWS)).astype(np.int64), count - 1))

    def fade(self, elapsed_seconds: float) -> None:
        """Reduce the weight of everything counted so far."""
        kept = np.float32(exp(-elapsed_seconds / self.window_seconds))
        self._messages *= kept
        self._bytes *= kept
        self._keyless_messages *= float(kept)
        self._keyless_bytes *= float(kept)
        self._observations *= float(kept)

    def traffic(self) -> SlotTraffic:
        """Return the recent traffic of each slot, as proportions."""
        slots = len(self._messages)
        return SlotTraffic(
            self._messages + np.float32(self._keyless_messages / slots),
            self._bytes + np.float32(self._keyless_bytes / slots),
            round(self._observations),
        )


def _lengths(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    return np.asarray(pc.fill_null(pc.binary_length(column), 0), dtype=np.float64)
