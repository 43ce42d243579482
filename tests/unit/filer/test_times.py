"""Times as microseconds, as datetimes and as RFC 3339 text."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filer.times import EARLIEST_US, LATEST_US, microseconds, moment_of, parse_rfc3339, rfc3339, rfc3339_texts


@given(st.integers(EARLIEST_US, LATEST_US))
def test_each_time_survives_both_ways(time_us: int) -> None:
    assert parse_rfc3339(rfc3339(time_us)) == time_us
    assert microseconds(moment_of(time_us)) == time_us


@given(st.lists(st.integers(EARLIEST_US, LATEST_US)))
def test_many_times_are_the_same_texts(times_us: list[int]) -> None:
    assert rfc3339_texts(np.array(times_us, np.int64)) == list(map(rfc3339, times_us))


@pytest.mark.parametrize("time_us", [EARLIEST_US - 1, LATEST_US + 1])
def test_a_time_without_a_text_among_many_is_told(time_us: int) -> None:
    with pytest.raises(OverflowError):
        rfc3339_texts(np.array([0, time_us], np.int64))


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        pytest.param(0, "1970-01-01T00:00:00.000000Z", id="epoch"),
        pytest.param(EARLIEST_US, "0001-01-01T00:00:00.000000Z", id="earliest"),
        pytest.param(LATEST_US, "9999-12-31T23:59:59.999999Z", id="latest"),
    ],
)
def test_text_has_microseconds_and_z(time_us: int, text: str) -> None:
    assert rfc3339(time_us) == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("yesterday", id="no time"),
        pytest.param("2026-01-31", id="a day"),
        pytest.param("2026-01-31T12:00:00", id="no offset"),
        pytest.param("2026-02-30T12:00:00Z", id="no such day"),
        pytest.param("9999-12-31T23:59:59-23:59", id="too late"),
        pytest.param("0001-01-01T00:00:00+23:59", id="too early"),
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_rfc3339(text)


def test_moments_of_any_zone_but_not_without_one() -> None:
    east = datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1)))
    assert microseconds(east) == microseconds(datetime(2026, 1, 31, 12, tzinfo=UTC))
    with pytest.raises(ValueError, match="no time zone"):
        microseconds(datetime(2026, 1, 31, 12))
