import orjson
import pyarrow as pa
from hypothesis import given

from braidmq.json_rows.decoding import rows_from_json
from braidmq.json_rows.encoding import rows_to_json
from tests.support.rows.arrow_tables import tables


@given(tables())
def test_any_table_comes_back_from_its_json_unchanged(table: pa.Table) -> None:
    texts = rows_to_json(table)
    again = rows_from_json(texts, table.schema)
    assert again.equals(table)
    assert rows_to_json(again).equals(texts)
    for each in texts.to_pylist():
        orjson.loads(each)


@given(tables())
def test_a_part_of_a_table_has_the_same_json(table: pa.Table) -> None:
    texts = rows_to_json(table).to_pylist()
    for row in range(table.num_rows):
        assert rows_to_json(table.slice(row, 1)).to_pylist() == [texts[row]]
