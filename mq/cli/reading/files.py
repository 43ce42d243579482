"""`mq files`: list the Parquet files of a topic, and print their messages without reading through a broker."""

from typing import Annotated

import typer

from braidmq import AsyncClient, SegmentFile
from filer.clock import SystemClock
from mq.cli.connect import with_client
from mq.cli.failures import CommandFailed
from mq.cli.input.moments import Start, start_of
from mq.cli.options import DEFAULT_URL, Json, Timeout, TopicName, Url
from mq.cli.output import print_json, print_lines, print_table, size, write_text
from mq.cli.reading.queries.engines import PERSISTENT_QUERIES, QUERIES, Engine
from mq.cli.reading.queries.stored_topic import stored_topic

_From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POSITION",
        help="Leave out files that lie before this: earliest (the default), latest, an RFC 3339 time, or how long ago: "
        "5m, 2h, 1d.",
    ),
]


def list_files(
    topic: TopicName, start: _From = None, url: Url = DEFAULT_URL, timeout: Timeout = None, as_json: Json = False
) -> None:
    """List the live files. Together they hold each message once."""
    begin = _begin(start)

    async def work(client: AsyncClient) -> list[SegmentFile]:
        return [each async for each in client.files(topic, from_=begin)]

    found = with_client(url, timeout, work, ends_with_reader=True)
    if as_json:
        print_json([each.model_dump(mode="json") for each in found])
        return
    columns = ("segment", "from offset", "to offset", "messages", "size", "first", "last", "file")
    print_table(columns, (_row(each) for each in found))


def cat(
    topic: TopicName,
    segment: Annotated[int | None, typer.Argument(metavar="SEGMENT", help="Only the files of this segment.")] = None,
    start: _From = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
) -> None:
    """Print the messages in the files as JSON, one per line.

    The broker only lists the files. They are read from the local directory, or through addresses signed by the
    store.
    """
    # Only this command reads messages, for which it needs Arrow.
    from mq.cli.reading.message_forms import form_of
    from mq.cli.reading.output import schema_of
    from mq.cli.reading.segment_files import tables_of

    begin = _begin(start)

    async def work(client: AsyncClient) -> None:
        form = form_of("ndjson", topic, await schema_of(client, topic))
        async for file in client.files(topic, from_=begin):
            if segment is None or file.segment == segment:
                for table in tables_of(file):
                    write_text(form.page(table))

    with_client(url, timeout, work, ends_with_reader=True)


def sql(
    topic: TopicName,
    engine: Annotated[
        Engine,
        typer.Option("--engine", help="What the query is for. Spark and Polars get a Python program, the others SQL."),
    ] = "duckdb",
    persistent: Annotated[
        bool, typer.Option("--persistent", help="A view that stays in DuckDB's database, for all of its connections.")
    ] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
) -> None:
    """Print a query for DuckDB, Spark, Polars or Athena that has each message of the topic once.

    DuckDB, Spark and Athena get a view, Spark and Polars a frame `messages`. Of a topic group that has the column
    `_topic`, and of one of its topics its messages alone. On S3 the query names the endpoint and
    the region of the store, and each engine takes credentials as it always does.
    """

    queries = PERSISTENT_QUERIES if persistent else QUERIES
    if engine not in queries:
        raise CommandFailed(f"--persistent is for {' and '.join(queries)}: {engine} has no view that stays")

    async def work(client: AsyncClient) -> str:
        found = await client.topic(topic)
        if any(segment.given_up for segment in found.segments):
            raise CommandFailed(
                f"some messages of topic {topic!r} were given up, which names of files do not show: "
                "read what mq files ls lists"
            )
        starts = {segment.segment: segment.start_offset for segment in found.segments}
        # The messages of a member of a topic group lie in the group's files.
        async for file in client.files(found.group or topic):
            types = {name: found.config[name] for name in ("key_type", "value_type")}
            return queries[engine](stored_topic(topic, file, group=found.group, starts=starts, **types))
        raise CommandFailed(f"topic {topic!r} has no files yet: publish a message first")

    print_lines(with_client(url, timeout, work).rstrip())


def _begin(start: str | None) -> Start | None:
    return None if start is None else start_of(start, SystemClock().now_us())


def _row(file: SegmentFile) -> tuple[object, ...]:
    return (
        str(file.segment),
        file.base_offset,
        file.end_offset - 1,
        file.count,
        size(file.bytes),
        file.first_timestamp and file.first_timestamp.isoformat(timespec="seconds"),
        file.last_timestamp and file.last_timestamp.isoformat(timespec="seconds"),
        file.uri,
    )
