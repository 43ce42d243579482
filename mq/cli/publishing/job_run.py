"""Publish the input of a `Job`, or only look at it."""

import json
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import BinaryIO

import orjson

from braidmq import AsyncClient, BraidMQError, OutgoingMessage, Topic
from filer.clock import SystemClock
from mq.cli.failures import CommandFailed
from mq.cli.publishing.input_forms import Fields, Format, format_of
from mq.cli.publishing.input_stream import STDIN, InputStream, open_input
from mq.cli.publishing.job import Job
from mq.cli.publishing.publish_preview import PublishPreview
from mq.cli.publishing.publish_summary import PublishSummary
from mq.cli.publishing.read_ahead import read_ahead
from mq.cli.publishing.resuming import Skip, acknowledged

# A larger payload is streamed to the store and published by reference.
_INLINE_BYTES = 1024 * 1024
_SHOWN_CHARACTERS = 60


async def publish_all(client: AsyncClient, job: Job, values: Sequence[bytes], summary: PublishSummary) -> None:
    """Publish the values, then the files. Raises `CommandFailed`, which says how to go on."""
    try:
        topic = await client.topic(job.topic)
        if values:
            _check_values(topic, values)
            messages = [_message(value, job) for value in values]
            await acknowledged(client.publish_many(job.topic, messages), len(messages), summary, SystemClock())
        skip = Skip(job.skip)
        for name in job.files:
            form = _form(job, name)
            if form != "raw":
                # Imported here: values as arguments, and whole files, need no Arrow.
                from mq.cli.publishing.row_files import publish_rows

                await publish_rows(client, job, topic, name, form, skip, summary)
            elif not skip.take(1):
                await _publish_whole(client, job, name, summary)
        skip.check_all_taken()
    except BraidMQError as error:
        if error.published is not None:
            summary.add(error.published)
        raise CommandFailed(f"{error}{summary.stored_so_far(job.skip)}") from error
    except CommandFailed as error:
        raise CommandFailed(f"{error}{summary.stored_so_far(job.skip)}") from error


async def preview_all(client: AsyncClient, job: Job, values: Sequence[bytes], preview: PublishPreview) -> None:
    """Read all that would be published. The topic must exist, as for publishing."""
    topic = await client.topic(job.topic)
    if values:
        _check_values(topic, values)
        preview.add_values(job.key, values)
    skip = Skip(job.skip)
    for name in job.files:
        form = _form(job, name)
        if form == "raw":
            if not skip.take(1):
                preview.add_whole(name, job.key)
            continue
        from mq.cli.publishing.row_files import preview_rows

        await preview_rows(job, topic, name, form, skip, preview)
    skip.check_all_taken()


def _check_values(topic: Topic, values: Sequence[bytes]) -> None:
    """Raise `CommandFailed` for an argument that is no JSON, if the topic's values are: mostly an unquoted text.

    A shell removes the quotes that JSON needs. Only this command can say so, and show the right command line.
    """
    if topic.config["value_type"] != "json":
        return
    for number, value in enumerate(values, 1):
        try:
            orjson.loads(value)
        except orjson.JSONDecodeError as error:
            which = "the value" if len(values) == 1 else f"value {number}"
            raise CommandFailed(
                f"{which} is not JSON ({error}), and the values of topic {topic.topic!r} must be: "
                f"{_how_typed(topic, value)}"
            ) from error


def _how_typed(topic: Topic, value: bytes) -> str:
    text = value.decode(errors="replace").strip()
    if text.startswith(("{", "[", '"')):
        return f"put it in single quotes, within which a shell changes nothing: mq publish {topic.topic} '{{\"n\": 1}}'"
    shown = json.dumps(text if len(text) <= _SHOWN_CHARACTERS else "…", ensure_ascii=False)
    return (
        f"a text needs quotes, {shown}, and more around them, which the shell takes away: "
        f"mq publish {topic.topic} {shlex.quote(shown)}"
    )


def _form(job: Job, name: str) -> Format:
    if job.upload:
        return "raw"
    form = job.form or ("lines" if name == STDIN else format_of(name))
    if form == "messages" and (job.fields != Fields() or job.key is not None or job.headers):
        raise CommandFailed(
            f"{name} is read as messages, which have their own keys and headers: leave out --key, --header, "
            "--key-field and --value-field"
        )
    if form in ("lines", "raw") and job.fields != Fields():
        raise CommandFailed(f"{name} is read as {form}, which has no fields: leave out --key-field and --value-field")
    if form in ("csv", "parquet") and job.key is not None:
        raise CommandFailed(f"{name} is read as {form}: take keys from a column with --key-field, not --key")
    return form


async def _publish_whole(client: AsyncClient, job: Job, name: str, summary: PublishSummary) -> None:
    """Publish a file as one message. Large files go by reference, in bounded memory."""
    with ExitStack() as stack:
        if name == STDIN:
            source: BinaryIO = stack.enter_context(tempfile.TemporaryFile())
            async for chunk in read_ahead(_chunks(stack.enter_context(open_input(name)))):
                source.write(chunk)
        else:
            source = stack.enter_context(_file(name))
        large = source.seek(0, os.SEEK_END) > _INLINE_BYTES
        source.seek(0)
        message = _message(source if job.upload or large else source.read(), job)
        await acknowledged(client.publish_many(job.topic, [message]), 1, summary, SystemClock())


def _message(value: bytes | BinaryIO, job: Job) -> OutgoingMessage:
    times = job.times
    return OutgoingMessage(value, job.key, job.headers, None, times.deliver_at, times.delay, times.expires_at)


def _file(name: str) -> BinaryIO:
    return open(name, "rb")


def _chunks(stream: InputStream) -> Iterator[bytes]:
    return iter(lambda: stream.read(_INLINE_BYTES), b"")
