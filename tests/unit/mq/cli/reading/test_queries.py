"""The queries of a topic for other engines: where the store is. What they read is in tests/integration/docs."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidmq import SegmentFile
from mq.cli.failures import CommandFailed
from mq.cli.reading.queries.engines import QUERIES, Engine
from mq.cli.reading.queries.for_duckdb import HEADERS_ONCE
from mq.cli.reading.queries.stored_topic import stored_topic

KEY = "topics/t/segments/segment=3/00000000000000000000.parquet"
SIGNED = "X-Amz-Credential=AKIA%2F20260101%2Feu-west-3%2Fs3%2Faws4_request&X-Amz-Signature=1"
LOCAL = "ENDPOINT '127.0.0.1:9000', USE_SSL false, URL_STYLE 'path'"
AWS = ("s3://b/p", "https://b.s3.eu-west-3.amazonaws.com/p")
PATH_STYLE = ("s3://b/p", "http://127.0.0.1:9000/b/p")
VIRTUAL = ("s3://b", "https://b.minio.example")


@pytest.mark.parametrize("engine", ["duckdb", "spark", "polars", "athena"])
def test_one_topic_of_a_topic_group_is_its_rows_and_the_whole_tells_whose_they_are(engine: Engine) -> None:
    key = KEY.replace("topics/t/", "topics/shop/")
    file = SegmentFile(
        uri=f"s3://b/{key}",
        url=f"https://b.s3.eu-west-3.amazonaws.com/{key}?{SIGNED}",
        segment=3,
        base_offset=0,
        end_offset=1,
        count=1,
        bytes=9,
    )
    types = {"key_type": "string", "value_type": "json"}
    member = QUERIES[engine](stored_topic("or'ders", file, group="shop", **types))
    whole = QUERIES[engine](stored_topic("shop", file, group="shop", **types))
    quoted = {"duckdb": "_topic = 'or''ders'", "athena": "\"_topic\" = 'or''ders'"}
    quoted |= {"spark": "_topic = 'or''ders'", "polars": 'pl.col("_topic") == "or\'ders"'}
    assert quoted[engine] in member and "topics/shop/segments" in member
    assert "_topic" in whole and quoted[engine] not in whole


def query(engine: Engine, root: str, address: str | None, *, topic: str = "t", value_type: str = "json") -> str:
    key = KEY.replace("topics/t/", f"topics/{topic}/")
    url = None if address is None else f"{address}/{key.replace('=', '%3D')}?{SIGNED}"
    file = SegmentFile(uri=f"{root}/{key}", url=url, segment=3, base_offset=0, end_offset=1, count=1, bytes=9)
    return QUERIES[engine](stored_topic(topic, file, key_type="string", value_type=value_type))


@pytest.mark.parametrize(
    ("store", "place"),
    [
        (PATH_STYLE, f"SCOPE 's3://b/p', REGION 'eu-west-3', {LOCAL}"),
        (
            VIRTUAL,
            "SCOPE 's3://b', REGION 'eu-west-3', ENDPOINT 'minio.example', USE_SSL true, URL_STYLE 'vhost'",
        ),
        (AWS, "SCOPE 's3://b/p', REGION 'eu-west-3'"),
    ],
)
def test_duckdb_is_told_where_the_bucket_is(store: tuple[str, str], place: str) -> None:
    text = query("duckdb", *store)
    assert f"SECRET braidmq (TYPE s3, PROVIDER credential_chain, {place});" in text
    assert f"glob('{store[0]}/topics/t/segments/segment=*/*.parquet')" in text


@pytest.mark.parametrize(
    ("store", "options"),
    [
        (
            PATH_STYLE,
            {
                "fs.s3a.bucket.b.endpoint.region": "eu-west-3",
                "fs.s3a.bucket.b.endpoint": "http://127.0.0.1:9000",
                "fs.s3a.bucket.b.path.style.access": "true",
            },
        ),
        (
            VIRTUAL,
            {
                "fs.s3a.bucket.b.endpoint.region": "eu-west-3",
                "fs.s3a.bucket.b.endpoint": "https://minio.example",
                "fs.s3a.bucket.b.path.style.access": "false",
            },
        ),
        (AWS, {"fs.s3a.bucket.b.endpoint.region": "eu-west-3"}),
    ],
)
def test_spark_is_told_where_the_bucket_is(store: tuple[str, str], options: dict[str, str]) -> None:
    text = query("spark", *store)
    assert f"\noptions = {options!r}\n" in text
    assert f"\nfolder = '{store[0].replace('s3:', 's3a:')}/topics/t/segments'\n" in text


@pytest.mark.parametrize(
    ("store", "options"),
    [
        (
            PATH_STYLE,
            {
                "aws_region": "eu-west-3",
                "aws_endpoint_url": "http://127.0.0.1:9000",
                "aws_allow_http": "true",
                "aws_virtual_hosted_style_request": "false",
            },
        ),
        (
            VIRTUAL,
            {
                "aws_region": "eu-west-3",
                "aws_endpoint_url": "https://b.minio.example",
                "aws_allow_http": "false",
                "aws_virtual_hosted_style_request": "true",
            },
        ),
        (AWS, {"aws_region": "eu-west-3"}),
    ],
)
def test_polars_is_told_where_the_bucket_is(store: tuple[str, str], options: dict[str, str]) -> None:
    assert f"\nstorage_options = {options!r}\n" in query("polars", *store)


@pytest.mark.parametrize("engine", ["duckdb", "spark", "polars"])
def test_a_directory_needs_no_settings(engine: Engine) -> None:
    text = query(engine, "file:///home/ada%20b/braid-data", None)
    assert "/home/ada b/braid-data/topics/t/segments" in text
    assert not any(word in text for word in ("SECRET", "s3", "storage_options"))


ATHENA = """\
-- Topic 'Day-1.x' for Athena, each message once at every moment. Run the two statements once, one after the other; then
-- query the view topic_day_1_x. It knows what retention had removed when it was printed; print it again later.
CREATE EXTERNAL TABLE IF NOT EXISTS `topic_day_1_x_files` (
    `_offset` bigint, `_timestamp` timestamp, `key` string, `value` binary, `event_time` timestamp,
    `headers` map<string,binary>, `_ref` struct<uri:string,size:bigint,etag:string,sha256:string>
)
STORED AS PARQUET
LOCATION 's3://b/p/topics/Day-1.x/segments/';

