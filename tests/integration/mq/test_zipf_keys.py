"""Zipf keys at a real broker: the cuts it makes by itself share the load, where equal widths would not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from filer.clock import SystemClock
from filer.format.slot_columns import slots_of
from filer.slots import SLOTS
from filer.stores.local.local_store import LocalStore
from leader.policy.even_cuts import even_cut_points
from tests.support.broker.http_broker import HttpBroker, http_broker

KEYS, EXPONENT, PARTS = 100_000, 1.1, 4
ROWS, REQUESTS = 5_000, 50
EVEN = 1.25
"""The most that the largest child may carry over the smallest."""
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
# Whatever the machine publishes a second is a flood.
CONFIG = {
    "max_segments": PARTS,
    "target": {"messages": 100, "bytes": 1e9},
    "scaling": {
        "split": [{"times_target": 1, "for_seconds": 1}],
        "merge": {"times_target": 0.5, "for_seconds": 60},
    },
}
PATIENCE_SECONDS = 30.0


class ZipfLoad:
    """Requests of messages whose keys are as frequent as their rank to the power of `-EXPONENT`."""

    def __init__(self, broker: HttpBroker) -> None:
        self._broker = broker
        self._generator = np.random.default_rng(7)
        self._keys = pa.array([f"key {n}".encode() for n in range(KEYS)], pa.binary())
        self._slots = slots_of(self._keys, null_slot=0)
        weights = np.arange(1, KEYS + 1) ** -EXPONENT
        self._sums = np.cumsum(weights / weights.sum())
        self.expected = np.bincount(self._slots, weights / weights.sum(), minlength=SLOTS)

    async def publish(self) -> npt.NDArray[np.int64]:
        """One request; how many of its messages came to each slot."""
        drawn = np.minimum(self._sums.searchsorted(self._generator.random(ROWS)), KEYS - 1)
        batch = pa.record_batch({"key": self._keys.take(pa.array(drawn)), "value": pa.array([b"x"] * ROWS)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        answer = await self._broker.client.post("/v1/topics/t/messages", content=bytes(sink.getvalue()), headers=ARROW)
        assert answer.status_code == 200, answer.text
        return np.bincount(self._slots[drawn], minlength=SLOTS)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HttpBroker]:
    async with http_broker(LocalStore(tmp_path, clock=SystemClock()), report_interval=0.1) as broker:
        (await broker.client.put("/v1/topics/t", json=CONFIG)).raise_for_status()
        yield broker


async def open_segments(broker: HttpBroker) -> list[dict[str, Any]]:
    segments = (await broker.client.get("/v1/topics/t")).raise_for_status().json()["segments"]
    return sorted((s for s in segments if s["state"] == "open"), key=lambda s: s["range"])


def children(counts: npt.NDArray[Any], cuts: list[int]) -> npt.NDArray[Any]:
    """What comes to each of the ranges between the cuts."""
    return np.add.reduceat(counts, [0, *cuts])


def ratio(loads: npt.NDArray[Any]) -> float:
    return float(loads.max() / loads.min())


async def test_children_of_a_split_carry_the_same_load_and_at_equal_widths_would_not(broker: HttpBroker) -> None:
    load = ZipfLoad(broker)
    best = even_cut_points(load.expected, 0, SLOTS, PARTS, observations=10**9)
    beside = max(load.expected[[cut - 1, cut]].max() for cut in best)
    assert beside < 0.05 / PARTS, "no single slot is in the way of an even cut"

    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(before := await open_segments(broker)) < PARTS:
            await load.publish()
    assert [segment["predecessors"] for segment in before] == [[0]] * PARTS, "one split has made them all"
    counts = sum([await load.publish() for _ in range(REQUESTS)], np.zeros(SLOTS, np.int64))
    after = await open_segments(broker)

    assert [s["segment"] for s in after] == [s["segment"] for s in before], "nothing more to split"
    carried = np.array([b["end_offset"] - a["end_offset"] for a, b in zip(before, after, strict=True)])
    assert carried.tolist() == children(counts, [s["range"][0] for s in after[1:]]).tolist()
    assert carried.sum() == ROWS * REQUESTS
    print(f"the largest child carries {ratio(carried):.3f} times what the smallest does")
    assert ratio(carried) <= EVEN
    equal_widths = even_cut_points(np.zeros(SLOTS), 0, SLOTS, PARTS)
    assert ratio(children(counts, list(equal_widths))) > EVEN, "it was the quantiles that did it"
