import pyarrow as pa
import pytest

from pipeline.backfill import in_one_part
from pipeline.errors import JobFailed
from pipeline.patience import LONGEST_SECONDS, MOST_SECONDS, Patience
from tests.support.instant_clock import InstantClock


def batch(*parts: int) -> pa.RecordBatch:
    return pa.record_batch({"part": pa.array(parts, pa.int32()), "value": [str(part) for part in parts]})


def test_batches_are_cut_where_the_part_changes():
    found = [
        (part, rows["value"].to_pylist())
        for part, rows in in_one_part(iter([batch(0, 0, 1), batch(), batch(1), batch(2, 2)]))
    ]
    assert found == [(0, ["0", "0"]), (1, ["1"]), (1, ["1"]), (2, ["2", "2"])]


def test_pauses_grow_to_a_bound_and_end_with_the_last_failure():
    clock = InstantClock()
    patience = Patience(clock)
    with pytest.raises(JobFailed, match="no answer"):
        while True:
            patience.wait("no answer")
    assert clock.naps_seconds[:3] == [0.2, 0.4, 0.8] and max(clock.naps_seconds) == LONGEST_SECONDS
    assert MOST_SECONDS < sum(clock.naps_seconds) <= MOST_SECONDS + LONGEST_SECONDS
