"""A topic as a view of DuckDB, by the rule for which files count (docs/file-format.md)."""

from urllib.parse import urlsplit

from braidmq import SegmentFile
from braidmq.read.store_of_file import store_of_file
from filer import keys
from filer.stores.store_address import StoreAddress

_S3 = """\
INSTALL httpfs;
LOAD httpfs;
CREATE OR REPLACE SECRET braidmq (TYPE s3, PROVIDER credential_chain{place});
"""
# The files are listed first, and only these are read: they stay for the grace, whatever is rolled up meanwhile.
_VIEW = """\
-- Topic {topic} for DuckDB, each message once, as of the moment when this is read:
--   duckdb -init FILE        then .read FILE for the messages since
{credentials}CREATE OR REPLACE TEMP TABLE {files} AS
WITH named AS (
    SELECT file AS filename, regexp_extract(
        file, 'segment=(\\d+)/(\\d{{20}})(?:-(\\d{{20}}))?\\.parquet$', ['segment', 'base', 'end']) AS name
    FROM glob({glob})
), files AS (
    SELECT filename, name.segment::BIGINT AS segment, name.base::BIGINT AS base,
           TRY_CAST(name."end" AS BIGINT) AS stop
    FROM named
), walked AS (
    SELECT *, coalesce(max(stop) OVER (
        PARTITION BY segment ORDER BY base, stop DESC NULLS LAST
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS reached
    FROM files
)
SELECT filename, greatest(base, reached) AS start FROM walked WHERE coalesce(stop > reached, base >= reached);
SET VARIABLE {files} = (SELECT list(filename) FROM {files});
CREATE OR REPLACE TEMP VIEW {view} AS
SELECT segment, _offset, _timestamp, key, value, event_time, headers
FROM read_parquet(getvariable({variable}), hive_partitioning = true, filename = true)
JOIN {files} USING (filename)
WHERE _offset >= start;
"""


def duckdb_sql(topic: str, file: SegmentFile) -> str:
    """SQL that makes the view `topic`, from any of the topic's files.

    On S3 its signed address tells the endpoint and the region: DuckDB would ask AWS. Credentials are not in it.
    """
    store = store_of_file(topic, file)
    files = f"{topic}_files"
    return _VIEW.format(
        topic=_text(topic),
        credentials=_S3.format(place=_place(store)) if store.url.startswith("s3://") else "",
        glob=_text(f"{store.url}/{keys.segments_folder(topic)}segment=*/*.parquet"),
        files=_name(files),
        variable=_text(files),
        view=_name(topic),
    )


def _place(store: StoreAddress) -> str:
    """Where the bucket is, as options of a secret that counts for that store only."""
    options = {"SCOPE": _text(store.url)}
    if store.region is not None:
        options["REGION"] = _text(store.region)
    if store.endpoint_url is not None:
        endpoint = urlsplit(store.endpoint_url)
        options["ENDPOINT"] = _text(endpoint.netloc)
        options["USE_SSL"] = str(endpoint.scheme == "https").lower()
        options["URL_STYLE"] = _text("path" if store.addressing_style == "path" else "vhost")
    return "".join(f", {name} {value}" for name, value in options.items())


def _text(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _name(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))
