from filer.verification.scrub_record import Finding, Reading, ScrubRecord, SegmentScrub
from filer.verification.scrub_schedule import (
    CHECK_AGAIN_SECONDS,
    LEAST_BYTES_PER_SECOND,
    ScrubUnit,
    bytes_per_second,
    due,
    oldest_seconds,
)

SECOND_US = 1_000_000
DAY_SECONDS = 86_400.0
PERIOD_SECONDS = 30 * DAY_SECONDS
NOW_US = 1_700_000_000 * SECOND_US
FOUND = (Finding(key="k", condition="damaged", why="w"),)


def ago_us(seconds: float) -> int:
    return NOW_US - int(seconds * SECOND_US)


def unit(segment: int, *, opened: float, read: float | None = None, size_bytes: int = 0, **scrub: object) -> ScrubUnit:
    """A segment that was opened and read so many seconds ago."""
    read_us = 0 if read is None else ago_us(read)
    known = SegmentScrub(segment=segment, read_us=read_us, size_bytes=size_bytes).model_copy(update=scrub)
    return ScrubUnit("t", ago_us(opened), known)


def order(*units: ScrubUnit) -> list[int]:
    return [each.scrub.segment for each in due(units, NOW_US, PERIOD_SECONDS)]


def test_the_oldest_goes_first_and_what_is_not_due_waits() -> None:
    year = 365 * DAY_SECONDS
    assert order(
        unit(1, opened=year, read=31 * DAY_SECONDS),
        unit(2, opened=year, read=29 * DAY_SECONDS),
        unit(3, opened=year),
        unit(4, opened=31 * DAY_SECONDS),
        unit(5, opened=29 * DAY_SECONDS),
        unit(6, opened=year, read=40 * DAY_SECONDS),
    ) == [3, 6, 1, 4]  # fmt: skip


def test_what_was_found_is_looked_at_again_soon_and_large_ones_later() -> None:
    soonest, latest = CHECK_AGAIN_SECONDS
    assert order(unit(1, opened=1e7, read=soonest + 1, found=FOUND), unit(2, opened=1e7, read=soonest + 1)) == [1]
    assert order(unit(1, opened=1e7, read=soonest - 1, found=FOUND)) == []
    large = 2**40
    assert order(unit(1, opened=1e7, read=latest - 1, size_bytes=large, found=FOUND)) == []
    assert order(unit(1, opened=1e7, read=latest + 1, size_bytes=large, found=FOUND)) == [1]


def test_a_time_ahead_of_ours_is_not_believed() -> None:
    assert order(unit(1, opened=1e7, read=-2 * DAY_SECONDS)) == [1]


def test_the_rate_is_twice_what_is_needed_within_its_bounds() -> None:
    terabytes = unit(1, opened=1, size_bytes=int(PERIOD_SECONDS) * LEAST_BYTES_PER_SECOND)
    assert bytes_per_second([terabytes] * 3, PERIOD_SECONDS, 1e9) == 6 * LEAST_BYTES_PER_SECOND
    assert bytes_per_second([terabytes] * 3, PERIOD_SECONDS, 5e6) == 5e6
    assert bytes_per_second([], PERIOD_SECONDS, 1e9) == LEAST_BYTES_PER_SECOND
    never_read = ScrubUnit("t", 0, SegmentScrub(segment=1), size_bytes=terabytes.read_bytes)
    assert bytes_per_second([never_read], PERIOD_SECONDS, 1e9) == 2 * LEAST_BYTES_PER_SECOND


def test_the_oldest() -> None:
    assert oldest_seconds([unit(1, opened=500), unit(2, opened=900, read=100)], NOW_US) == 500
    assert oldest_seconds([], NOW_US) == 0


def test_findings_are_those_of_the_last_reading_and_of_the_one_under_way() -> None:
    again = Finding(key="k", condition="missing", why="gone")
    other = Finding(key="l", condition="damaged", why="w")
    scrub = SegmentScrub(segment=1, found=FOUND, under_way=Reading(began_us=1, found=(again, other)))
    assert scrub.findings == [again, other]


def test_a_record_has_one_entry_of_each_segment() -> None:
    record = ScrubRecord().with_segment(SegmentScrub(segment=2)).with_segment(SegmentScrub(segment=1))
    record = record.with_segment(SegmentScrub(segment=2, read_us=5))
    assert [(each.segment, each.read_us) for each in record.segments] == [(1, 0), (2, 5)]
    assert record.of(2).read_us == 5
    assert record.of(9) == SegmentScrub(segment=9)
