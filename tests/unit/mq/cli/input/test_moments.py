from datetime import UTC, datetime, timedelta

import pytest
import typer

from filer.times import microseconds
from mq.cli.input.moments import moment, start_of

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
NOW_US = microseconds(NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5m", datetime(2026, 1, 31, 11, 55, tzinfo=UTC)),
        ("30s", datetime(2026, 1, 31, 11, 59, 30, tzinfo=UTC)),
        ("1d", datetime(2026, 1, 30, 12, tzinfo=UTC)),
        ("1h30m", datetime(2026, 1, 31, 10, 30, tzinfo=UTC)),
        ("2026-01-31T13:00:00+01:00", NOW),
        ("2026-01-31T12:00:00Z", NOW),
        ("2026-01-31 12:00:00Z", NOW),
        ("100000w", NOW - timedelta(weeks=100_000)),
        ("999999w", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_time_is_a_date_or_how_long_ago(text: str, expected: datetime) -> None:
    assert moment(text, NOW_US, option="--to") == expected == start_of(text, NOW_US)


@pytest.mark.parametrize("name", ["earliest", "latest"])
def test_a_start_may_have_a_name(name: str) -> None:
    assert start_of(name, NOW_US) == name
    with pytest.raises(typer.BadParameter, match="it must be an RFC 3339 time"):
        moment(name, NOW_US, option="--to")


@pytest.mark.parametrize(
    "text", ["", "yesterday", "5", "1769860800", "2026", "5 minutes", "-5m", "2026-01-31", "2026-01-31T12:00:00", "now"]
)
def test_what_is_no_time_is_told_with_what_would_be_right(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"earliest, latest, an RFC 3339 time .* 5m, 2h or 1d, not "):
        start_of(text, NOW_US)
