"""The options of `mq subscribe`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from mq.cli.options import lazily
from mq.cli.reading.reading import Form

Output = Literal[Form, "parquet"]

FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POSITION",
        help="Where to start: earliest, latest, an RFC 3339 time, or how long ago: 5m, 2h, 1d. Default: latest; "
        "with --to or --until-end: earliest.",
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="Stop before the messages of this time: RFC 3339, or how long ago: 5m."),
]
MarkerOption = Annotated[
    str | None,
    typer.Option(
        "--marker", metavar="MARKER", help="Start at a marker of an earlier reader, as the HTTP API and clients give."
    ),
]
TailOption = Annotated[int | None, typer.Option("--tail", min=0, metavar="N", help="Start with the last N messages.")]
KeyOption = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")]
LimitOption = Annotated[
    int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="Stop after this many messages.")
]
UntilEndOption = Annotated[bool, typer.Option("--until-end", help="Stop at the present end of the topic.")]
FormatOption = Annotated[
    Output,
    typer.Option(
        "--format",
        help="lines: values, one per line (also referenced payloads). raw: values without separators. "
        "ndjson: messages as JSON, one per line. json: messages as one list. table: for people. parquet: the file "
        "that --output names.",
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", dir_okay=False, metavar="FILE", help="The file that --format parquet writes."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="The same as --format ndjson.")]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="Read as a member of this stream group: members divide the topic's segments, and what is printed is "
        "committed. A group that is not there is made.",
        autocompletion=lazily("complete_group"),
    ),
]
MemberIdOption = Annotated[
    str | None,
    typer.Option(
        "--member-id",
        metavar="NAME",
        help="With --group: the member's name. Who starts again under it has its segments at once. Default: a new one.",
    ),
]
