"""A topic as a view of DuckDB."""

import glob
from urllib.parse import urlsplit

from filer.stores.store_address import StoreAddress
from mq.cli.reading.queries.quoting import sql_name, sql_text
from mq.cli.reading.queries.stored_topic import StoredTopic

MOST_RECORD_BYTES = 256 * 1024 * 1024
_S3 = """\
INSTALL httpfs;
LOAD httpfs;
CREATE OR REPLACE SECRET braidmq (TYPE s3, PROVIDER credential_chain{place});
"""
# The files that count, and from which offset on, by their names (docs/file-format.md). Messages that retention has
# given up may still be there: the record says where each segment starts.
_WHICH = """\
WITH segments AS (
    SELECT segment.id AS segment, segment.start_offset AS kept
    FROM (SELECT unnest(segments) AS segment FROM read_json(
        {record}, columns = {{segments: 'STRUCT(id BIGINT, start_offset BIGINT)[]'}}, maximum_object_size = {most}))
), named AS (
    SELECT file AS filename, regexp_extract(
        file, 'segment=(\\d+)/(\\d{{20}})(?:-(\\d{{20}}))?\\.parquet$', ['segment', 'base', 'end']) AS name
    FROM glob({glob})
), files AS (
    SELECT filename, name.segment::BIGINT AS segment, name.base::BIGINT AS base,
           TRY_CAST(name."end" AS BIGINT) AS stop
    FROM named
), walked AS (
    SELECT *, greatest(kept, coalesce(max(stop) OVER (
        PARTITION BY segment ORDER BY base, stop DESC NULLS LAST
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)) AS reached
    FROM files JOIN segments USING (segment)
)
SELECT filename, greatest(base, reached) AS start FROM walked WHERE coalesce(stop > reached, base >= reached)"""
# Brokers before 0.2.0 stored a header that was given twice, and DuckDB refuses a map that has a name twice: the last
# one counts, as for other readers. For all other messages this is the column as it is.
HEADERS_ONCE = (
    "CASE WHEN len(map_keys(headers)) = len(list_distinct(map_keys(headers))) THEN headers "
    "ELSE map_from_entries(list_filter(map_entries(headers), "
    "lambda pair, i: NOT list_contains(map_keys(headers)[i + 1:], pair.key))) END AS headers"
)
# The files are listed first, and only these are read: they stay for the grace, whatever is rolled up meanwhile.
_VIEW = """\
-- Topic {topic} for DuckDB, each message once, as of the moment when this is read:
--   duckdb -init FILE        then .read FILE for the messages since
{credentials}CREATE OR REPLACE TEMP TABLE {files} AS
{which};
SET VARIABLE {files} = (SELECT list(filename) FROM {files});
CREATE OR REPLACE TEMP VIEW {view} AS
SELECT {columns}
FROM read_parquet(getvariable({variable}), hive_partitioning = true, filename = true)
JOIN {files} USING (filename)
WHERE _offset >= start{member};
"""
# A view that any connection uses lists the files whenever it is used, and lists them twice. The first list decides
# which count. These stay for the grace, so the second one has them too.
_PERSISTENT = """\
-- Topic {topic} for DuckDB, each message once: a view that stays in the database, for all of its connections. It has
-- the messages that are there when it is used.
{credentials}CREATE OR REPLACE VIEW {view} AS
SELECT {columns}
FROM (
{which}
) JOIN read_parquet({glob}, hive_partitioning = true, filename = true) USING (filename)
WHERE _offset >= start{member};
"""


def duckdb_query(stored: StoredTopic) -> str:
    """SQL that makes the view `topic` for one connection. DuckDB would ask AWS, so it has the place of the bucket."""
    files = f"{stored.topic}_files"
    return _VIEW.format(**_parts(stored), files=sql_name(files), variable=sql_text(files))


def persistent_duckdb_view(stored: StoredTopic) -> str:
    """SQL that makes the view `topic` in a database."""
    return _PERSISTENT.format(**_parts(stored))


def _parts(stored: StoredTopic) -> dict[str, str]:
    found = sql_text(f"{glob.escape(stored.folder)}/segment=*/*.parquet")
    return {
        "topic": sql_text(stored.topic),
        "credentials": _S3.format(place=_place(stored.store)) if stored.is_on_s3 else "",
        "which": _WHICH.format(glob=found, record=sql_text(glob.escape(stored.record)), most=MOST_RECORD_BYTES),
        "glob": found,
        "view": sql_name(stored.topic),
        "columns": ", ".join(HEADERS_ONCE if each == "headers" else each for each in stored.columns),
        "member": "" if stored.member is None else f" AND _topic = {sql_text(stored.member)}",
    }


def _place(store: StoreAddress) -> str:
    """The place of the bucket, as options of a secret that counts for that store only."""
    options = {"SCOPE": sql_text(store.url)}
    if store.region is not None:
        options["REGION"] = sql_text(store.region)
    if store.endpoint_url is not None:
        endpoint = urlsplit(store.endpoint_url)
        options["ENDPOINT"] = sql_text(endpoint.netloc)
        options["USE_SSL"] = str(endpoint.scheme == "https").lower()
        options["URL_STYLE"] = sql_text("path" if store.addressing_style == "path" else "vhost")
    return "".join(f", {name} {value}" for name, value in options.items())
