"""Counts the messages of a topic per slot, from its files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filer.format.slot_columns import slots_of
from filer.slots import SLOTS
from filer.stores.store import Store
from pipeline.topic_files import LiveFile, batches_of, contents

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """Messages, and bytes of keys and values, per slot. Messages without a key fit any slot and are counted apart."""

    messages: Counts
    size_bytes: Counts
    keyless_messages: int = 0
    keyless_bytes: int = 0

    @classmethod
    def empty(cls) -> "SlotCounts":
        """Return the counts of no files."""
        return cls(np.zeros(SLOTS, np.int64), np.zeros(SLOTS, np.int64))

    def __add__(self, other: "SlotCounts") -> "SlotCounts":
        return SlotCounts(
            self.messages + other.messages,
            self.size_bytes + other.size_bytes,
            self.keyless_messages + other.keyless_messages,
            self.keyless_bytes + other.keyless_bytes,
        )


async def count_slots(store: Store, files: Sequence[LiveFile]) -> SlotCounts:
    """Return the counts of some files. Raises `CorruptFile`, and `ObjectNotFound` if one is gone since the listing."""
    counts = SlotCounts.empty()
    async for file, data in contents(store, files):
        for batch in batches_of(file, data, ["key", "value"]):
            counts += count_batch(batch)
    return counts


def count_batch(batch: pa.RecordBatch) -> SlotCounts:
    """Return the counts of a batch with the columns `key` and `value`."""
    keys = batch["key"]
    sizes_bytes = _lengths(keys) + _lengths(batch["value"])
    keyed = ~np.asarray(keys.is_null())
    slots = slots_of(keys, null_slot=0)[keyed]
    messages = np.bincount(slots, minlength=SLOTS)
    # Sums of doubles are exact for whole numbers up to 2^53.
    per_slot = np.bincount(slots, weights=sizes_bytes[keyed], minlength=SLOTS).astype(np.int64)
    return SlotCounts(messages, per_slot, int((~keyed).sum()), int(sizes_bytes[~keyed].sum()))


def _lengths(column: pa.Array) -> npt.NDArray[Any]:
    plain = column.storage if isinstance(column, pa.ExtensionArray) else column
    return np.asarray(pc.fill_null(pc.binary_length(plain), 0), dtype=np.int64)
