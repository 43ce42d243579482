"""`mq subscribe`: print the messages of a topic on stdout, or write them into a Parquet file."""

import os
from collections.abc import Coroutine
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from braidmq import AsyncClient
from filer.clock import SystemClock
from mq.cli.connect import with_client
from mq.cli.input.moments import moment, start_of
from mq.cli.options import DEFAULT_URL, Idle, Timeout, TopicName, Url, lazily
from mq.cli.reading.reading import Form, Reading

_Output = Literal[Form, "parquet"]


def subscribe(
    topic: TopicName,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Where to start: earliest, latest, an RFC 3339 time, or how long ago: 5m, 2h, 1d. Default: latest; "
            "with --to or --until-end: earliest.",
        ),
    ] = None,
    stop: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TIME", help="Stop before the messages of this time: RFC 3339, or how long ago: 5m."
        ),
    ] = None,
    marker: Annotated[
        str | None,
        typer.Option(
            "--marker",
            metavar="MARKER",
            help="Start at a marker of an earlier reader, as the HTTP API and clients give.",
        ),
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="N", help="Start with the last N messages.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="Stop after this many messages.")
    ] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at the present end of the topic.")] = False,
    form: Annotated[
        _Output,
        typer.Option(
            "--format",
            help="lines: values, one per line (also referenced payloads). raw: values without separators. "
            "ndjson: messages as JSON, one per line. json: messages as one list. table: for people. parquet: the file "
            "that --output names.",
        ),
    ] = "lines",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", dir_okay=False, metavar="FILE", help="The file that --format parquet writes."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format ndjson.")] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this stream group: members divide the topic's segments, and what is printed is "
            "committed. A group that is not there is made.",
            autocompletion=lazily("complete_group"),
        ),
    ] = None,
    member_id: Annotated[
        str | None,
        typer.Option(
            "--member-id",
            metavar="NAME",
            help="With --group: the member's name. Who starts again under it has its segments at once. Default: a new "
            "one.",
        ),
    ] = None,
    idle_seconds: Idle = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
) -> None:
    """Print the messages of a topic, in order for each key, and wait for more."""
    if sum(each is not None for each in (start, marker, tail)) > 1:
        raise typer.BadParameter("give only one of --from, --marker and --tail")
    if group is not None:
        chosen = any(each is not None for each in (start, stop, marker, tail, key, output)) or until_end
        _check_reads_all(is_part=chosen or form == "parquet")
        from mq.cli.reading.group_reading import Membership, print_as_member

        membership = Membership(topic, group, member_id, limit, idle_seconds)
        printed: Form = "ndjson" if as_json else _printed(form)
        with_client(url, timeout, lambda client: print_as_member(client, membership, printed), ends_with_reader=True)
        return
    if member_id is not None or idle_seconds is not None:
        raise typer.BadParameter("--member-id and --idle belong to --group")
    clock = SystemClock()
    now_us = clock.now_us()
    has_end = until_end or stop is not None
    _check_output(form, output, has_end=has_end or limit is not None, as_json=as_json)
    if start is None and marker is None and tail is None:
        start = "earliest" if has_end else "latest"
    begin = None if start is None else start_of(start, now_us)
    end = None if stop is None else moment(stop, now_us, option="--to")
    if isinstance(begin, datetime) and end is not None and end < begin:
        raise typer.BadParameter(f"{stop!r} is before {start!r}, where --from begins", param_hint="--to")
    reading = Reading(
        topic,
        start=begin,
        marker=marker,
        tail=tail,
        key=None if key is None else os.fsencode(key),
        stop=end,
        until_end=until_end,
        patient=timeout is None,
    )

    # Imported here: help, completion and wrong usage come sooner without Arrow.
    from mq.cli.reading.output import print_messages, write_parquet

    def work(client: AsyncClient) -> Coroutine[Any, Any, None]:
        if output is not None:
            return write_parquet(client, clock, reading, limit, output)
        return print_messages(client, clock, reading, limit, "ndjson" if as_json else _printed(form))

    with_client(url, timeout, work, ends_with_reader=output is None)


def _check_reads_all(*, is_part: bool) -> None:
    if is_part:
        raise typer.BadParameter(
            "a member reads on from what its group has committed, and all of it: leave out --from, --to, --marker, "
            "--tail, --key, --until-end and --output; mq group reset says where a group goes on",
            param_hint="--group",
        )


def _check_output(form: _Output, output: Path | None, *, has_end: bool, as_json: bool) -> None:
    if (form == "parquet") != (output is not None) or (output is not None and as_json):
        raise typer.BadParameter("--format parquet and --output FILE belong together; other formats go to stdout")
    if output is not None and not has_end:
        raise typer.BadParameter(
            "a Parquet file needs an end: give --until-end, --to or --limit", param_hint="--format"
        )


def _printed(form: _Output) -> Form:
    assert form != "parquet", "it is written into a file"
    return form
