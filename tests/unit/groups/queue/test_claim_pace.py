"""Claims have records of their own as long as they come slowly, and what is exposed ahead is bounded."""

import pytest

from groups.queue.claim_pace import AHEAD_MS, PAUSE_MS, PER_SECOND, STEP_MS, ClaimPace


def records(pace: ClaimPace, every_ms: int, until_ms: int) -> int:
    """How many records are made for claims alone, of which one comes so often."""
    made = waiting = 0
    for now_ms in range(until_ms):
        waiting += now_ms % every_ms == 0
        if waiting and pace.may_record(now_ms):
            pace.recorded(now_ms)
            pace.claimed(now_ms, waiting)
            made, waiting = made + 1, 0
    return made


def test_slow_claims_have_a_record_each_and_nothing_is_exposed_ahead() -> None:
    pace = ClaimPace()
    assert records(pace, STEP_MS, 60_000) == 60 * PER_SECOND
    assert pace.ahead(60_000) == 0


def test_fast_claims_have_no_more_records_than_slow_ones() -> None:
    assert records(ClaimPace(), 2, 60_000) <= 61 * PER_SECOND


def test_what_is_exposed_ahead_is_what_was_claimed_just_before_and_nothing_after_a_pause() -> None:
    pace = ClaimPace()
    for now_ms in range(0, 5_000, 10):
        pace.claimed(now_ms, 3)
    assert 3 * STEP_MS / 10 <= pace.ahead(5_000) <= 3 * AHEAD_MS / 10
    assert pace.ms_until_pause(5_000) <= PAUSE_MS
    assert pace.is_paused(5_000 + PAUSE_MS) and not pace.is_hurried(5_000 + PAUSE_MS)
    assert pace.ahead(5_000 + PAUSE_MS) == 0


def test_a_burst_is_followed_by_exact_claims_though_they_never_pause() -> None:
    pace = ClaimPace()
    for _ in range(100):
        pace.claimed(0, 1)
    assert pace.is_hurried(1)
    for now_ms in range(100, 2_000, 100):
        pace.claimed(now_ms, 1)
    assert not pace.is_hurried(2_000)


@pytest.mark.parametrize("record_ms", [50, 100, 300, 700])
@pytest.mark.parametrize("work_ms", [0, 10, 200, 5_000])
def test_on_a_slow_store_nothing_is_exposed_ahead_of_a_consumer(record_ms: int, work_ms: int) -> None:
    """Else it would wait for a lease if all brokers died, though no consumer has ever got it."""
    pace, now_ms = ClaimPace(), 0
    for _ in range(200):
        assert pace.may_record(now_ms)
        pace.recorded(now_ms)
        now_ms += record_ms
        pace.claimed(now_ms, 1)
        assert pace.ahead(now_ms) == 0  # the record of its ack exposes no other message
        now_ms += work_ms + record_ms
