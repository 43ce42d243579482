"""A topic as a view of Amazon Athena."""

import re
from collections.abc import Mapping

from mq.cli.failures import CommandFailed
from mq.cli.reading.queries.quoting import sql_text
from mq.cli.reading.queries.stored_topic import StoredTopic

# Athena lists while it reads. So it reads a message twice while the message is in two files, and one of the two counts.
# The table has no partitions: those of later segments would have to be added. It cannot read the record beside the
# files, so its text names what retention had given up when the query was printed.
_QUERY = """\
-- Topic {topic} for Athena, each message once at every moment. Run the two statements once, one after the other; then
-- query the view {name}. It knows what retention had removed when it was printed; print it again later.
CREATE EXTERNAL TABLE IF NOT EXISTS `{name}_files` (
    `_offset` bigint, `_timestamp` timestamp, `key` {key}, `value` {value}, `event_time` timestamp,
    `headers` map<string,binary>, `_ref` struct<uri:string,size:bigint,etag:string,sha256:string>{grouped}
)
STORED AS PARQUET
LOCATION {location};

CREATE OR REPLACE VIEW {name} AS
SELECT {columns}
FROM (
    SELECT *, row_number() OVER (PARTITION BY segment, "_offset") AS copy
    FROM (
        SELECT *, CAST(regexp_extract("$path", 'segment=(\\d+)/', 1) AS bigint) AS segment FROM {name}_files
    )
)
WHERE copy = 1{kept}{member};
"""
_TYPES = {"binary": "binary", "string": "string", "json": "string"}


def athena_query(stored: StoredTopic) -> str:
    """SQL that makes a table of the topic's files, and a view. Raises `CommandFailed` for stores elsewhere."""
    if not stored.is_on_s3 or stored.store.endpoint_url is not None:
        raise CommandFailed(f"Athena reads only Amazon S3, and topic {stored.topic!r} is at {_place(stored)}")
    # Athena allows no other characters in names, and a name in quotes may be no number.
    name = "topic_" + re.sub(r"\W", "_", stored.topic.lower(), flags=re.ASCII)
    return _QUERY.format(
        topic=sql_text(stored.topic),
        name=name,
        key=_TYPES[stored.key_type],
        value=_TYPES[stored.value_type],
        grouped="" if stored.group is None else ", `_topic` string",
        columns=", ".join(f'"{each}"' if each.startswith("_") else each for each in stored.columns),
        kept=_kept(stored.starts),
        member="" if stored.member is None else f' AND "_topic" = {sql_text(stored.member)}',
        location=sql_text(f"{stored.folder}/"),
    )


def _kept(starts: Mapping[int, int]) -> str:
    """Leave out segments that are gone, and messages before the start of one. Later segments have higher ids."""
    if not starts:
        return ""
    listed = ", ".join(map(str, sorted(starts)))
    moved = "".join(
        f' AND NOT (segment = {segment} AND "_offset" < {start})' for segment, start in sorted(starts.items()) if start
    )
    return f" AND (segment > {max(starts)} OR segment IN ({listed})){moved}"


def _place(stored: StoredTopic) -> str:
    return stored.store.url if stored.store.endpoint_url is None else stored.store.endpoint_url
