"""`mq subscribe`: print the messages of a topic on stdout, or write them into a Parquet file."""

import os
from collections.abc import Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from braidmq import AsyncClient
from filer.clock import SystemClock
from mq.cli.connect import with_client
from mq.cli.input.moments import Start, moment, start_of
from mq.cli.options import DEFAULT_URL, Idle, Timeout, TopicName, Url
from mq.cli.reading import subscribe_options as options
from mq.cli.reading.reading import Form, Membership, Reading


def subscribe(
    topic: TopicName,
    start: options.FromOption = None,
    stop: options.ToOption = None,
    marker: options.MarkerOption = None,
    tail: options.TailOption = None,
    key: options.KeyOption = None,
    limit: options.LimitOption = None,
    until_end: options.UntilEndOption = False,
    form: options.FormatOption = "lines",
    output: options.OutputOption = None,
    as_json: options.JsonOption = False,
    group: options.GroupOption = None,
    member_id: options.MemberIdOption = None,
    idle_seconds: Idle = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
) -> None:
    """Print the messages of a topic, in order for each key, and wait for more."""
    if sum(each is not None for each in (start, marker, tail)) > 1:
        raise typer.BadParameter("give only one of --from, --marker and --tail")
    if group is not None:
        is_part = any(each is not None for each in (start, stop, marker, tail, key, output)) or until_end
        _check_reads_all(is_part=is_part or form == "parquet")
        _read_as_member(Membership(topic, group, member_id, limit, idle_seconds), _printed(form, as_json), url, timeout)
        return
    if member_id is not None or idle_seconds is not None:
        raise typer.BadParameter("--member-id and --idle belong to --group")
    has_end = until_end or stop is not None
    _check_output(form, output, has_end=has_end or limit is not None, as_json=as_json)
    if start is None and marker is None and tail is None:
        start = "earliest" if has_end else "latest"
    begin, end = _bounds(start, stop)
    by_key, patient = None if key is None else os.fsencode(key), timeout is None
    reading = Reading(
        topic, begin, marker=marker, tail=tail, key=by_key, stop=end, until_end=until_end, limit=limit, patient=patient
    )
    if output is not None:
        _write_file(reading, output, url, timeout)
    else:
        _print(reading, _printed(form, as_json), url, timeout)


def _check_reads_all(*, is_part: bool) -> None:
    if is_part:
        raise typer.BadParameter(
            "a member reads on from what its group has committed, and all of it: leave out --from, --to, --marker, "
            "--tail, --key, --until-end and --output; mq group reset says where a group goes on",
            param_hint="--group",
        )


def _check_output(form: options.Output, output: Path | None, *, has_end: bool, as_json: bool) -> None:
    if (form == "parquet") != (output is not None) or (output is not None and as_json):
        raise typer.BadParameter("--format parquet and --output FILE belong together; other formats go to stdout")
    if output is not None and not has_end:
        raise typer.BadParameter(
            "a Parquet file needs an end: give --until-end, --to or --limit", param_hint="--format"
        )


def _bounds(start: str | None, stop: str | None) -> tuple[Start | None, datetime | None]:
    """The start by `--from` and the end by `--to`."""
    now_us = SystemClock().now_us()
    begin = None if start is None else start_of(start, now_us)
    end = None if stop is None else moment(stop, now_us, option="--to")
    if isinstance(begin, datetime) and end is not None and end < begin:
        raise typer.BadParameter(f"{stop!r} is before {start!r}, where --from begins", param_hint="--to")
    return begin, end


def _printed(form: options.Output, as_json: bool) -> Form:
    """The form in which messages are printed."""
    if as_json:
        return "ndjson"
    assert form != "parquet", "it is written into a file"
    return form


# Modules that need Arrow are imported once they are used: help, completion and wrong usage come sooner without.


def _read_as_member(membership: Membership, form: Form, url: str, timeout_seconds: float | None) -> None:
    from mq.cli.reading.group_reading import print_as_member

    def work(client: AsyncClient) -> Coroutine[Any, Any, None]:
        return print_as_member(client, membership, form)

    with_client(url, timeout_seconds, work, ends_with_reader=True, is_patient=True)


def _write_file(reading: Reading, path: Path, url: str, timeout_seconds: float | None) -> None:
    from mq.cli.reading.output import write_parquet

    with_client(url, timeout_seconds, lambda client: write_parquet(client, SystemClock(), reading, path))


def _print(reading: Reading, form: Form, url: str, timeout_seconds: float | None) -> None:
    from mq.cli.reading.output import print_messages

    def work(client: AsyncClient) -> Coroutine[Any, Any, None]:
        return print_messages(client, SystemClock(), reading, form)

    with_client(url, timeout_seconds, work, ends_with_reader=True)
