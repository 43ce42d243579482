"""`mq subscribe --group`: print the messages of a member of a stream group, and commit them once they are printed."""

import asyncio
from collections.abc import Sequence

import pyarrow as pa

from braidmq import AsyncClient, Message
from braidmq.consume.signals import stopped_by_signals
from filer.format.schema import MessageSchema
from mq.cli.failures import say
from mq.cli.output import write_text
from mq.cli.reading.message_forms import form_of
from mq.cli.reading.output import print_page, schema_of
from mq.cli.reading.reading import Form, Membership

_MOST_AT_ONCE = 500


async def print_as_member(client: AsyncClient, reading: Membership, name: Form) -> None:
    """Join the group, print its messages until a signal comes or the reading ends, commit, and leave.

    A message written to stdout is done. A process that is killed has committed at most a part of what it has printed:
    it has printed all messages of a commit. Messages printed after the last commit are printed again, here or at
    another member.
    """
    schema = await schema_of(client, reading.topic)
    form = form_of(name, reading.topic, schema)
    consumer = client.consumer(
        reading.topic, group=reading.group, member_id=reading.member_id, idle_seconds=reading.idle_seconds
    )
    left = reading.limit
    loop = asyncio.get_running_loop()
    async with consumer:
        with stopped_by_signals(lambda: loop.call_soon_threadsafe(consumer.stop)):
            write_text(form.head)
            while left is None or left > 0:
                most = _MOST_AT_ONCE if left is None else min(left, _MOST_AT_ONCE)
                if not (messages := await consumer.take_some(most)):
                    break
                await print_page(client, reading.topic, rows_of(messages, schema), form)
                left = None if left is None else left - len(messages)
            write_text(form.tail)
            if left == 0:
                await consumer.commit()  # no request follows the last messages, which would show that they are done
    if consumer.fenced:
        say(f"{consumer.fenced} segments went to other members before a commit: they print some messages again")


def rows_of(messages: Sequence[Message], schema: MessageSchema) -> pa.Table:
    """Messages as the rows of a page, in the form that brokers send."""
    values = {
        "_offset": [each.offset for each in messages],
        "_timestamp": [each.timestamp for each in messages],
        "key": [each.key for each in messages],
        "value": [each.value for each in messages],
        "event_time": [each.event_time for each in messages],
        "headers": [list(each.headers.items()) or None for each in messages],
        "_ref": [
            each.ref
            and {"uri": each.ref.uri, "size": each.ref.size_bytes, "etag": each.ref.etag, "sha256": each.ref.sha256}
            for each in messages
        ],
        "_topic": [each.topic for each in messages],
    }
    arrays = [pa.array(values[field.name], field.type) for field in schema.log]
    segments = pa.array([each.segment for each in messages], pa.int64())
    return pa.Table.from_arrays([segments, *arrays], schema=pa.schema([pa.field("segment", pa.int64()), *schema.log]))
