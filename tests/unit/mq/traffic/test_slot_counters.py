"""The load per slot is what was stored, seen in samples and fading."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from filer.segment.later_table import LaterTable, RowNumbers
from filer.slots import SLOTS, slot_of
from mq.traffic.slot_counters import MOST_SAMPLED_ROWS, SlotCounters

WINDOW_SECONDS = 10.0


def counters(start: int = 0, stop: int = SLOTS) -> SlotCounters:
    return SlotCounters(start, stop, window_seconds=WINDOW_SECONDS, generator=np.random.default_rng(7))


def table(keys: list[str | None], values: list[str | None] | None = None) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values or ["v"] * len(keys), pa.string())})


def test_each_message_counts_in_the_slot_of_its_key() -> None:
    subject = counters()
    subject.count(table(["ann", "bob", "ann"], ["12345", None, "1"]))
    seen = subject.traffic()
    ann, bob = slot_of(b"ann"), slot_of(b"bob")
    assert (seen.messages[ann], seen.messages[bob], seen.messages.sum()) == (2, 1, 3)
    assert (seen.size_bytes[ann], seen.size_bytes[bob]) == (3 + 5 + 3 + 1, 3)
    assert seen.observations == 3


def test_slots_are_those_of_the_segments_range() -> None:
    slot = slot_of(b"ann")
    subject = counters(slot - 1, slot + 2)
    subject.count(table(["ann"]))
    assert subject.traffic().messages.tolist() == [0, 1, 0]


def test_what_does_not_belong_here_is_left_out() -> None:
    """However a message came into the segment, counting it must not fail: it happens between its put and its answer."""
    slot = slot_of(b"ann")
    subject = counters(slot + 1, slot + 3)
    subject.count(table(["ann"]))
    assert subject.traffic().messages.sum() == 0


def test_messages_without_a_key_count_for_all_slots_alike() -> None:
    subject = counters(0, 4)
    subject.count(table([None, None], ["1234", "5678"]))
    assert subject.traffic().messages.tolist() == [0.5] * 4
    assert subject.traffic().size_bytes.tolist() == [2.0] * 4


def test_an_empty_file_counts_nothing() -> None:
    subject = counters()
    subject.count(table([]))
    assert subject.traffic().messages.sum() == 0


@pytest.mark.parametrize("chunks", [1, 5])
def test_of_a_large_file_a_sample_stands_for_all(chunks: int) -> None:
    rows = 10 * MOST_SAMPLED_ROWS
    keys = [f"key {n % 4}" for n in range(rows)]
    whole = pa.concat_tables([table(keys[n * rows // chunks : (n + 1) * rows // chunks]) for n in range(chunks)])
    subject = counters()
    subject.count(whole)
    seen = subject.traffic()
    assert seen.messages.sum() == pytest.approx(rows)
    assert seen.observations == MOST_SAMPLED_ROWS
    for n in range(4):
        assert seen.messages[slot_of(f"key {n}".encode())] == pytest.approx(rows / 4, rel=0.1), "keys come in turns"


def test_of_a_large_file_only_the_sample_is_made() -> None:
    """The event loop counts: to make a million rows, or look at all of them, holds up others for 50 ms."""
    rows, picked = 10 * MOST_SAMPLED_ROWS, []

    def pick(part: str, numbers: RowNumbers) -> pa.Table:
        picked.append(len(numbers))
        return table(["ann"] * len(numbers))

    def make(parts: Sequence[str]) -> pa.Table:
        raise AssertionError(f"all rows of {parts} are made")

    subject = counters()
    subject.count(LaterTable(rows, "part", make, pick=pick))
    assert picked == [MOST_SAMPLED_ROWS]
    assert subject.traffic().messages[slot_of(b"ann")] == pytest.approx(rows)


def test_what_has_been_counted_fades() -> None:
    subject = counters()
    subject.count(table(["ann", None]))
    subject.fade(WINDOW_SECONDS)
    seen = subject.traffic()
    assert seen.messages.sum() == pytest.approx(2 / np.e, rel=1e-5)
    assert seen.size_bytes.sum() == pytest.approx((4 + 1) / np.e, rel=1e-5)
    assert seen.observations == 1
