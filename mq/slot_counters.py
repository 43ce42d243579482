"""How a busy segment's load lies over its slots, counted in samples: where a split is to cut."""

from math import exp
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filer.slots import slots_of
from leader.cut_points import SlotLoads

MOST_SAMPLED_ROWS = 4096
"""Of a larger file so many rows are looked at, and stand for all."""


class SlotCounters:
    """Messages and bytes per slot of `[start, stop)`, fading over `window_seconds`: 8 bytes a slot."""

    def __init__(self, start: int, stop: int, *, window_seconds: float, generator: np.random.Generator) -> None:
        self.window_seconds = window_seconds
        self._start, self._generator = start, generator
        self._messages = np.zeros(stop - start, np.float32)
        self._bytes = np.zeros(stop - start, np.float32)
        self._keyless_messages = self._keyless_bytes = self._observations = 0.0

    def count(self, table: pa.Table) -> None:
        """Take in a stored file's messages. Those without a key count for all slots alike: they go to any."""
        keys, sizes_bytes, weight = self._sample(table)
        keyed = ~np.asarray(keys.is_null())
        keyless = len(keyed) - int(keyed.sum())
        self._observations += len(keyed)
        self._keyless_messages += weight * keyless
        self._keyless_bytes += weight * float(sizes_bytes[~keyed].sum())
        places = slots_of(keys, null_slot=self._start).astype(np.int64) - self._start
        keyed &= (places >= 0) & (places < len(self._messages))
        np.add.at(self._messages, places[keyed], np.float32(weight))
        np.add.at(self._bytes, places[keyed], (weight * sizes_bytes[keyed]).astype(np.float32))

    def _sample(self, table: pa.Table) -> tuple[pa.Array, npt.NDArray[Any], float]:
        """Keys and sizes of some rows, and how many each of them stands for.

        One row is drawn from each of equal stretches of the file: keys that come in turns are met as often as they are.
        """
        keys = table["key"].combine_chunks()
        sizes_bytes = _lengths(keys) + _lengths(table["value"])
        rows = table.num_rows
        if rows <= MOST_SAMPLED_ROWS:
            return keys, sizes_bytes, 1.0
        drawn = np.arange(MOST_SAMPLED_ROWS) + self._generator.random(MOST_SAMPLED_ROWS)
        picked = np.minimum((drawn * (rows / MOST_SAMPLED_ROWS)).astype(np.int64), rows - 1)
        return keys.take(pa.array(picked)), sizes_bytes[picked], rows / MOST_SAMPLED_ROWS

    def fade(self, elapsed_seconds: float) -> None:
        """Let what was counted so far count for less."""
        kept = np.float32(exp(-elapsed_seconds / self.window_seconds))
        self._messages *= kept
        self._bytes *= kept
        self._keyless_messages *= float(kept)
        self._keyless_bytes *= float(kept)
        self._observations *= float(kept)

    def loads(self) -> SlotLoads:
        """What came to each slot lately, in proportion."""
        slots = len(self._messages)
        return SlotLoads(
            self._messages + np.float32(self._keyless_messages / slots),
            self._bytes + np.float32(self._keyless_bytes / slots),
            round(self._observations),
        )


def _lengths(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    return np.asarray(pc.fill_null(pc.binary_length(column), 0), dtype=np.float64)
