"""A topic as a temporary view of Spark, without a package of ours."""

import re

from mq.cli.reading.queries.in_python import WHICH_COUNT, columns_of
from mq.cli.reading.queries.quoting import sql_text
from mq.cli.reading.queries.stored_topic import StoredTopic

_QUERY = """\
# Topic {topic} for Spark, each message once, as of the moment when this is run:
#   pyspark, then exec(open("FILE").read()), then spark.sql("SELECT count(*) FROM {view}").show()
import json
import re
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.builder.getOrCreate()
options = {options!r}
folder = {folder!r}
record = json.loads(spark.read.options(**options).text({record!r}, wholetext=True).first().value)
# Of these files nothing is read but their names.
listing = spark.read.options(**options).options(pathGlobFilter="*.parquet", recursiveFileLookup=True)
found = [row.path for row in listing.format("binaryFile").load(folder).select("path").collect()]

{which}
{columns}
reader = spark.read.options(**options).option("basePath", {base!r})
parts = [reader.parquet(name).where(f"_offset >= {{start}}") for name, start in cut.items()]
parts += [reader.parquet(*whole)] if whole else []
messages = reduce(DataFrame.unionByName, parts){member}.select(columns)
messages.createOrReplaceTempView({view!r})
"""
# The wildcards in the paths of Hadoop.
_WILD = re.compile(r"([\\{}\[\]*?])")


def spark_query(stored: StoredTopic) -> str:
    """A program that makes the frame `messages` and a temporary view of the topic's name."""
    base, record = (
        each.replace("s3://", "s3a://", 1) if stored.is_on_s3 else each for each in (stored.folder, stored.record)
    )
    return _QUERY.format(
        topic=stored.topic,
        view=f"`{stored.topic}`",
        options=_options(stored),
        folder=_WILD.sub(r"\\\1", base),
        record=_WILD.sub(r"\\\1", record),
        base=base,
        which=WHICH_COUNT,
        member="" if stored.member is None else f".where({_is_of(stored.member)!r})",
        columns=columns_of(stored),
    )


def _is_of(member: str) -> str:
    return f"_topic = {sql_text(member)}"


def _options(stored: StoredTopic) -> dict[str, str]:
    """The place of the bucket, as settings of S3A for that bucket. S3A takes credentials as it always does."""
    store = stored.store
    if not stored.is_on_s3:
        return {}
    bucket = f"fs.s3a.bucket.{store.url.removeprefix('s3://').partition('/')[0]}"
    options: dict[str, str] = {}
    if store.region is not None:
        options[f"{bucket}.endpoint.region"] = store.region
    if store.endpoint_url is not None:
        options[f"{bucket}.endpoint"] = store.endpoint_url
        options[f"{bucket}.path.style.access"] = str(store.addressing_style == "path").lower()
    return options
