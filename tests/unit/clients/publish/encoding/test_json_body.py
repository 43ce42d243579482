"""A few rows go as JSON: what the broker's own decoder makes of it are the rows."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from braidmq.publish.encoding.json_body import MOST_BYTES, MOST_ROWS, fits_json, json_body
from braidmq.publish.encoding.outgoing import OutgoingMessage, Row, Upload, row_of
from braidmq.publish.encoding.row_columns import RowColumns
from filer.format.schema import MessageSchema
from mq.bodies.json_body import decode_json
from mq.limits.steps import at_once

HEADERS = st.dictionaries(st.text(max_size=5), st.binary(max_size=5) | st.text(max_size=5), max_size=3)
MESSAGES = st.builds(
    OutgoingMessage,
    st.none() | st.binary(max_size=20) | st.text(max_size=9) | st.lists(st.booleans(), max_size=3),
    st.none() | st.binary(max_size=20),
    HEADERS,
)
SMALL = Row(b"key", b"value", (), None, None)
COLUMNS = MessageSchema.of()


@given(st.lists(MESSAGES, min_size=1, max_size=MOST_ROWS))
def test_the_broker_reads_the_rows_that_were_sent(messages: list[OutgoingMessage]) -> None:
    rows = [row_of(each, upload=None, now_us=0) for each in messages]
    decoded = at_once(decode_json(json_body(RowColumns.of(rows)), COLUMNS)).batch.to_pylist()
    assert [(row["key"], row["value"], row["headers"]) for row in decoded] == [
        (row.key, row.value, list(row.headers) or None) for row in rows
    ]


def test_many_large_and_special_rows_go_as_arrow() -> None:
    assert fits_json(RowColumns.of([SMALL] * MOST_ROWS))
    assert not fits_json(RowColumns.of([SMALL] * (MOST_ROWS + 1)))
    timed = row_of(OutgoingMessage("x", event_time=datetime(2024, 5, 1, tzinfo=UTC)), upload=None, now_us=0)
    uploaded = row_of(OutgoingMessage(None), upload=Upload("id", 3, "00"), now_us=0)
    for large in ([Row(None, bytes(MOST_BYTES), (), None, None)], [timed], [SMALL, uploaded]):
        assert not fits_json(RowColumns.of(large))