CREATE OR REPLACE VIEW topic_day_1_x AS
SELECT segment, "_offset", "_timestamp", key, value, event_time, headers, "_ref"
FROM (
    SELECT *, row_number() OVER (PARTITION BY segment, "_offset") AS copy
    FROM (
        SELECT *, CAST(regexp_extract("$path", 'segment=(\\d+)/', 1) AS bigint) AS segment FROM topic_day_1_x_files
    )
)
WHERE copy = 1;
"""


def test_athena_makes_a_table_and_a_view() -> None:
    assert query("athena", *AWS, topic="Day-1.x", value_type="binary") == ATHENA


def test_athena_is_told_where_segments_start() -> None:
    """It cannot read the record. Segments that come later have higher ids."""
    file = SegmentFile(
        uri=f"{AWS[0]}/{KEY}", url=f"{AWS[1]}/{KEY}?{SIGNED}", segment=3, base_offset=0, end_offset=1, count=1, bytes=9
    )
    stored = stored_topic("t", file, key_type="string", value_type="json", starts={7: 0, 3: 120})
    assert (
        'WHERE copy = 1 AND (segment > 7 OR segment IN (3, 7)) AND NOT (segment = 3 AND "_offset" < 120);\n'
        in QUERIES["athena"](stored)
    )


@pytest.mark.parametrize(
    ("root", "address", "place"),
    [(*PATH_STYLE, "http://127.0.0.1:9000"), ("file:///home/ada/braid-data", None, "/home/ada/braid-data")],
)
def test_athena_reads_nothing_else(root: str, address: str | None, place: str) -> None:
    with pytest.raises(CommandFailed, match=f"Athena reads only Amazon S3, and topic 't' is at {place}"):
        query("athena", root, address)


def test_headers_that_an_earlier_version_stored_twice_are_read_once(tmp_path: Path) -> None:
    kind = pa.map_(pa.string(), pa.binary())
    headers = [[("a", b"1"), ("b", b"2"), ("a", b"3")], None, [], [("a", b"1"), ("b", b"2")]]
    pq.write_table(pa.table({"headers": pa.array(headers, kind)}), tmp_path / "old.parquet")
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT {HEADERS_ONCE} FROM '{tmp_path}/old.parquet'").fetchall()
    assert [row for (row,) in found] == [{"a": b"3", "b": b"2"}, None, {}, {"a": b"1", "b": b"2"}]
