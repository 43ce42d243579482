"""Messages column by column: the same as row by row, however they are cut and joined."""

from hypothesis import given
from hypothesis import strategies as st

from braidmq.publish.encoding.outgoing import Row, Upload
from braidmq.publish.encoding.row_columns import RowColumns, joined

DATA = st.none() | st.binary(max_size=3)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2).map(tuple)
ROWS = st.lists(
    st.builds(
        Row,
        DATA,
        st.binary(max_size=3),
        HEADERS,
        st.none() | st.integers(0, 9),
        st.none() | st.just(Upload("u", 3, "00")),
        st.booleans(),
    )
)


def rows_of(columns: RowColumns) -> list[Row]:
    count = len(columns)
    assert columns.size_bytes == sum(columns.sizes_bytes())
    return [
        Row(*each)
        for each in zip(
            columns.keys,
            columns.values,
            columns.headers or [()] * count,
            columns.event_times_us or [None] * count,
            columns.uploads or [None] * count,
            columns.texts or [False] * count,
            strict=True,
        )
    ]


@given(ROWS)
def test_rows_come_back(rows: list[Row]) -> None:
    columns = RowColumns.of(rows)
    assert rows_of(columns) == rows
    assert columns.sizes_bytes() == [row.size_bytes for row in rows]


@given(ROWS, ROWS, ROWS)
def test_parts_are_joined(first: list[Row], second: list[Row], third: list[Row]) -> None:
    parts = [RowColumns.of(rows) for rows in (first, second, third)]
    assert rows_of(joined(parts)) == [*first, *second, *third]
    assert [rows_of(part) for part in parts] == [first, second, third], "the parts stay as they are"


@given(ROWS, st.data())
def test_columns_are_cut_and_picked_from(rows: list[Row], data: st.DataObject) -> None:
    columns = RowColumns.of(rows)
    at = data.draw(st.integers(0, len(rows)))
    assert [rows_of(part) for part in columns.cut(at)] == [rows[:at], rows[at:]]
    picked = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True).map(sorted)) if rows else []
    assert rows_of(columns.take(picked)) == [rows[row] for row in picked]


@given(ROWS, st.integers(0, 300))
def test_as_many_rows_as_fit(rows: list[Row], size_bytes: int) -> None:
    fit = RowColumns.of(rows).rows_within(size_bytes)
    assert sum(row.size_bytes for row in rows[:fit]) <= size_bytes
    assert fit == len(rows) or sum(row.size_bytes for row in rows[: fit + 1]) > size_bytes
