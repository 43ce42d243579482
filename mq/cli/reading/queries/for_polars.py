"""A topic as a lazy frame of Polars."""

from mq.cli.reading.queries.in_python import WHICH_COUNT, columns_of
from mq.cli.reading.queries.stored_topic import StoredTopic

_QUERY = """\
# Topic {topic} for Polars, each message once, as of the moment when this is run:
#   python -i FILE        then messages.collect(), or pl.sql("SELECT count(*) FROM messages").collect()
import json
import re
{imports}
import polars as pl

folder = {folder!r}
{found}
{which}
{columns}
settings = {{"glob": False, "hive_partitioning": True{settings}}}
parts = [pl.scan_parquet(name, **settings).filter(pl.col("_offset") >= start) for name, start in cut.items()]
parts += [pl.scan_parquet(whole, **settings)] if whole else []
messages = pl.concat(parts){member}.select(columns){values}
"""
_IN_A_DIRECTORY = """\
record = json.loads(Path({record!r}).read_bytes())
found = [path.as_posix() for path in Path(folder).glob("segment=*/*.parquet")]
"""
# Polars alone lists buckets by reading the ends of files. It takes credentials as the AWS tools do.
_ON_S3 = """\
storage_options = {options!r}
as_lines = {{"has_header": False, "separator": "\\x01", "quote_char": None, "infer_schema": False}}
lines = pl.scan_csv({record!r}, **as_lines, storage_options=storage_options).collect().to_series()
record = json.loads("\\n".join(lines))
files = pl.scan_parquet(f"{{folder}}/segment=*/*.parquet", include_file_paths="file", storage_options=storage_options)
found = files.select(pl.col("file").unique()).collect()["file"]
"""


def polars_query(stored: StoredTopic) -> str:
    """A program that makes the lazy frame `messages`."""
    # Polars has no type for JSON.
    values = '.with_columns(pl.col("value").cast(pl.String))' if stored.value_type == "json" else ""
    return _QUERY.format(
        topic=stored.topic,
        imports="" if stored.is_on_s3 else "from pathlib import Path\n",
        folder=stored.folder,
        found=(
            _ON_S3.format(options=_options(stored), record=stored.record)
            if stored.is_on_s3
            else _IN_A_DIRECTORY.format(record=stored.record)
        ),
        which=WHICH_COUNT,
        member="" if stored.member is None else f'.filter(pl.col("_topic") == {stored.member!r})',
        columns=columns_of(stored),
        settings=', "storage_options": storage_options' if stored.is_on_s3 else "",
        values=values,
    )


def _options(stored: StoredTopic) -> dict[str, str]:
    store = stored.store
    options: dict[str, str] = {}
    if store.region is not None:
        options["aws_region"] = store.region
    if store.endpoint_url is not None:
        scheme, _, server = store.endpoint_url.partition("://")
        is_path = store.addressing_style == "path"
        bucket = "" if is_path else f"{store.url.removeprefix('s3://').partition('/')[0]}."
        options["aws_endpoint_url"] = f"{scheme}://{bucket}{server}"
        options["aws_allow_http"] = str(scheme == "http").lower()
        options["aws_virtual_hosted_style_request"] = str(not is_path).lower()
    return options
