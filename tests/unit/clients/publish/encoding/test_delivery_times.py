"""Times of delivery as arguments become headers, of a message and of a table."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from braidmq.errors import InvalidArgument
from braidmq.publish.encoding.outgoing import OutgoingMessage, row_of
from braidmq.publish.encoding.tables import TablePlan, message_tables
from filer.times import microseconds

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
AT = b"2026-01-31T13:00:00.000000Z"


def headers_of(**times: Any) -> dict[str, bytes]:
    return dict(row_of(OutgoingMessage("v", **times), upload=None, now_us=microseconds(NOW)).headers)


def headers_of_table(table: pa.Table, **plan: Any) -> list[Any]:
    (made,) = message_tables(table, TablePlan(value="v", now_us=microseconds(NOW), **plan), slice_bytes=10**6)
    return [None if each is None else dict(each) for each in made["headers"].to_pylist()]


@pytest.mark.parametrize(
    ("times", "name"),
    [
        ({"deliver_at": LATER}, "braid-deliver-at"),
        ({"deliver_at": LATER.astimezone(timezone(timedelta(hours=-5)))}, "braid-deliver-at"),
        ({"delay": timedelta(hours=1)}, "braid-deliver-at"),
        ({"expires_at": LATER}, "braid-expires-at"),
    ],
)
def test_times_become_headers(times: dict[str, Any], name: str) -> None:
    assert headers_of(**times) == {name: AT}
    assert headers_of_table(pa.table({"v": ["a", "b"]}), **times) == [{name: AT}] * 2


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ({"deliver_at": datetime(2026, 1, 31, 13)}, "no time zone"),
        ({"expires_at": datetime(2026, 1, 31, 13)}, "no time zone"),
        ({"deliver_at": NOW.timestamp()}, "is no time"),
        ({"delay": 5}, "a delay is a datetime.timedelta"),
        ({"delay": timedelta(seconds=-1)}, "from 0 to"),
        ({"delay": timedelta.max}, "from 0 to"),
        ({"delay": timedelta(0), "deliver_at": LATER}, "not both"),
        ({"deliver_at": LATER, "expires_at": LATER}, "expires before it may be delivered"),
        ({"deliver_at": LATER, "headers": {"Braid-Deliver-At": "x"}}, "so does an argument"),
    ],
)
def test_times_that_make_no_sense_are_refused(times: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        headers_of(**times)
    with pytest.raises(InvalidArgument, match=says):
        headers_of_table(pa.table({"v": ["a", "b"]}), **times)


def test_a_time_more_than_an_hour_ago_is_a_mistake() -> None:
    with pytest.raises(InvalidArgument, match="more than an hour ago"):
        headers_of(deliver_at=NOW - timedelta(hours=2))


def test_columns_of_times() -> None:
    table = pa.table(
        {
            "v": ["a", "b"],
            "at": pa.array([LATER, None], pa.timestamp("ms", "Europe/Berlin")),
            "text": ["2026-01-31T14:00:00+01:00", None],
            "delay": pa.array([None, timedelta(hours=1)], pa.duration("s")),
            "h": pa.array([[("x", b"y")], None], pa.map_(pa.string(), pa.binary())),
        }
    )
    assert headers_of_table(table, deliver_at="at") == [{"braid-deliver-at": AT}, None]
    assert headers_of_table(table, expires_at="text", headers="h") == [{"x": b"y", "braid-expires-at": AT}, None]
    assert headers_of_table(table, delay="delay") == [None, {"braid-deliver-at": AT}]


@pytest.mark.parametrize(
    ("column", "plan", "says"),
    [
        (pa.array([datetime(2026, 1, 31)]), "deliver_at", "no times with a zone"),
        (pa.array(["2026-01-31T12:00:00"]), "deliver_at", "row 0.*no zone"),
        (pa.array([5]), "expires_at", "no times with a zone"),
        (pa.array([5]), "delay", "give durations"),
        (pa.array([timedelta(seconds=-1)]), "delay", "from 0 to"),
    ],
)
def test_columns_without_such_times_are_refused(column: Any, plan: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        headers_of_table(pa.table({"v": ["a"], "t": column}), **{plan: "t"})


def test_a_bulk_load_takes_no_delay() -> None:
    plan = TablePlan(value="v", delay=timedelta(1))
    with pytest.raises(InvalidArgument, match="give deliver_at"):
        list(message_tables(pa.table({"v": ["a"]}), plan, slice_bytes=10**6))
