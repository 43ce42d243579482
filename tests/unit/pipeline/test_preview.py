import json

import pytest

from pipeline.preview import Preview, Times

DAY_US = 86_400 * 10**6
YEAR_1990_US = 631_152_000 * 10**6
NOW_US = 1_800_000_000 * 10**6


@pytest.mark.parametrize(
    ("first_us", "last_us", "warning"),
    [
        (None, None, None),
        (YEAR_1990_US, NOW_US + DAY_US, None),
        (YEAR_1990_US - 1, NOW_US, "the earliest event time is 1989-12-31T23:59:59.999999Z, before 1990"),
        (NOW_US, NOW_US + DAY_US + 1, "the latest event time is 2027-01-16T08:00:00.000001Z, after tomorrow"),
    ],
)
def test_times_before_1990_and_after_tomorrow_are_unlikely(
    first_us: int | None, last_us: int | None, warning: str | None
) -> None:
    assert Times(first_us, last_us).unlikely(NOW_US) == warning


def test_a_preview_shows_the_first_messages_as_they_would_be_stored(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"key": b"k\xff", "value": "v" * 200, "event_time": None}]
    preview = Preview(2, 300, Times(0, 0), rows)
    preview.show("load a into b", "strange", as_json=False)
    text = capsys.readouterr().out
    assert "would load a into b: 2 messages with 300 B of values" in text
    assert "event times from 1970-01-01T00:00:00.000000Z to 1970-01-01T00:00:00.000000Z" in text
    assert "unlikely: strange" in text and "v" * 100 + "…" in text
    preview.show("load a into b", None, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["messages"], document["warning"]) == (2, None)
    assert document["first"] == [{"key": "k\ufffd", "value": "v" * 200, "event_time": None}]
