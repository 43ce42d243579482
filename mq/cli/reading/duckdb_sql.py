"""A topic as a view of DuckDB, by the rule for which files count (docs/file-format.md)."""

from urllib.parse import unquote

from filer import keys

_S3 = """\
INSTALL httpfs;
LOAD httpfs;
CREATE OR REPLACE SECRET braidmq (TYPE s3, PROVIDER credential_chain);
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


def duckdb_sql(topic: str, file_uri: str) -> str:
    """SQL that makes the view `topic`; `file_uri` is the address of any of the topic's files."""
    folder = keys.segments_folder(topic)
    root = file_uri.rpartition(folder)[0]
    is_local = root.startswith("file://")
    glob = f"{unquote(root.removeprefix('file://')) if is_local else root}{folder}segment=*/*.parquet"
    files = f"{topic}_files"
    return _VIEW.format(
        topic=_text(topic),
        credentials=_S3 if root.startswith("s3://") else "",
        glob=_text(glob),
        files=_name(files),
        variable=_text(files),
        view=_name(topic),
    )


def _text(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _name(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))
