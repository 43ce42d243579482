"""Claims have records of their own as long as they come slowly, and what is exposed ahead is bounded."""

import pytest

from groups.queue.claim_pace import AHEAD_MS, PAUSE_MS, PER_SECOND, STEP_MS, ClaimPace


def records(pace: ClaimPace, every_ms: int, until_ms: int) -> int:
    """How many records are made for claims alone, of which one comes so often."""
    made = waiting = 0
    for now_ms in range(until_ms):
        waiting += now_ms % every_ms == 0
        if waiting and pace.may_record(now_ms):
            pace.recording(now_ms, for_claims=True)
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


def claimed_and_acked(pace: ClaimPace, record_ms: int, work_ms: int, until_ms: int) -> tuple[int, int]:
    """How many messages one consumer claims and acks, one by one, and the records that takes."""
    now_ms = acked = records = reserve = 0

    def record(*, for_claims: bool) -> None:
        nonlocal now_ms, records, reserve
        pace.recording(now_ms, for_claims=for_claims)
        ahead = pace.ahead(now_ms)
        now_ms += record_ms
        pace.recorded(now_ms)
        reserve, records = max(reserve, ahead), records + 1

    while now_ms < until_ms:
        if not reserve:
            record(for_claims=True)
        reserve = max(reserve - 1, 0)
        pace.claimed(now_ms, 1)
        now_ms += work_ms
        if reserve and pace.is_paused(now_ms):
            reserve, records = 0, records + 1
        record(for_claims=False)
        acked += 1
    return acked, records


@pytest.mark.parametrize("record_ms", [5, 100, 300, 700])
def test_a_consumer_waits_for_one_record_a_message_where_records_take_most_of_its_time(record_ms: int) -> None:
    acked, records = claimed_and_acked(ClaimPace(), record_ms, 0, 60_000)
    assert acked >= 0.95 * 60_000 / record_ms and records <= 1.05 * acked + PER_SECOND


@pytest.mark.parametrize("record_ms", [5, 100, 700])
@pytest.mark.parametrize("work_ms", [1, 10, 60, 200, 900, 5_000])
def test_a_consumer_is_never_much_slower_and_never_has_more_than_two_records_a_message(
    record_ms: int, work_ms: int
) -> None:
    until_ms = 200 * (record_ms + work_ms)
    acked, records = claimed_and_acked(ClaimPace(), record_ms, work_ms, until_ms)
    assert acked >= 200 * 0.87 and records <= 2 * acked


def test_no_more_is_exposed_ahead_than_is_claimed_while_two_records_are_stored() -> None:
    pace = ClaimPace()
    for now_ms in range(0, 20_000, 100):
        pace.recording(now_ms, for_claims=False)
        pace.recorded(now_ms + 500)
        pace.claimed(now_ms, 1)
    assert 8 <= pace.ahead(20_000) <= 10
