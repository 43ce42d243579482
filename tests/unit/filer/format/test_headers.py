"""Headers as columns are judged as one message at a time."""

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from filer.format.header_columns import first_wrong_headers
from filer.format.headers import wrong_headers
from filer.format.schema import HEADERS

NAMES = st.sampled_from(["a", "b", "A", "braid-deliver-at", "Braid-Deliver-At", "braid-expires-at"])
TIMES = ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5Z", "2026-01-31 12:00+01:00", "20260131T120000Z"]
NO_TIMES = [
    "",
    "soon",
    "2026-02-31T12:00:00Z",
    "0000-01-01T00:00:00Z",
    "2026-01-31T12:00:00",
    "2026-01-31T24:30:00Z",
    "\xff",
]
VALUES = st.sampled_from([text.encode("latin-1") for text in [*TIMES, *NO_TIMES]])
ROWS = st.lists(st.none() | st.lists(st.tuples(NAMES, VALUES), max_size=3), max_size=6)


@given(ROWS, st.integers(0, 3))
@example([[("a", b""), ("a", b"")], None, [("b", b"")]], 1)
def test_columns_are_judged_as_messages_are(rows: list[list[tuple[str, bytes]] | None], skipped: int) -> None:
    wrong = [(row, reason) for row, each in enumerate(rows[skipped:]) if (reason := wrong_headers(each or ()))]
    assert first_wrong_headers(pa.array(rows, HEADERS).slice(skipped)) == (wrong[0] if wrong else None)


def test_times_that_are_written_here_are_right() -> None:
    assert [wrong_headers([("braid-deliver-at", text.encode())]) for text in TIMES] == [None] * len(TIMES)
